"""The A2A 1.0 API: the agents of the directory as the skills of one card, over JSON-RPC, REST and gRPC. Needs `remit[a2a]`."""
