"""Who asks from outside, and what came with the question: known to a door, needed by the flow. Plain values, and how they reach it.

A door finds out who came in (`access`), sets `ORIGIN` around its call of `Remit`, and whatever is begun there is that caller's: its
name is the principal of the policy and stands on the record; its depth, path and deadline, when another remit sent them and is trusted,
count on from there. Where nobody set it, a person or a program of this project asks: `orchestrator`. Agents never see it: what they
delegate is their child, and a child has the origin of its tree.
"""

import contextvars
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from remit.core.budget import Budget, Limits
from remit.core.lineage import ROOT_CALLER


class Came(NamedTuple):
    """What is kept of it, with every delegation of the tree."""

    principal: str
    door: str = ""
    """grpc, a2a, http or mcp."""
    session: str | None = None
    """The caller's own word for the conversation this belongs to."""
    traceparent: str | None = None
    """Of W3C Trace Context: the span of the caller's that this tree hangs below."""
    max_depth: int | None = None
    """Nothing of the tree stands deeper, whatever the settings allow."""
    limits: Limits | None = None
    """What it may draw, from where this was first said downwards: also after a crash."""

    def to_dict(self) -> dict[str, Any]:
        """Without what is absent: most of it mostly is."""
        known: dict[str, Any] = {name: value for name, value in zip(self._fields, self, strict=True) if value not in (None, "")}
        if self.limits is not None:
            known["limits"] = self.limits.to_dict()
        return known


def came_of(principal: str | None, kept: Mapping[str, Any] | None) -> Came | None:
    """As it was kept; None: nobody from outside asked."""
    if principal is None:
        return None
    known = {name: value for name, value in (kept or {}).items() if name in Came._fields and name != "principal"}
    if known.get("limits") is not None:
        known["limits"] = Limits(**known["limits"])
    return Came(principal, **known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    came: Came
    depth: int = 0
    """Of the caller: what it asks for is one deeper."""
    path: tuple[str, ...] = (ROOT_CALLER,)
    """From the root, wherever that is, to the caller."""
    max_depth: int | None = None
    """No deeper than this, whatever the settings allow."""
    deadline_at: float | None = None
    """Wall clock: the caller's own, which its child does not outlive."""
    limits: Limits | None = None
    """What its tree may draw at most: a scope around whatever the request asks for."""
    budget: Budget | None = None
    """The scope that all trees of this principal share, or, with a parent, all that one token asks for; None: no limit of its own."""
    parent: str | None = None
    """The session of the living delegation on whose behalf it asks (a delegation token): then it is that one's child, and the rest of
    this only narrows it further."""


ORIGIN: contextvars.ContextVar[Origin | None] = contextvars.ContextVar("remit_origin", default=None)
