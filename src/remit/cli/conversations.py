"""`remit conversations`: list and show conversations with the assistant."""

from dataclasses import asdict
from typing import Annotated

from typer import Argument, Option

from remit.builtin.assistant.conversations import Conversations, export_text
from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.render import harmless

One = Annotated[str, Argument(metavar="ID", help="Its id, the beginning or end of it, or `latest`.")]


def conversations(project: Project, limit: Annotated[int, Option(min=1, help="At most this many.")] = 50) -> Exit:
    """List the conversations with the assistant, newest first; `show` takes an ID."""
    found = [{"id": one.conversation_id, **asdict(one)} for one in Conversations(project.root).list(limit)]
    empty = 'There is no conversation yet. Start one: remit ask "…", or remit chat.'
    return project.answer({"conversations": found}, None if found else empty)


def show(project: Project, conversation: One) -> Exit:
    """Print a conversation as Markdown."""
    found = Conversations(project.root).open(conversation)
    text = export_text(found)
    document = {"id": found.conversation_id, "title": found.title, "created": found.header.created, "text": text}
    return project.answer(document, lambda: print(harmless(text), end=""))
