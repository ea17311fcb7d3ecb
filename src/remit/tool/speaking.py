"""JSON text of whatever is told here: without what no wire carries. Knows no tool. Used by the tool and by the servers."""

from typing import Any

from pydantic_core import to_json

from remit.flow.plain import plain


def json_bytes(document: Any) -> bytes:
    return to_json(document, inf_nan_mode="null", fallback=str)


def json_text(document: Any, *, indent: int | None = None) -> str:
    return to_json(speakable(document), inf_nan_mode="null", fallback=str, indent=indent).decode()


def speakable(value: Any) -> Any:
    """`value` without what no wire carries: half a character, as in the name of a file whose bytes are not text."""
    try:
        json_bytes(value)
    except ValueError:
        return plain(value)
    return value
