"""Things a chat shows on demand: whom work can be handed to, and the whole result of a delegation, page by page."""

import asyncio
import pydoc
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from remit.cli.chat_text import harmless
from remit.cli.output import json_text
from remit.cli.words import duration, one_line

if TYPE_CHECKING:
    from remit.app import Remit
    from remit.assistant.conversations import Conversation
    from remit.core.record import Record

_TEXTS = ("content", "text", "stdout")
"""Fields that hold what somebody wants to read: shown as text, not as JSON."""


def agents_of(remit: "Remit") -> Iterator[Text]:
    """By target: what it is for, or its operations."""
    from remit.core.agents import ASSISTANT, rank

    targets: dict[str, list[str]] = {}
    meanings: dict[str, str] = {}
    for spec in sorted(remit.directory.specs(), key=rank):
        target, _, operation = spec.name.partition(".")
        if target != ASSISTANT:
            targets.setdefault(target, []).extend([operation] if operation else [])
            meanings.setdefault(target, "" if operation else spec.description)
    width = max(map(len, targets), default=0)
    for target, operations in targets.items():
        words = ", ".join(operations) if operations else one_line(meanings[target].split("\n")[0], 120)
        yield Text("  ").append(target.ljust(width), style="bold").append(f"  {words}", style="" if operations else "dim")


def paged_result(record: "Record") -> str:
    """All of it: how it ended, what it was given, what it handed back."""
    return harmless("\n".join(_lines(record)).rstrip() + "\n")


def _lines(record: "Record") -> Iterator[str]:
    yield f"{record.agent}  {record.session_id}  {record.state}"
    if record.parameters:
        yield f"given     {json_text(dict(record.parameters))}"
    result = record.result
    if result is None:
        yield "It has not ended yet."
        return
    yield f"took      {duration(result.metadata.duration_seconds)}"
    for artifact in result.artifacts:
        yield f"artifact  {artifact.path} ({artifact.type}, {artifact.evidence})"
    for error in result.errors:
        yield f"{error.code}  {error.message} {error.recommendation}"
    yield from (f"warning   {warning}" for warning in result.warnings)
    yield from ("", result.summary)
    if result.data is not None and result.data != result.summary:
        yield ""
        yield from _data(result.data)


def _data(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
        return
    texts = [name for name in _TEXTS if isinstance(data, Mapping) and isinstance(data.get(name), str) and "\n" in data[name]]
    yield json_text({name: value for name, value in data.items() if name not in texts} if texts else data, indent=2)
    for name in texts:
        yield from ("", f"{name}:", data[name])


async def page(text: str, *, is_terminal: bool) -> None:
    """On a terminal a screen at a time, by the pager that is there ($PAGER); elsewhere as it is."""
    if not is_terminal or text.count("\n") < shutil.get_terminal_size().lines - 2:
        print(text, end="", flush=True)
    else:
        await asyncio.to_thread(pydoc.pager, text)


def write_conversation(conversation: "Conversation", file: str) -> Path:
    """To a new file: as JSON where its name says so, else as Markdown."""
    from remit.assistant.exporting import exported

    path = Path(file).expanduser()
    text = exported(conversation, "json" if path.suffix == ".json" else "markdown")
    with path.open("x", encoding="utf-8") as opened:
        opened.write(text)
    return path
