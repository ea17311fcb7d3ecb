"""The gRPC API: the task service of `remit/agents/proto/v1/tasks.proto`, and the agents that register there."""

import os

SAYS = "GRPC_VERBOSITY"

if SAYS not in os.environ:  # gRPC writes a line to stderr for each broken handshake; read when gRPC is loaded
    os.environ[SAYS] = "NONE"
    try:
        import grpc.aio  # noqa: F401
    finally:
        del os.environ[SAYS]
