"""Parts of a server for tests that run one in this process or call its service as a certain principal.

Tests import them from here, so that the modules of the server can move. Tests of one API use a client of its protocol instead.
"""

from remit.core.delegation import ORIGIN, Origin
from remit.server.addresses import GRPC_SOCKET, Place, ServerEntry, announce, announced, place_of, withdraw
from remit.server.authenticator import Authenticator, Credentials
from remit.server.mcp.delegations import LOCAL, Delegations, Progress
from remit.server.run import Apis, bound_apis
from remit.server.service import Call, Service
from remit.server.tokens import EVERYTHING, LOCAL_FILE, OWNER, Grants, LocalToken, Permission, Principal, Tokens, local_token, new_secret

__all__ = [
    "EVERYTHING",
    "GRPC_SOCKET",
    "LOCAL",
    "LOCAL_FILE",
    "ORIGIN",
    "OWNER",
    "Apis",
    "Authenticator",
    "Call",
    "Credentials",
    "Delegations",
    "Grants",
    "LocalToken",
    "Origin",
    "Permission",
    "Place",
    "Principal",
    "Progress",
    "ServerEntry",
    "Service",
    "Tokens",
    "announce",
    "announced",
    "bound_apis",
    "local_token",
    "new_secret",
    "place_of",
    "withdraw",
]  # fmt: skip
