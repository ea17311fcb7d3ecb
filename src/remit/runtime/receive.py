"""Finds the return in an agent's answer: from a return object down to the return file, the first match wins.

Only finds the candidate, and never raises, whatever the bytes. `validate` checks it; the engine asks for a repair. Linear in the length of
the text, because agents' output is untrusted."""

import contextlib
import itertools
import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic_core import to_json

from remit.core.errors import Failed
from remit.core.jsonable import clean_text, safe_repr, to_jsonable
from remit.core.result import Return
from remit.system.artifact_files import read_bounded

RETURN_FILE_LIMIT_BYTES = 4 << 20
SEARCH_LIMIT_CHARACTERS = 16 << 20
"""In longer answers only the end is searched: a return comes last."""
PROSE_LIMIT_CHARACTERS = 2 << 20
"""The same for the more expensive search between sentences."""
MOST_OBJECTS = 2_000
"""Beginnings of objects that are tried, from the end: each copies the text after it."""
NOT_JSON = "Return is not valid JSON"
_RETURN_FIELDS = ("status", "summary", "artifacts", "metadata")
_OBJECT_START = re.compile(r'\{\s*+"(?:[^"\\]|\\.){0,200}"\s*+:', re.DOTALL)
_FENCE = re.compile(r"^[ \t]*(```|~~~)[`~]*([^\n`~]*)\n(.*?)(?:^[ \t]*\1[`~]*\s*?$|\Z)", re.DOTALL | re.MULTILINE)
_ONLY_A_FENCE = re.compile(r"(`{3,}|~{3,})(?:json)?[ \t]*\n(?P<block>\{.*\})\s*\n\1", re.DOTALL | re.IGNORECASE)
# Not strict: models put bare line breaks into strings. Values that JSON lacks (NaN) become null.
_DECODER = json.JSONDecoder(strict=False, parse_constant=lambda _word: None)


class ReceivedAnswer(NamedTuple):
    candidate: dict[str, Any] | None
    """Plain JSON, not validated."""
    text: str | None
    """The whole answer as text; None for an object, which is converted on demand."""
    found: str
    """Where it was found: object, json, fence, prose, file; `nothing` without a candidate."""
    faults: tuple[str, ...] = ()
    """Why there is no candidate, for the agent; empty if there is one."""

    @property
    def original(self) -> str:
        """The whole answer as text."""
        return to_json(self.candidate).decode() if self.text is None else self.text


class PlainAnswer(dict[str, Any]):
    """A return that remit made of other returns: all of it is plain JSON already, and not too large."""


def read_answer(answer: object, return_file: Path | None = None) -> ReceivedAnswer:
    """Try each source in order: the first match that looks like a return, else the first JSON object."""
    if isinstance(answer, str | bytes | bytearray | memoryview):
        original, reason = _text_of(answer), ""
        rungs = _rungs(original)
    else:
        as_object, original, reason = _read_object(answer)
        rungs = iter(())
        if as_object is not None:
            if return_file is None or looks_like_return(as_object):
                return ReceivedAnswer(candidate=as_object, text=None, found="object")
            original, rungs = to_json(as_object).decode(), iter((("object", as_object),))
    if return_file is not None and (held := read_bounded(return_file, RETURN_FILE_LIMIT_BYTES)) is not None:
        in_file = _rungs(_text_of(held)) if len(held) <= RETURN_FILE_LIMIT_BYTES else ()
        rungs = itertools.chain(rungs, (("file", candidate) for _, candidate in in_file))
    spare: tuple[str, dict[str, Any]] | None = None
    for found, candidate in rungs:
        if looks_like_return(candidate):
            return ReceivedAnswer(candidate=candidate, text=original, found=found)
        spare = spare or (found, candidate)
    if spare is not None:
        return ReceivedAnswer(candidate=spare[1], text=original, found=spare[0])
    return ReceivedAnswer(candidate=None, text=original, found="nothing", faults=(f"{NOT_JSON}: {reason or _why(original)}",))


def looks_like_return(candidate: Mapping[str, Any]) -> bool:
    return "status" in candidate or sum(field in candidate for field in _RETURN_FIELDS) >= 2


def _rungs(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    text = text[-SEARCH_LIMIT_CHARACTERS:]
    whole = _decode(text)
    if isinstance(whole, str):  # JSON encoded twice
        whole = _decode(whole)
    if isinstance(whole, dict):
        yield "json", whole
        return
    alone = _ONLY_A_FENCE.fullmatch(text.strip())
    if alone is not None and isinstance(whole := _decode(alone["block"]), dict):
        yield "json", whole  # exactly the requested form: there is no other text to keep
        return
    for _, tag, block in reversed(_FENCE.findall(text)):  # tagged as JSON or untagged; the last may be unclosed
        if tag.strip().lower()[:4] in ("", "json") and isinstance(candidate := _decode(block), dict):
            yield "fence", candidate
    for value in reversed(_objects_in(text[-PROSE_LIMIT_CHARACTERS:])):
        with contextlib.suppress(Failed):
            candidate = to_jsonable(value)
            if looks_like_return(candidate):
                yield "prose", candidate


def _decode(text: str) -> Any:
    """Parse `text` as plain JSON; None if invalid."""
    try:
        return to_jsonable(_DECODER.decode(text.strip().removeprefix("\ufeff")))
    except (ValueError, RecursionError, Failed):
        return None


def _objects_in(text: str) -> list[Any]:
    """The outermost JSON objects between sentences. Parts of a broken object are left out, and no character is decoded twice."""
    found: list[Any] = []
    reach = 0
    for match in deque(_OBJECT_START.finditer(text), maxlen=MOST_OBJECTS):
        start = match.start()
        if start < reach:
            continue
        try:
            value, length = _DECODER.raw_decode(text[start:])  # an error counts the lines before it
            found.append(value)
            reach = start + length
        except RecursionError:
            break
        except ValueError as error:
            reach = start + getattr(error, "pos", 1)
    return found


def _text_of(answer: str | bytes | bytearray | memoryview) -> str:
    if isinstance(answer, str):
        return clean_text(str.__str__(answer))
    held = bytes(answer)
    return clean_text(held.decode(json.detect_encoding(held[:8]) if held else "utf-8", "replace"))


def _read_object(answer: object) -> tuple[dict[str, Any] | None, str, str]:
    """The answer as a plain mapping; otherwise its text and the reason."""
    if answer is None:
        return None, "", "the agent returned nothing"
    try:
        if answer.__class__ is PlainAnswer:
            return dict(answer), "", ""
        value = to_jsonable(_fields(answer))
        if isinstance(value, dict):
            return value, "", ""
        original = to_json(value).decode()
    except Exception as error:  # noqa: BLE001 - reading an agent's object may raise anything
        reason = error.message if isinstance(error, Failed) else f"a {type(answer).__name__} that cannot be read"
        return None, safe_repr(answer), reason
    return None, original, f"a JSON object is required, but the agent returned a {type(answer).__name__}"


def _fields(answer: object) -> object:
    if isinstance(answer, Return):
        return answer.to_dict()
    return answer.model_dump() if isinstance(answer, BaseModel) else answer


def _why(text: str) -> str:
    """The reason why a text contains no return, for the agent."""
    text = text.strip()
    if not text.startswith("{"):
        return "no JSON object was found in the answer" if text else "the answer is empty"
    try:
        to_jsonable(_DECODER.decode(text[-SEARCH_LIMIT_CHARACTERS:]))
    except json.JSONDecodeError as error:
        return f"{error.msg} at line {error.lineno} column {error.colno}"
    except (ValueError, RecursionError, Failed) as error:
        return str(error)
    return "the object is not a return"
