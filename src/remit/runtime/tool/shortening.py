"""Large results: shortened for a reader with a limit, and read again by ranges."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from remit.core.errors import Misused
from remit.core.jsonable import clean
from remit.runtime.tool.catalogue import DelegateError, json_text
from remit.runtime.tool.request import DelegateRequest
from remit.runtime.tool.result import DelegateResult

READ = "results.read"
"""The agent that reads on."""
SUMMARISE = "results.summarise"
"""The one that has a model say the whole in few words."""
SHOWN_CHARACTERS = 16_000
"""How much of one result a model is shown, where nothing else is said."""
LEAST_CHARACTERS = 600
"""In less than this no JSON is tried: the first words of it say more than a frame without a picture."""
_ARTIFACTS_SHOWN = 20
_SHARES = {"output": 0.3, "artifacts": 0.4, "data": 1.0}
"""Of the room, where something comes after it."""


def checked_limit(characters: int) -> int:
    if isinstance(characters, bool) or not isinstance(characters, int) or characters < LEAST_CHARACTERS:
        raise Misused(f"A result is shown in at least {LEAST_CHARACTERS} characters, not {characters!r}.", advice="Allow more.")
    return characters


def shortened(result: DelegateResult, characters: int = SHOWN_CHARACTERS, *, can_read: bool = True) -> str:
    """`result` as JSON of at most `characters`; in very few of them, as words. `can_read`: whether whoever sees it has `results.read`."""
    if characters >= LEAST_CHARACTERS:
        if result.success and result.metadata.agent_id == READ and isinstance(result.data, Mapping):
            return range_shown(result.data, characters)
        shown = _fitted(result, characters, can_read)
        if shown is not None:
            return shown
    return _words(result, can_read)[: max(0, characters)]


def shortened_fault(error: DelegateError, characters: int = SHOWN_CHARACTERS) -> str:
    """What is wrong with a request, and as much as fits of what is allowed."""
    whole = json_text({"success": False, "taskId": None, "error": error.to_dict()})
    if len(whole) <= characters:
        return whole
    words = {"message": clean(error.message), "recommendation": clean(error.advice)}
    for share in (4, 8, 16):
        short = {"code": error.code, **{name: _head_and_tail(text, characters // share).text for name, text in words.items()}}
        told = json_text({"success": False, "taskId": None, "error": short})
        if len(told) <= characters:
            return told
    return json_text({"success": False, "taskId": None, "error": {"code": error.code[:60]}})


def range_shown(data: Mapping[str, Any], characters: int) -> str:
    """A range that was read (`results.read`), as much of it as fits, and where it goes on: never the beginning and the end of a range."""
    text, offset, total = str(data.get("text", "")), int(data.get("offset", 0)), int(data.get("total", 0))

    def drawn(length: int) -> str:
        end = offset + length
        told = {"part": data.get("part"), "offset": offset, "total": total, "next": end if end < total else None}
        return json_text({"success": True, "taskId": data.get("taskId"), "data": {**told, "text": text[:length]}})

    low, high = 0, min(len(text), characters)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(drawn(middle)) <= characters else (low, middle - 1)
    return drawn(low)


def text_of(value: Any) -> str:
    """A part of a result as the text in which offsets count: words as they are, anything else as JSON."""
    return clean(value) if isinstance(value, str) else json_text(value)


def _fitted(result: DelegateResult, characters: int, can_read: bool) -> str | None:
    parts = {name: value for name, value in _parts(result).items() if value not in (None, "", (), [])}
    whole = json_text({**_first(result), **parts})
    if len(whole) <= characters:
        return whole
    for room in (characters, int(characters * 0.8), int(characters * 0.6)):  # what is escaped grows: seldom more than one try
        shown = json_text(_cut(result, parts, room, can_read))
        if len(shown) <= characters:
            return shown
    return None


def _first(result: DelegateResult, room: int | None = None) -> dict[str, Any]:
    """What stands first, and stays whatever else is left out."""
    first: dict[str, Any] = {"success": result.success, "taskId": result.task_id, "taskState": str(result.task_state)}
    if result.error is not None:
        own = result.error.details.get("code")
        first["error"] = {
            "code": result.error.code,
            **({"cause": str(own)[:60]} if own and own != result.error.code else {}),
            "message": _bounded(result.error.message, room, 4),
            "recommendation": _bounded(result.error.recommendation, room, 8),
        }
    if result.metadata.status not in (None, "completed", "failed"):
        first["status"] = result.metadata.status
    return first


def _bounded(text: str, room: int | None, share: int) -> str:
    return clean(text) if room is None else _head_and_tail(clean(text), room // share).text


def _parts(result: DelegateResult) -> dict[str, Any]:
    output = "" if _is_said_by_data(result) or _is_said_by_error(result) else clean(result.output)
    artifacts = [{"type": one.type, "path": one.path, **({"summary": one.summary} if one.summary else {})} for one in result.artifacts]
    return {"output": output, "artifacts": artifacts, "data": result.data}


def _is_said_by_data(result: DelegateResult) -> bool:
    """Of an agent that hands back words the summary is the beginning of them."""
    if not isinstance(result.data, str) or not result.output:
        return False
    return _flat(result.data[:2000]).startswith(_flat(result.output.partition(" … (")[0]))


def _is_said_by_error(result: DelegateResult) -> bool:
    return result.error is not None and _flat(result.error.message) in _flat(result.output)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _cut(result: DelegateResult, parts: Mapping[str, Any], room: int, can_read: bool) -> dict[str, Any]:
    """As much of each part as has room: the last has whatever the others leave."""
    document = _first(result, room)
    most = 10**12
    room -= len(json_text({**document, "leftOut": dict.fromkeys(_SHARES, most), "readOn": _read_on(result, "artifacts", most)})) + 40
    left_out: dict[str, int] = {}
    heads: dict[str, int] = {}
    for name, value in parts.items():
        share = int(room * (1.0 if name == list(parts)[-1] else _SHARES[name]))
        shown, missing = _listed(value, share) if name == "artifacts" else (value, 0)
        if name != "artifacts" and not _fits(value, share):
            cut = _head_and_tail(text_of(value), share)
            shown, missing, heads[name] = cut.text, cut.missing, cut.head
        if shown not in (None, "", []):
            document[name] = shown
            room -= len(json_text({name: shown}))
        if missing:
            left_out[name] = missing
    if left_out:
        name = max(left_out, key=lambda one: (one == "data", left_out[one]))
        document["leftOut"] = left_out
        if result.task_id is not None and can_read:
            document["readOn"] = _read_on(result, name, heads.get(name, 0))
    return document


def _read_on(result: DelegateResult, part: str, offset: int) -> dict[str, Any]:
    """The arguments of the call that reads what is left out."""
    return {"target": "results", "operation": "read", "parameters": {"taskId": result.task_id, "part": part, "offset": offset}}


def _listed(artifacts: list[dict[str, Any]], room: int) -> tuple[list[dict[str, Any]], int]:
    shown: list[dict[str, Any]] = []
    for one in artifacts[:_ARTIFACTS_SHOWN]:
        room -= len(json_text(one)) + 1
        if room < 0:
            break
        shown.append(one)
    return shown, len(artifacts) - len(shown)


def _fits(value: Any, room: int) -> bool:
    return not (isinstance(value, str) and len(value) > room) and len(json_text(value)) <= room


class _Shown(NamedTuple):
    text: str
    head: int
    """So many characters of the beginning."""
    missing: int


def _head_and_tail(text: str, room: int) -> _Shown:
    """At most `room` characters once it is JSON: the beginning, what is left out in words, the end."""
    if _fits(text, room):
        return _Shown(text, len(text), 0)
    least, most = 0, max(0, min(room, len(text)))
    while least < most:
        middle = (least + most + 1) // 2
        if _fits(_joined(text, middle).text, room):
            least = middle
        else:
            most = middle - 1
    return _joined(text, least) if least else _Shown("", 0, len(text))


def _joined(text: str, kept: int) -> _Shown:
    tail = kept // 4
    head = kept - tail
    missing = len(text) - kept
    return _Shown(f"{text[:head]} … ({missing} characters are left out) … {text[len(text) - tail :]}", head, missing)


def _words(result: DelegateResult, can_read: bool) -> str:
    words = f"{result.task_id or 'It'} {result.task_state}."
    if result.error is not None:
        words += f" {result.error.code}: {result.error.message} {result.error.recommendation}".rstrip()
    words += f" results.read taskId {result.task_id} has it all." if result.task_id and can_read else ""
    return clean(" ".join(f"{words} {result.output}".split()))


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
