"""`remit conversations`: list, show, export, rename and delete conversations with the assistant."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.render import console, count, cut, harmless, table, when

if TYPE_CHECKING:
    from remit.builtin.assistant.conversations import Conversations, Overview


One = Annotated[str, typer.Argument(metavar="ID", help="Its id, the beginning or end of it, or `latest`.", show_default=False)]


def _kept(project: Project) -> "Conversations":
    from remit.builtin.assistant.conversations import Conversations

    return Conversations(project.root)


def conversations(project: Project, limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 50) -> Exit:
    """List the conversations with the assistant, newest first; `show`, `rename` and `delete` take an ID."""
    found = _kept(project).list(limit)
    text = (lambda: print_list(found)) if found else 'There is no conversation yet. Start one: remit ask "…", or remit chat.'
    return project.answer({"conversations": [{"id": one.conversation_id, **asdict(one)} for one in found]}, text)


def show(project: Project, conversation: One) -> Exit:
    """Print a conversation as Markdown; with --json as a document."""
    from remit.builtin.assistant.export import export_document, export_text

    found = _kept(project).open(conversation)
    text = export_text(found)
    return project.answer(lambda: export_document(found), lambda: print(harmless(text), end=""))


def rename(
    project: Project, conversation: One, title: Annotated[list[str], typer.Argument(metavar="TITLE", help="The new title.")]
) -> Exit:
    """Give a conversation another title."""
    renamed = _kept(project).rename(conversation, " ".join(title))
    return project.answer({"id": renamed.conversation_id, "title": renamed.title}, f"{renamed.conversation_id}  {renamed.title}")


def delete(project: Project, conversations: Annotated[list[str], typer.Argument(metavar="ID", help="Their ids.")]) -> Exit:
    """Delete conversations; if one of them does not exist, none is deleted."""
    kept = _kept(project)
    found = list(dict.fromkeys(kept.find(one) for one in conversations))
    for one in found:
        kept.delete(one)
    return project.answer({"deleted": found}, f"Deleted: {', '.join(found)}")


def print_list(found: "Sequence[Overview]", current: str | None = None) -> None:
    """Print conversations, newest first; an unreadable one with its fault."""
    from rich.text import Text

    shown = table("", "conversation", "title", "messages", "tokens", "last", shrinking=("title",))
    now = time.time()
    for one in found:
        title = cut(one.fault, "red") if one.fault else cut(one.title)
        cells = (str(one.messages), f"{one.tokens:,}" if one.tokens else "", when(one.updated, now))
        shown.add_row(Text("›" if one.conversation_id == current else "", style="cyan"), one.conversation_id, title, *cells)
    console().print(shown)
    if console().is_terminal and current is None:
        console().print(Text(f"{count(len(found), 'conversation')}; remit chat --conversation ID continues one", style="dim"))
