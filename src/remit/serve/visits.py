"""The entrance, with whoever listens told who came in and who was turned away (issue 7 item 6): events, counts, lines of the log.

One place for all doors. Decides nothing (see `access.entrance`). Used by `doors`.
"""

from typing import TYPE_CHECKING, Any

from remit.access.entrance import Entrance
from remit.access.visitor import Visitor
from remit.core.errors import ErrorInfo, Refused, RemitError

if TYPE_CHECKING:
    from remit.app import Remit


class HeardEntrance(Entrance):
    def __init__(self, remit: "Remit", **given: Any) -> None:
        super().__init__(remit.folder, remit.settings.serve, living=remit.engine.running.get, clock=remit.clock, **given)
        self._remit = remit

    def enter(self, *, door: str = "", **shown: Any) -> Visitor:
        try:
            visitor = super().enter(door=door, **shown)
        except RemitError as error:
            self._remit.note_visit(door, None, _told(error))
            raise
        self._remit.note_visit(door, visitor.principal)
        return visitor

    def admit(self, visitor: Visitor, size: int = 0) -> None:
        try:
            super().admit(visitor, size)
        except RemitError as error:
            self._remit.note_visit("any", visitor.principal, _told(error))
            raise


def _told(error: RemitError) -> ErrorInfo:
    kind = "permission" if isinstance(error, Refused) else "execution"
    return ErrorInfo(type=kind, message=error.message, code=error.code, recoverable=False, recommendation=error.advice)
