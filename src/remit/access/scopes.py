"""What was drawn with tokens of delegations: each block that limits the budget is a scope inside that of the block before it.

The widest is inside the budget of the delegation itself. So what was made of one token shares what that one has, however often it was
narrowed. Kept while the delegation runs; used by `entrance`.
"""

from collections.abc import Callable

from remit.access.delegating import Delegated
from remit.core.budget import Budget

MOST_SCOPES = 1000
"""Of one delegation. None is forgotten before it ends: a budget that was forgotten would be full again."""
MOST_DELEGATIONS = 256
"""Before those that have ended are looked for."""


class Scopes:
    def __init__(self, is_living: Callable[[str, int], bool]) -> None:
        self._is_living = is_living
        self._held: dict[tuple[str, int], dict[str, Budget]] = {}

    def of(self, delegated: Delegated, whole: Budget, now: float) -> Budget | None:
        """The scope to draw from, inside `whole`; None: the token limits none. Raises `ValueError` when there are too many."""
        limiting = [
            (name, block.budget) for name, block in zip(delegated.block_ids, delegated.blocks, strict=True) if block.budget is not None
        ]
        if not limiting:
            return None
        held = self._of_delegation(delegated.session_id, delegated.attempt)
        scope = whole
        for name, limits in limiting:
            known = held.get(name)
            if known is None:
                if len(held) >= MOST_SCOPES:
                    raise ValueError("too many narrowed tokens of one delegation")
                known = held[name] = scope.narrowed(limits, now)
            scope = known
        return scope

    def _of_delegation(self, session_id: str, attempt: int) -> dict[str, Budget]:
        held = self._held.get((session_id, attempt))
        if held is None:
            if len(self._held) >= MOST_DELEGATIONS:
                self._held = {key: scopes for key, scopes in self._held.items() if self._is_living(*key)}
            held = self._held[session_id, attempt] = {}
        return held
