"""The gRPC door: the task service of `remit/proto/v1/tasks.proto`, and the agents that register there."""
