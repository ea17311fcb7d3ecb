"""`remit conversations`: list and show conversations with the assistant."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

from rich.text import Text
from typer import Argument, Option

from remit.builtin.assistant.conversations import Conversations, Overview
from remit.builtin.assistant.export import export_text
from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.render import console, count, cut, harmless, table, when

One = Annotated[str, Argument(metavar="ID", help="Its id, the beginning or end of it, or `latest`.")]


def conversations(project: Project, limit: Annotated[int, Option(min=1, help="At most this many.")] = 50) -> Exit:
    """List the conversations with the assistant, newest first; `show` takes an ID."""
    found = Conversations(project.root).list(limit)
    text = (lambda: _print(found)) if found else 'There is no conversation yet. Start one: remit ask "…", or remit chat.'
    return project.answer({"conversations": [{"id": one.conversation_id, **asdict(one)} for one in found]}, text)


def show(project: Project, conversation: One) -> Exit:
    """Print a conversation as Markdown."""
    found = Conversations(project.root).open(conversation)
    text = export_text(found)
    document = {"id": found.conversation_id, "title": found.title, "created": found.header.created, "text": text}
    return project.answer(document, lambda: print(harmless(text), end=""))


def _print(found: "Sequence[Overview]") -> None:
    """Print conversations, newest first; an unreadable one with its fault."""
    shown = table("conversation", "title", "messages", "last", shrinking=("title",))
    now = time.time()
    for one in found:
        title = cut(one.fault, "red") if one.fault else cut(one.title)
        cells = (str(one.messages), when(one.updated, now))
        shown.add_row(one.conversation_id, title, *cells)
    console().print(shown)
    if console().is_terminal:
        console().print(Text(f"{count(len(found), 'conversation')}; remit chat --conversation ID continues one", style="dim"))
