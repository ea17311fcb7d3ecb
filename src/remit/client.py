"""Alias of `remit.server.client`: the client of a remit server."""

from remit.server.client import *  # noqa: F403
