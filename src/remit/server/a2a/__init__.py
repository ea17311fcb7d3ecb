"""The A2A 1.0 API: the agents of the directory as the skills of one card, over JSON-RPC and REST. Needs `remit[a2a]`."""
