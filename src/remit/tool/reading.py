"""Reading on in a result that was shown shortened, by ranges of characters: of results that this very tool has given.

`results.read` is an agent of the assistant's, and reads only within one tree or conversation. A caller outside of every tree has a tree for
each call: what it was given by its own tool, it may read on in. Used by `anywhere`.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from remit.tool.request import DelegateRequest
from remit.tool.result import DelegateResult
from remit.tool.shortening import READ, range_shown, text_of

__all__ = ["READ", "Given", "range_of"]

KEPT = 10_000
"""So many results can be read on in: their ids only; the results are in the store."""
DEFAULT_CHARACTERS = 20_000


class Given:
    """The ids of what was given."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def note(self, result: DelegateResult) -> None:
        if result.task_id is not None:
            self._ids[result.task_id] = None
            if len(self._ids) > KEPT:
                self._ids.popitem(last=False)

    def asked(self, request: DelegateRequest) -> str | None:
        """The id of what is to be read, if it was given here."""
        task_id = request.parameters.get("task_id") if request.agent == READ else None
        return task_id if isinstance(task_id, str) and task_id in self._ids else None


def range_of(result: DelegateResult, asked: Mapping[str, Any], characters: int) -> str:
    """As much of the range as has room, and where it goes on: JSON of at most so many characters."""
    part = str(asked.get("part", "data"))
    whole = _text(result, part)
    offset = min(max(0, int(asked.get("offset", 0))), len(whole))
    wanted = whole[offset : offset + max(1, int(asked.get("limit", DEFAULT_CHARACTERS)))]
    return range_shown({"taskId": result.task_id, "part": part, "text": wanted, "offset": offset, "total": len(whole)}, characters)


def _text(result: DelegateResult, part: str) -> str:
    document = result.to_dict()
    return text_of(document if part == "all" else document.get(part))
