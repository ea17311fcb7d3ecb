"""Agents that are known to come back: which operations of registered agents may be carried out again, and whose they are.

One small file each, `.remit/registered/NAME.OPERATION`, with the principal that registered it: written by the server it registered with
(`serve.grpc.registry`), and left behind when that is killed. What such an agent had then waits, unsettled, until it is back or its
deadline has passed (`recovery`).
"""

import os
from pathlib import Path

FOLDER = "registered"


def awaited(folder: Path) -> frozenset[str]:
    """The names of their operations, by the folder that they are kept in. Blocking."""
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()
