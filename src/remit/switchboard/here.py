"""Whose delegation the code that asks runs in, as a token: the nearest answer counts. None: nobody's, so what it delegates is a new root.

An agent that another process lent runs in a context of its own; one on our loop or on a thread has its delegation in its context; every
other process of an agent has the token in its environment. Used when a `Remit` is opened.
"""

import os
from contextvars import ContextVar
from typing import TYPE_CHECKING

from remit.core.caller import CALLER
from remit.core.errors import Misused
from remit.engine.embedded import CURRENT

if TYPE_CHECKING:
    from remit.switchboard.lent import Run

LENT: ContextVar["Run | None"] = ContextVar("remit_lent", default=None)
"""What this context carries out for the owner of a tree."""


def token_here() -> str | None:
    lent = LENT.get()
    if lent is not None:
        return lent.token
    running = CURRENT.get()
    if running is not None and running.engine.token_for is not None:
        return running.engine.token_for(running)
    return os.environ.get(CALLER) or None


def not_yours(agent: str) -> Misused:
    """A `Remit` in the hands of an agent that did not open it: what it delegated would be a child of nobody, or of another."""
    return Misused(
        f"{agent} cannot delegate by a Remit that was opened outside of it: it would not be {agent}'s child.",
        advice="Open one inside the agent (async with Remit.open(…)), or delegate with ctx.",
    )
