"""The policy that is switched off: a mode for trials, never quiet about itself. Does without Cedar."""

from collections.abc import Sequence

from remit.core.policy import Asked, Decision, Verdict
from remit.policy.audit import AuditLog, entry_text

_ALLOWED = Decision(verdict=Verdict.ALLOW)


class Disabled:
    """Nothing is asked, and nothing is logged but one line that says so."""

    def __init__(self, audit: AuditLog, owner: str) -> None:
        self._audit = audit
        self._entry: bytes | None = entry_text({"event": "disabled", "mode": "disabled", "owner": owner})

    def decide(self, asked: Asked) -> Decision:
        return _ALLOWED

    def sift(self, asked: Sequence[Asked]) -> list[bool]:
        return [True] * len(asked)

    def glance(self, caller: str, target: str, depth: int, effects: tuple[str, ...], session_id: str) -> Decision | None:
        return _ALLOWED

    def settled(self, asked: Asked, decision: Decision, verdict: Verdict, by: str) -> None:
        return None

    def renamed(self, session_id: str, now: str) -> None:
        return None

    def write_out(self) -> None:
        if self._entry is not None:
            self._audit.write([self._entry])
            self._entry = None

    def close(self) -> None:
        self._audit.close()
