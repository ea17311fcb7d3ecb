"""Where a delegation stands in its tree: its own id, its root, its caller, its depth and its path."""

from typing import NamedTuple

ROOT_CALLER = "orchestrator"
"""The name at the head of every path when nobody else is named."""


class Lineage(NamedTuple):
    session_id: str
    root_id: str
    parent_id: str | None
    depth: int
    """The agent a command or a person calls has depth 1; a child's depth is its caller's + 1."""
    path: tuple[str, ...]
    """The names from the root to this agent, itself included."""

    @classmethod
    def root(cls, session_id: str, agent: str, callers: tuple[str, ...] = (ROOT_CALLER,), depth: int = 1) -> "Lineage":
        """Of a new tree here; one that another machine's goes on in has the depth and path of that."""
        return cls(session_id, session_id, None, depth, (*callers, agent))

    def child(self, session_id: str, agent: str) -> "Lineage":
        return Lineage(session_id, self.root_id, self.session_id, self.depth + 1, (*self.path, agent))
