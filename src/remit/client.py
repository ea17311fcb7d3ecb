"""Alias of `remit.server.grpc_client`: the client of a remit server."""

from remit.server.grpc_client import *  # noqa: F403
