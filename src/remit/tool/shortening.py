"""As much of a result as a model is to see: JSON text of at most so many characters, with a reference to the whole.

Says nothing of how the whole is read beyond the words it is given: that differs from door to door. Used by the tools for other frameworks.
"""

from collections.abc import Callable, Mapping
from typing import Any

from remit.core.errors import Misused
from remit.tool.faults import DelegateError
from remit.tool.result import DelegateResult
from remit.tool.speaking import json_text

SHOWN_CHARACTERS = 16_000
LEAST_CHARACTERS = 500
"""Below this not even what became of it could be told."""
WORDS = 400
"""Of a message or an output that is itself too long."""


def kept_whole() -> str:
    return "It is kept whole under its taskId."


def checked_limit(characters: int) -> int:
    if isinstance(characters, bool) or not isinstance(characters, int) or characters < LEAST_CHARACTERS:
        raise Misused(f"A result is shown in at least {LEAST_CHARACTERS} characters, not {characters!r}.", advice="Allow more.")
    return characters


def shortened(result: DelegateResult, characters: int = SHOWN_CHARACTERS, reading: Callable[[], str] = kept_whole) -> str:
    """The result as JSON text, whole where it fits; else the beginning of its data, how much there is of it, and, as `reading` says,
    where. Never longer."""
    document = result.to_dict()
    whole = json_text(document)
    if len(whole) <= characters:
        return whole
    data = document["data"] if isinstance(document["data"], str) else json_text(document["data"])
    return _with_beginning(_outline(document), data, characters, reading())


def shortened_fault(error: DelegateError, characters: int = SHOWN_CHARACTERS) -> str:
    """What is wrong with a request, and as much as fits of what is allowed."""
    document = {"success": False, "taskId": None, "error": error.to_dict()}
    whole = json_text(document)
    if len(whole) <= characters:
        return whole
    short = {"code": error.code, "message": error.message[:WORDS], "recommendation": error.advice[:WORDS]}
    return _fitting({"success": False, "taskId": None, "error": short}, characters)


def _outline(document: Mapping[str, Any]) -> dict[str, Any]:
    """What became of it, without what may be long."""
    error, artifacts = document["error"], document["artifacts"]
    if error is not None:
        error = {
            name: error[name][:WORDS] if isinstance(error[name], str) else error[name] for name in ("code", "message", "recommendation")
        }
    is_said_twice = isinstance(document["data"], str)
    outline = {**document, "data": None, "output": document["output"][: WORDS // 4 if is_said_twice else 2 * WORDS], "error": error}
    outline["artifacts"] = [{"type": one["type"], "path": one["path"]} for one in artifacts[:10]]
    if len(artifacts) > 10:
        outline["moreArtifacts"] = len(artifacts) - 10
    return outline


def _with_beginning(outline: dict[str, Any], data: str, characters: int, reading: str) -> str:
    """As long a beginning of the data as there is room for: in JSON a character may take six."""

    def drawn(length: int) -> str:
        told = {"characters": len(data), "shown": length, "whole": reading}
        return json_text({**outline, "data": data[:length], "shortened": told})

    if 2 * len(drawn(0)) > characters:  # where room is short, the beginning of the data is worth more than when it was done
        for name in ("metadata", "artifacts", "output"):
            outline.pop(name, None)
    low, high = 0, min(len(data), characters)
    if len(drawn(0)) > characters:
        return _fitting({**outline, "shortened": {"characters": len(data), "shown": 0, "whole": reading}}, characters)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(drawn(middle)) <= characters else (low, middle - 1)
    return drawn(low)


def _fitting(document: dict[str, Any], characters: int) -> str:
    """Without one part after the other, until it fits."""
    for name in ("moreArtifacts", "artifacts", "metadata", "output", "shortened", "error", "data"):
        text = json_text(document)
        if len(text) <= characters:
            return text
        document = {key: value for key, value in document.items() if key != name}
    return json_text({"success": document["success"], "taskId": document["taskId"]})
