"""`remit conversations`: those that were held with the assistant: listed, read, export_text, renamed, deleted. Asks no model."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.arguments import Json, Root
from remit.cli.chat_screen import harmless, print_markdown
from remit.cli.exits import Exit
from remit.cli.project import find_root
from remit.cli.render import console, count, cut, json_text, moment, one_line, say, say_json, table, when
from remit.core.errors import Misused

if TYPE_CHECKING:
    from remit.builtin.assistant.conversations import Conversation, Conversations, Overview


DEEDS = {"list": (0, 0), "show": (1, 1), "export": (1, 1), "rename": (2, None), "delete": (1, None)}
"""What can be done, and how many words it takes: at least, at most."""


def conversations(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[list|show ID|export ID|rename ID TITLE|delete ID...]",
            help="An ID is a conversation's, the beginning or end of one, or `latest`.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Of `list`: how many.")] = 50,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """List the conversations with the assistant; show, export, rename or delete one."""
    from remit.builtin.assistant.conversations import Conversations

    deed, *rest = words or ["list"]
    _check(deed, rest)
    kept = Conversations(find_root(root))
    match deed:
        case "list":
            return _list(kept, limit, as_json=as_json)
        case "show" | "export":
            return _show(kept.open(rest[0]), deed, as_json=as_json)
        case "rename":
            renamed = kept.rename(rest[0], " ".join(rest[1:]))
            return _done(
                {"id": renamed.conversation_id, "title": renamed.title}, f"{renamed.conversation_id}  {renamed.title}", as_json=as_json
            )
    found = list(dict.fromkeys(kept.find(one) for one in rest))  # all of them are there, before the first is deleted
    for one in found:
        kept.delete(one)
    return _done({"deleted": found}, f"Deleted: {', '.join(found)}", as_json=as_json)


def _check(deed: str, rest: Sequence[str]) -> None:
    if deed not in DEEDS:
        raise Misused(f"Conversations cannot {deed!r:.40}.", advice=f"Use {', '.join(DEEDS)}.")
    least, most = DEEDS[deed]
    if len(rest) < least or (most is not None and len(rest) > most):
        usage = {"list": "list", "rename": "rename ID TITLE", "delete": "delete ID..."}.get(deed, f"{deed} ID")
        raise Misused("That is not how it is called.", advice=f"remit conversations {usage}")


def _done(document: object, words: str, *, as_json: bool) -> Exit:
    say_json(document) if as_json else say(words)
    return Exit.OK


def _list(kept: "Conversations", limit: int, *, as_json: bool) -> Exit:
    found = kept.list(limit)
    if as_json:
        say_json({"conversations": [{"id": one.conversation_id, **asdict(one)} for one in found]})
    elif not found:
        say('There is no conversation yet. Begin one: remit ask "…", or remit chat.')
    else:
        print_list(found)
    return Exit.OK


def _show(conversation: "Conversation", deed: str, *, as_json: bool) -> Exit:
    from remit.builtin.assistant.export import export_document, export_text

    if as_json:
        say_json(export_document(conversation))
        return Exit.OK
    text = export_text(conversation)
    if deed == "export" or not console().is_terminal:
        print(text if deed == "export" and not console().is_terminal else harmless(text), end="")
        return Exit.OK
    _print(conversation)
    return Exit.OK


def print_list(found: "Sequence[Overview]", current: str | None = None) -> None:
    """Newest first; what cannot be read with its fault."""

    from rich.text import Text

    shown = table("", "conversation", "title", "messages", "tokens", "last", shrinking=("title",))
    now = time.time()
    for one in found:
        title = cut(one.fault, "red") if one.fault else cut(one.title)
        cells = (str(one.messages), f"{one.tokens:,}" if one.tokens else "", when(one.updated, now))
        shown.add_row(Text("›" if one.conversation_id == current else "", style="cyan"), one.conversation_id, title, *cells)
    console().print(shown)
    if console().is_terminal and current is None:
        console().print(Text(f"{count(len(found), 'conversation')}; remit chat --conversation ID goes on with one", style="dim"))


def _print(conversation: "Conversation") -> None:
    """As it was read when it was held: words in full, what was called on a line."""
    from rich.text import Text

    from remit.models.messages import Reply, UserMessage

    out = console()
    out.print(Text(conversation.title, style="bold").append(f"  {conversation.conversation_id}", style="dim"))
    for line in conversation.spoken:
        message = line.message
        if line.by:  # what the model was told on the way: not the person's words
            out.print(Text(f"  ({line.by}: {one_line(message.text, 160)})", style="dim", no_wrap=True, overflow="ellipsis"))
        elif isinstance(message, UserMessage):
            out.print(Text(f"\n› {harmless(message.text)}", style="bold cyan").append(f"  {moment(line.at)}", style="dim"))
        elif isinstance(message, Reply):
            if message.text.strip():
                print_markdown(harmless(message.text), out)
            for call in message.calls:
                given = call.arguments if isinstance(call.arguments, str) else json_text(dict(call.arguments))
                out.print(Text(f"  → {one_line(call.name)} {one_line(given, 160)}", style="dim", no_wrap=True, overflow="ellipsis"))
        else:
            style = "red" if message.is_error else "dim"
            out.print(Text(f"  ← {one_line(message.text, 160)}", style=style, no_wrap=True, overflow="ellipsis"))
    for notice in conversation.notices:
        out.print(Text(f"! {harmless(notice)}", style="yellow"))
