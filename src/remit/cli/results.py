"""Results for people: title, summary, report or data, artifacts, errors, next step; and the JSON documents of `--json`.

Nothing is printed twice: neither text of the summary, nor the data of a report that is shown. Imports nothing heavy."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.cli.exits import Exit, exit_of_ending
from remit.cli.render import (
    MARKS,
    advice_lines,
    at_the_prompt,
    columns,
    duration,
    harmless,
    json_text,
    one_line,
    painted,
    put,
    say,
    size,
    when,
)  # fmt: skip
from remit.core.errors import ErrorInfo
from remit.core.result import Artifact, Return, Status, StopReason
from remit.core.states import State
from remit.core.text import MORE

if TYPE_CHECKING:
    from remit.agents.definition import Definition
    from remit.board.outcome import Outcome
    from remit.cli.project import Project
    from remit.core.agents import AgentSpec
    from remit.core.events import Event
    from remit.core.record import Record

DATA_LINES = 40
DATA_CHARACTERS = 4_000
REPORT_LINES = 30
REPORT_BYTES = 256 * 1024
LONG = 500


# ---- a return of an agent


def print_return(result: Return, root: Path) -> None:
    """Print a return. `root`: the project folder, which contains its artifacts."""
    from remit.core.result import state_of
    from remit.runtime.reply import A_PERSON_IS_NEEDED

    state = state_of(result)
    mark, style = MARKS[state]
    title = painted(f"{mark} {result.status}", style) + (f" ({state})" if state != str(result.status) else "")
    title += f"  {painted(harmless(result.metadata.agent_type), 'bold')}"
    took = f"  {duration(result.metadata.duration_seconds)}" if state is not State.REFUSED else ""
    print(title + painted(f"  {result.session_id}{took}", "dim"), flush=True)
    put(result.summary)
    if not _print_report(result, root):
        _print_data(result)
    for artifact in result.artifacts:
        say_labelled("artifact", "green", _artifact_words(artifact))
    # The reader is the person who must act: print only what to do.
    step = result.next_steps.removeprefix(A_PERSON_IS_NEEDED).lstrip() or result.next_steps
    _print_parts(result.errors, result.warnings, result.summary, step)


def _artifact_words(artifact: Artifact) -> str:
    parts = [one_line(artifact.path, LONG), artifact.type, *([size(artifact.size)] if artifact.size is not None else [])]
    parts += [str(artifact.evidence), *([f"sha256 {artifact.sha256[:12]}…"] if artifact.sha256 else [])]
    return "  ".join([*parts, *([one_line(artifact.summary, LONG)] if artifact.summary else [])])


def _print_parts(errors: Sequence[ErrorInfo], warnings: Sequence[str], summary: str, step: str) -> None:
    """Print errors (the message unless the summary contains it, the advice unless it is the next step), warnings and the next step."""
    for error in errors:
        words = one_line(error.message, LONG)
        say_labelled(error.code, "red", "" if words in one_line(summary, LONG) else words)
        if error.recommendation.rstrip(".") not in step:
            _put_lines(error.recommendation, "    → ", "yellow")
    for warning in warnings:
        say_labelled("warning", "yellow", one_line(at_the_prompt(warning), LONG))
    if step:
        _put_lines(step, "  next  ", "cyan")


def _put_lines(advice: str, label: str, style: str) -> None:
    """Print advice. Lines to copy (e.g. of a settings file) stay lines."""
    for line in advice_lines(advice):
        put(line, label, style=style, label_style=style)
        label = ""


def _print_report(result: Return, root: Path) -> bool:
    """Print the beginning of the report, if there is one: it describes the data in words."""
    text = "\n".join(report_lines(result.artifacts, root)[:REPORT_LINES])
    if not text:
        return False
    print()
    print(text)
    put("\n  This is the beginning of the report; --json shows the data", style="dim")
    return True


def _print_data(result: Return) -> None:
    """Print the structured result, unless the summary contains it; cut with a notice."""
    data = result.data
    if data is None or data == result.summary:
        return
    lines = list(data_lines(data))
    characters = 0
    for number, line in enumerate(lines):
        characters += len(line)
        if number >= DATA_LINES or characters > DATA_CHARACTERS:
            put(f"… {len(lines) - number:,} more lines: --json shows everything", "  ", style="dim")
            break
        put(line, "  " if line else "")


def report_lines(artifacts: Sequence[Artifact], root: Path) -> list[str]:
    """The first readable Markdown report up to its mark, without its title, which the summary repeats; empty without one."""
    from remit.system.artifact_files import read_inside

    for artifact in artifacts:
        is_report = artifact.type == "report" and artifact.path.lower().endswith((".md", ".markdown"))
        if is_report and (data := read_inside(root, artifact.path, REPORT_BYTES)):
            text = harmless(data.decode("utf-8", "replace")).partition(MORE)[0].strip()
            return (text.partition("\n")[2] if text.startswith("# ") else text).strip().splitlines()
    return []


# ---- the outcome of a command of the board


def answer_outcome(project: "Project", outcome: "Outcome", *, was_interrupted: bool = False, text: str | None = None) -> Exit:
    code = Exit.INTERRUPTED if was_interrupted else exit_of_ending(Status(outcome.status), StopReason(outcome.stop_reason))
    return project.answer(outcome.to_dict, text if text is not None else lambda: print_outcome(outcome), code)


def print_outcome(outcome: "Outcome") -> None:
    print(_title(outcome), flush=True)
    if outcome.summary:
        say(outcome.summary)
    for artifact in outcome.artifacts:
        say_labelled("artifact", "green", f"{one_line(artifact.path, LONG)} ({artifact.type})  {one_line(artifact.summary, LONG)}".rstrip())
    if outcome.commit:
        say_labelled("commit", "green", outcome.commit)
    _print_parts(outcome.errors, outcome.warnings, outcome.summary, "" if outcome.data.get("dry_run") else outcome.next_steps)


def say_labelled(label: str, style: str, words: str) -> None:
    put(words, f"  {label}  " if words else f"  {label}", label_style=style)


def _title(outcome: "Outcome") -> str:
    """The status, command, task and session."""
    task = "" if outcome.task_number is None else f"  task {outcome.task_number}"
    if outcome.data.get("dry_run"):
        return f"{painted('○ rehearsal', 'dim')}  {outcome.command}{task}: nothing was changed"
    reasons = {"deadline": State.TIMEOUT, "idle": State.TIMEOUT, "cancelled": State.CANCELLED, "refused": State.REFUSED}
    status = State(outcome.status)
    state = status if outcome.status in ("completed", "blocked") else reasons.get(outcome.stop_reason, status)
    mark, style = MARKS[state]
    why = f" ({state})" if state in (State.REFUSED, State.CANCELLED, State.TIMEOUT) else ""
    marker = f" [{outcome.task_status}]" if task and outcome.task_status else ""
    session = f"  {outcome.session_id}" if outcome.session_id else ""
    return f"{painted(f'{mark} {outcome.status}', style)}{why}  {outcome.command}{task}{marker}{session}"


# ---- the data of a result, and documents, as lines


LINE_CHARACTERS = 160
_DEEPEST = 5
"""Below this depth a value is one line."""


def say_document(document: Mapping[str, Any]) -> None:
    """Print a document of `--json` for a person. Empty fields are left out; fields named `…_at` are shown as times, and fields named
    `…_seconds` as durations. Short fields come first, each wrapped beside its name; then lists of objects and other long values."""
    shown = _for_person(document)
    short = {name: value for name, value in shown.items() if _fits_a_line(value)}
    width = max(map(len, short), default=0)
    for name, value in short.items():
        put(_short(value), f"{name.ljust(width)}  ")
    lists = shown.keys() - short.keys()
    for name in (one for one in shown if one in lists):
        if len(shown) > 1:
            say(f"\n{name}")
        for line in _lines(shown[name], 0):
            put(line)


def _for_person(document: Mapping[str, Any]) -> dict[str, Any]:
    shown = {}
    for name, value in ((str(name), value) for name, value in document.items()):
        if value in (None, "", [], {}) or value is False:
            continue
        if isinstance(value, int | float) and not isinstance(value, bool):
            with suppress(ValueError, OverflowError, OSError):  # a number that is not a time is shown as it is
                if name == "at" or name.endswith("_at"):
                    value = when(value, time.time())
                elif name.endswith("_seconds"):
                    value = duration(value)
        elif isinstance(value, list):
            value = [_for_person(one) if isinstance(one, Mapping) else one for one in value]
        shown[name.removesuffix("_at").removesuffix("_seconds").replace("_", " ")] = "yes" if value is True else value
    return shown


def data_lines(data: Any) -> Iterator[str]:
    yield from _listing(data) or _lines(data, 0)


def _lines(data: Any, depth: int) -> Iterator[str]:
    if isinstance(data, str):
        yield from data.splitlines() or ['""']
    elif depth >= _DEEPEST or not data:
        yield _short(data)
    elif isinstance(data, Mapping):
        yield from _fields(data, depth)
    elif isinstance(data, list | tuple):
        yield from _items(data, depth)
    else:
        yield _short(data)


def _fields(data: Mapping[str, Any], depth: int) -> Iterator[str]:
    """Short fields first, then each long one below its name."""
    long = {name: value for name, value in data.items() if not _fits_a_line(value)}
    width = max((len(str(name)) for name in data if name not in long), default=0)
    yield from (f"{str(name).ljust(width)}  {_short(value)}" for name, value in data.items() if name not in long)
    for name, value in long.items():
        yield f"{name}:"
        yield from (f"  {line}" for line in _lines(value, depth + 1))


def _items(data: Sequence[Any], depth: int) -> Iterator[str]:
    """A list of objects with short fields is a table, if it is not too wide."""
    if all(isinstance(one, Mapping) and all(map(_fits_a_line, one.values())) for one in data):
        names = dict.fromkeys(str(name) for one in data for name in one)
        rows = [[*names], *([_short(one[name]) if name in one else "" for name in names] for one in data)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        if len(names) > 1 and sum(widths) + 2 * len(widths) <= columns():
            yield from ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
            return
    for one in data:
        yield from (f"{'  ' if number else '- '}{line}" for number, line in enumerate(_lines(one, depth + 1)))


def _is_cell(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float) or (isinstance(value, str) and "\n" not in value)


def _fits_a_line(value: Any) -> bool:
    if isinstance(value, Mapping) or (isinstance(value, list | tuple) and not all(map(_is_cell, value))):
        return not value
    return len(text := _short(value)) <= LINE_CHARACTERS and "\n" not in text


def _short(value: Any) -> str:
    """One line: text unchanged, short lists separated by commas."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list | tuple) and value and all(map(_is_cell, value)):
        return ", ".join(map(_short, value))
    return json_text(value) if _is_cell(value) or not value else one_line(json_text(value), LINE_CHARACTERS)


def _listing(data: Any) -> list[str]:
    """Text and program output as they are, and matches like grep; empty for other data."""
    if not isinstance(data, Mapping):
        return []
    if isinstance(output := data.get("stdout"), str) and isinstance(wrong := data.get("stderr"), str):
        return [*output.splitlines(), *(["stderr:", *wrong.splitlines()] if wrong.strip() else [])]
    matches = data.get("matches")
    if (
        isinstance(matches, list)
        and matches
        and all(isinstance(one, Mapping) and {"path", "line", "text"} <= one.keys() for one in matches)
    ):
        return [one_line(f"{one['path']}:{one['line']}: {one['text']}", 240) for one in matches]
    text = data.get("content", data.get("text"))
    has_source = "path" in data or "url" in data
    is_text = isinstance(text, str) and text.strip() and data.get("encoding", "text") not in ("base64", "binary")
    return str(text).splitlines() if has_source and is_text else []


# ---- the documents of `--json`; times are wall clock seconds


def record_document(record: "Record") -> dict[str, Any]:
    from remit.core.events import STEPS

    names = ("session_id", "root_id", "parent_id", "agent", "command", "depth", "caller", "key", "created_at", "started_at", "settled_at")
    return _fields_of(record, *names, "attempt", "tokens", "cost", "owner", "cached_from", "limits_reason") | {
        "status": str(record.state),
        "path": list(record.path),
        "came": record.caller_info.to_dict() if record.caller_info else None,
        "priority": record.priority.name.lower(),
        "parameters": dict(record.parameters),
        "accept": list(record.accept),
        "budget": record.limits.to_dict() if record.limits else None,
        "task": record.task.to_dict() if record.task else None,
        "timeout": record.timeout_seconds,
        "deadline": record.deadline_at,
        "idle": record.idle_seconds,
        "steps": {step: at for step, at in zip(STEPS, record.step_times, strict=True) if at is not None},
        "return": record.result.to_dict() if record.result else None,
    }


def _fields_of(value: object, *names: str) -> dict[str, Any]:
    """Fields as JSON values: enumerations as text, tuples as lists."""
    found = {name: getattr(value, name) for name in names}
    return {name: list(one) if isinstance(one, tuple) else str(one) if isinstance(one, StrEnum) else one for name, one in found.items()}


def event_document(event: "Event") -> dict[str, Any]:
    return {"session_id": event.session_id, "number": event.number, "at": event.at, "kind": str(event.kind), "body": event.body}


def definition_document(definition: "Definition | None") -> dict[str, Any]:
    """The declaration of an agent that is not a Python function; only the names of its environment variables."""
    if definition is None:
        return {}
    names = ("command", "prompt", "folder", "pass_environment", "model", "models", "tools", "requests", "temperature", "allow")
    return _fields_of(definition, *names, "delegates", "hand_in", "options", "contain", "hosts", "runs_on") | {
        "environment": sorted(definition.environment)
    }


def agent_document(spec: "AgentSpec", timeout_seconds: float, maximum_seconds: float) -> dict[str, Any]:
    from remit.core.agents import is_built_in

    names = ("name", "description", "kind", "isolation", "answers", "workspace", "merge", "resumable", "requires_artifacts", "retries")
    return _fields_of(spec, *names, "slots", "languages", "requires", "output_schema", "source") | {
        "timeout": timeout_seconds,
        "maximum": maximum_seconds,
        "idle": spec.idle_seconds,
        "built_in": is_built_in(spec),
        "parameters": spec.parameters_schema,
    }
