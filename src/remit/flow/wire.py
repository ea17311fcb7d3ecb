"""The return as agents write it: the shape, field by field (S3.1, S3.2, S3.6), and what is wrong with it in words.

Only types and presence; what the fields must say is judged in `validate`, which alone uses this.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from remit.core.result import Status

_Words = Annotated[str, StringConstraints(min_length=1)]
_SHOWN_CHARACTERS = 80


class _Wire(BaseModel):
    # Strict: "1" is not a depth. What we do not know is kept (S3.1).
    model_config = ConfigDict(strict=True, extra="allow", protected_namespaces=(), defer_build=True)


class WireArtifact(_Wire):
    type: _Words
    path: str
    summary: str | None = None


class WireError(_Wire):
    type: _Words
    message: _Words
    code: str | None = None
    recoverable: bool = False
    recommendation: str | None = None


class WireMetadata(_Wire):
    session_id: str
    agent_type: _Words
    delegation_depth: Annotated[int, Field(ge=0)]
    delegation_path: list[str]


class WireReturn(_Wire):
    # Read by value although strict: JSON has no enumerations.
    status: Annotated[Status, Field(strict=False)]
    summary: str
    artifacts: list[WireArtifact]
    metadata: WireMetadata
    errors: list[WireError] | None = None
    next_steps: str | list[str] | None = None
    data: Any = None
    stop_reason: Any = None
    warnings: Any = None
    evidence: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A candidate read as far as it can be: what is damaged stands in as sound, so that the rest can be judged too."""

    wire: WireReturn
    faults: tuple[str, ...]
    damaged: frozenset[str]
    """Names of fields that stand in: `status`, `metadata.session_id`, …"""


_NOTHING: frozenset[str] = frozenset()
_STAND_IN: dict[str, Any] = {"status": "failed", "summary": "Stands in.", "artifacts": [], "errors": []}
_METADATA_STAND_IN: dict[str, Any] = {"session_id": "", "agent_type": "agent", "delegation_depth": 0, "delegation_path": []}


def read_shape(candidate: Mapping[str, Any]) -> Shape:
    """Of a plain JSON object; every fault at once."""
    try:
        return Shape(wire=WireReturn.model_validate(candidate), faults=(), damaged=_NOTHING)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
    locations = [fault["loc"] for fault in found]
    mended, damaged = _mend(candidate, locations)
    faults = dict.fromkeys(f"{_name(fault['loc'])}: {_words(fault['type'], fault['msg'], fault['input'])}" for fault in found)
    return Shape(wire=WireReturn.model_validate(mended), faults=tuple(faults), damaged=frozenset(damaged))


def _mend(candidate: Mapping[str, Any], locations: list[tuple[int | str, ...]]) -> tuple[dict[str, Any], set[str]]:
    mended, damaged = dict(candidate), set[str]()
    items: dict[str, set[int]] = {}
    for field, *inner in locations:
        name = str(field)
        if inner and isinstance(inner[0], int) and name in ("artifacts", "errors"):
            items.setdefault(name, set()).add(inner[0])
        elif inner and name == "metadata":
            damaged.add(f"metadata.{inner[0]}")
        else:
            damaged.add(name)
            mended.pop(name, None)
    for name, bad in items.items():
        mended[name] = [item for index, item in enumerate(candidate[name]) if index not in bad]
    metadata = mended.get("metadata", {})
    good = {key: value for key, value in metadata.items() if f"metadata.{key}" not in damaged}
    return {**_STAND_IN, **mended, "metadata": {**_METADATA_STAND_IN, **good}}, damaged


def _name(location: tuple[int | str, ...]) -> str:
    """`artifacts[0].type`; the branches of a union, which come after the field itself, are left out."""
    name = ""
    for part in location:
        if isinstance(part, int):
            name += f"[{part}]"
        elif part in ("str", "list[str]"):
            break
        else:
            name += f".{part}" if name else part
    return name


def _words(kind: str, message: str, given: Any) -> str:
    if kind == "missing":
        return "is missing"
    if kind == "string_too_short":
        return "is empty"
    return f"{message[:1].lower()}{message[1:]}, not {shown(given)}"


def shown(value: Any) -> str:
    """A value in a message: short enough to read."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
