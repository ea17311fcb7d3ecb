"""Validates agents' answers: a candidate becomes a return, or every fault in it is named.

Trusts nothing an agent says about evidence, hashes, times or its place in the tree. Reads files, so it is called off the event loop.
`receive` finds the candidate, the engine asks for a repair."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import to_json

from remit.core.errors import ErrorInfo, Failed, InvalidReturn, code_of_type
from remit.core.ids import is_session_id
from remit.core.jsonable import to_jsonable
from remit.core.result import ARTIFACT_ALIASES, ARTIFACT_TYPES, Artifact, Evidence, Metadata, Return, Status
from remit.core.text import plural, shorten
from remit.runtime.output_schema import schema_faults
from remit.runtime.receive import NOT_JSON, read_answer
from remit.runtime.return_format import EXAMPLE_SUMMARY
from remit.system.artifact_files import FILE_CLOCK_LAG_SECONDS, FileInfo, FileProblem, inspect_artifact

MAX_CHARACTERS = 500
ADVISED_CHARACTERS = 400
ADVISED_TOKENS = 100
ADVISED_SENTENCES = range(2, 6)

_TOKEN = r"[぀-ヿ㐀-鿿가-힯]|\w{1,6}|[^\w\s]"
"""Long words are several tokens; so is each character of scripts without spaces. Compiled on first use, which takes long."""
_SENTENCE_END = re.compile(r"[。！？]|[.!?…]+[\"'”’)\]]*(?=\s)|[^\s.!?…。！？\"'”’)\]]\s*\Z")
"""A text that ends without a mark ends a sentence, too."""
_MARKUP = re.compile(r"^\s{0,3}(?:#|[-*+>] )|`|\*\*|\]\(|</?[a-zA-Z]", re.MULTILINE)
_EMOJI = re.compile("[\U0001f000-\U0001faff☀-➿⬀-⯿️]")


def summary_faults(summary: str) -> list[str]:
    if not summary.strip():
        return ["summary: is empty"]
    if len(summary) > MAX_CHARACTERS:
        return [f"summary: is {len(summary)} characters long, at most {MAX_CHARACTERS} are allowed"]
    return []


def summary_warnings(summary: str) -> list[str]:
    """Remarks on an accepted summary."""
    warnings = []
    if len(summary) > ADVISED_CHARACTERS:
        warnings.append(f"summary: {len(summary)} characters; at most {ADVISED_CHARACTERS} are advised")
    # No token is shorter than a character: a text this short needs no count.
    if len(summary) > ADVISED_TOKENS and (tokens := len(re.findall(_TOKEN, summary))) > ADVISED_TOKENS:
        warnings.append(f"summary: about {tokens} tokens; at most {ADVISED_TOKENS} are advised")
    if (sentences := count_sentences(summary)) not in ADVISED_SENTENCES:
        warnings.append(f"summary: {plural(sentences, 'sentence')}; {ADVISED_SENTENCES[0]} to {ADVISED_SENTENCES[-1]} are advised")
    if _MARKUP.search(summary):
        warnings.append("summary: contains markup; plain sentences are advised")
    if not summary.isascii() and _EMOJI.search(summary):
        warnings.append("summary: contains emoji; plain sentences are advised")
    return warnings


def count_sentences(text: str) -> int:
    return len(_SENTENCE_END.findall(text.strip() + " "))


_Words = Annotated[str, StringConstraints(min_length=1)]
_SHOWN_CHARACTERS = 80


class _Wire(BaseModel):
    # Strict: "1" is not a depth. Unknown fields are kept.
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
    # By value although strict: JSON has no enumerations.
    status: Annotated[Status, Field(strict=False)]
    summary: str
    artifacts: list[WireArtifact]
    metadata: WireMetadata
    errors: list[WireError] | None = None
    next_steps: str | list[str] | None = None
    data: Any = None
    warnings: Any = None
    stop_reason: Any = None
    """Remit knows it, like the next one."""
    evidence: Any = None


def read_shape(candidate: Mapping[str, Any]) -> WireReturn:
    """Parse a plain JSON object. Raises `InvalidReturn` with every field that is missing or has the wrong form."""
    try:
        return WireReturn.model_validate(candidate)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
    raise InvalidReturn(
        list(dict.fromkeys(f"{_name(fault['loc'])}: {_words(fault['type'], fault['msg'], fault['input'])}" for fault in found))
    )


def _name(location: tuple[int | str, ...]) -> str:
    """`artifacts[0].type`; without the branches of a union, which follow the field."""
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
    return f"{message[:1].lower()}{message[1:]}, not {_short_repr(given)}"


def _short_repr(value: Any) -> str:
    """A short form of a value for messages."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    return shorten(repr(value), _SHOWN_CHARACTERS)


MAX_ARTIFACTS = 10_000
_MOST_FAULTS = 100
_PLACE = frozenset({"agent_type", "delegation_depth", "delegation_path"})


class ExpectedReturn(NamedTuple):
    """Facts that remit knows about the delegation; None: unknown, the agent's value is used."""

    root: Path
    workspace: str = ""
    """Its own working folder, relative to the root: its paths are relative to that. Empty: the root itself."""
    session_id: str | None = None
    agent: str | None = None
    depth: int | None = None
    path: tuple[str, ...] | None = None
    started_at: float | None = None
    """Wall clock."""
    duration_seconds: float = 0.0
    requires_artifacts: bool = False
    output_schema: Mapping[str, Any] | None = None
    """Schema of the data of a completed return; None: any data or none."""
    stop_at: float | None = None
    """When to stop hashing (monotonic); the hash covers what was read by then."""


def validate_return(candidate: Mapping[str, Any], expected: ExpectedReturn) -> Return:
    """The return for `candidate`. Raises `InvalidReturn` with every fault, each with the name of its field."""
    try:
        fields = to_jsonable(candidate)
    except Failed as error:
        raise InvalidReturn([f"{NOT_JSON}: {error.message}"], advice=_advice(expected)) from error
    return validate_jsonable(fields, expected)


def validate_jsonable(fields: Mapping[str, Any], expected: ExpectedReturn) -> Return:
    """`validate_return` for plain JSON, as from `receive` and `to_jsonable`. The form is checked first, then what it says."""
    fields, filled = _with_known_place(fields, expected)
    try:
        wire = read_shape(fields)
        files = _check_artifacts(wire, expected)
        if faults := [*_faults(wire, expected), *files.faults]:
            raise InvalidReturn(faults)
    except InvalidReturn as invalid:
        more = len(invalid.faults) - _MOST_FAULTS
        faults = [*invalid.faults[:_MOST_FAULTS], *([f"and {more} more faults"] if more > 0 else [])]
        raise InvalidReturn(faults, advice=_advice(expected)) from None
    result = _build(wire, expected, files)
    return replace(result, warnings=(*result.warnings, *filled)) if filled else result


def _with_known_place(fields: Mapping[str, Any], expected: ExpectedReturn) -> tuple[Mapping[str, Any], list[str]]:
    """Add the agent's known place in the tree if the agent omitted it, with a warning for each field."""
    given = fields.get("metadata")
    if not isinstance(given, dict) or given.keys() >= _PLACE:
        return fields, []
    known = {"agent_type": expected.agent, "delegation_depth": expected.depth, "delegation_path": expected.path}
    missing: dict[str, Any] = {name: value for name, value in known.items() if name not in given and value is not None}
    if "delegation_path" in missing:
        missing["delegation_path"] = list(expected.path or ())
    warnings = [f"metadata.{name}: was missing; recorded as {_short_repr(value)}" for name, value in missing.items()]
    return {**fields, "metadata": {**given, **missing}}, warnings


def _advice(expected: ExpectedReturn) -> str:
    return f"Fix {expected.agent} subagent return format." if expected.agent else ""


def check_return(text_or_object: object, session_id: str | None = None, root: str | Path = ".") -> Return:
    """For agents, before they return: the return, or `InvalidReturn` with the list of faults."""
    received = read_answer(text_or_object)
    if received.candidate is None:
        raise InvalidReturn(received.faults)
    return validate_jsonable(received.candidate, ExpectedReturn(root=Path(root), session_id=session_id))


def _faults(wire: WireReturn, expected: ExpectedReturn) -> list[str]:
    """Faults of summary, identity, errors and data."""
    faults, is_completed, count = summary_faults(wire.summary), wire.status is Status.COMPLETED, len(wire.errors or ())
    if expected.agent is not None and _letters(wire.summary) == _EXAMPLE_LETTERS:
        faults.append("summary: is copied from the example in the instruction")
    given = wire.metadata.session_id
    if expected.session_id is not None and given != expected.session_id:
        faults.append(f"metadata.session_id: must be {expected.session_id!r}, not {_short_repr(given)}")
    elif expected.session_id is None and not is_session_id(given):
        faults.append(f"metadata.session_id: must look like sess_1700000000_abc123, not {_short_repr(given)}")
    if is_completed == (count > 0):
        rule = f"must be empty when status is completed, has {count}" if count else f"must not be empty when status is {wire.status}"
        faults.append(f"errors: {rule}")
    if expected.output_schema is not None and is_completed:  # another return may have partial data or none
        if "data" in wire.model_fields_set:
            return [*faults, *schema_faults(wire.data, expected.output_schema)]
        faults.append("data: is required when status is completed, and must match the agent's schema")
    return faults


def _letters(text: str) -> str:
    """Without spaces and case: a program that echoes its prompt may have reformatted it."""
    return "".join(text.split()).casefold()


_EXAMPLE_LETTERS = _letters(EXAMPLE_SUMMARY)


class _Files(NamedTuple):
    artifacts: tuple[Artifact, ...]
    faults: list[str]
    warnings: list[str]


def _check_artifacts(wire: WireReturn, expected: ExpectedReturn) -> _Files:
    """The artifacts with measured values."""
    given = wire.artifacts
    if len(given) > MAX_ARTIFACTS:
        return _Files((), [f"artifacts: {len(given)} are listed, at most {MAX_ARTIFACTS} are allowed"], [])
    files = _Files((), [], [])
    if not given and not expected.requires_artifacts:
        return files
    must_exist = wire.status is Status.COMPLETED
    if expected.requires_artifacts and isinstance(wire.data, dict):  # agents that cannot write files return the text, by its type
        must_exist = must_exist and not any(isinstance(text := wire.data.get(kind), str) and text.strip() for kind in ARTIFACT_TYPES)
    unique = list({(one.path, one.type): one for one in given}.values())  # a file listed twice is checked once
    kept = [artifact for artifact in (_check_artifact(one, must_exist, expected, files) for one in unique) if artifact]
    if must_exist and expected.requires_artifacts and not files.faults:
        if not kept:
            files.faults.append("artifacts: phantom work: this agent must return at least one artifact when completed")
        elif expected.started_at is not None and not any(_is_since(one.mtime or 0.0, expected.started_at) for one in kept):
            files.faults.append("artifacts: phantom work: every artifact is older than the start of the delegation")
    return _Files(tuple(kept), files.faults, files.warnings)


def _check_artifact(one: WireArtifact, must_exist: bool, expected: ExpectedReturn, files: _Files) -> Artifact | None:
    kind = ARTIFACT_ALIASES.get(one.type, one.type)
    if kind not in ARTIFACT_TYPES:
        files.faults.append(
            f"artifacts: type of {_short_repr(one.path)} must be one of {', '.join(ARTIFACT_TYPES)}, not {_short_repr(one.type)}"
        )
    path, seen = _inspect(one.path, expected)
    if not isinstance(seen, FileInfo):
        if must_exist or seen.is_outside:
            files.faults.append(f"artifacts: {_short_repr(one.path)} {seen.reason}")
        else:
            files.warnings.append(f"artifacts: {_short_repr(one.path)} {seen.reason}: dropped")
        return None
    if not seen.is_whole:
        files.warnings.append(f"artifacts: {_short_repr(one.path)}: only the first {seen.hashed_bytes} of {seen.size} bytes were hashed")
    return seen.checked(Artifact(type=kind, path=path, summary=one.summary or ""))


def _inspect(given: str, expected: ExpectedReturn) -> tuple[str, FileInfo | FileProblem]:
    """The path relative to the root for the record, and the file found there."""
    workspace = expected.workspace
    if not workspace:
        return str(PurePosixPath(given)), inspect_artifact(expected.root, given, stop_at=expected.stop_at)
    path = given.removeprefix(f"{workspace}/")
    seen = inspect_artifact(expected.root, path, within=workspace, stop_at=expected.stop_at)
    if path == given and isinstance(seen, FileProblem) and not seen.is_outside:
        elsewhere = inspect_artifact(expected.root, given, stop_at=expected.stop_at)
        if isinstance(elsewhere, FileInfo):  # it named the file from the root, like its scratch folder
            return str(PurePosixPath(given)), elsewhere
    return str(PurePosixPath(workspace, path)), seen


def _is_since(mtime: float, started_at: float) -> bool:
    # File systems with a resolution of one or two seconds date a file before it was written.
    return mtime >= started_at - (2.0 if mtime == int(mtime) else FILE_CLOCK_LAG_SECONDS)


def _build(wire: WireReturn, expected: ExpectedReturn, files: _Files) -> Return:
    given = wire.warnings if isinstance(wire.warnings, list) else [] if wire.warnings is None else [wire.warnings]
    texts = [one if isinstance(one, str) else to_json(one).decode() for one in given]
    warnings = [*texts, *summary_warnings(wire.summary), *files.warnings]
    metadata = _metadata(wire, expected, warnings)
    errors = tuple(
        ErrorInfo(
            type=one.type,
            message=one.message,
            code=one.code or code_of_type(one.type),
            recoverable=one.recoverable,
            recommendation=one.recommendation or "",
        )
        for one in wire.errors or ()
    )
    steps = wire.next_steps
    return Return(
        status=wire.status,
        summary=wire.summary,
        artifacts=files.artifacts,
        metadata=metadata,
        errors=errors,
        next_steps="\n".join(steps) if isinstance(steps, list) else steps or "",
        data=wire.data,
        evidence=Evidence.CHECKED if files.artifacts else Evidence.CLAIMED,
        warnings=tuple(dict.fromkeys(warnings)),
        extra=dict(wire.model_extra or {}),
    )


def _metadata(wire: WireReturn, expected: ExpectedReturn, warnings: list[str]) -> Metadata:
    """Remit's values if known: an agent may be wrong about its place."""
    given = wire.metadata
    path = tuple(given.delegation_path)
    for name, said, known in (
        ("agent_type", given.agent_type, expected.agent),
        ("delegation_depth", given.delegation_depth, expected.depth),
        ("delegation_path", path, expected.path),
    ):
        if known is not None and said != known:
            warnings.append(f"metadata.{name}: the agent wrote {_short_repr(said)}; recorded as {_short_repr(known)}")
    return Metadata(
        session_id=given.session_id,
        agent_type=given.agent_type if expected.agent is None else expected.agent,
        delegation_depth=given.delegation_depth if expected.depth is None else expected.depth,
        delegation_path=path if expected.path is None else expected.path,
        duration_seconds=expected.duration_seconds,
        extra={key: value for key, value in (given.model_extra or {}).items() if key != "duration_seconds"},
    )
