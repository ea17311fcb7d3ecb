"""Clients of a remit that serves: the delegations of the task service, by gRPC. Needs no project and no `Remit` of its own."""
