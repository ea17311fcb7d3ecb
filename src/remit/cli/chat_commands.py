"""What can be told to a chat besides messages: `/help`, `/resume ID` and the like. A table of names; each is a short function.

Used by `chat_session`, which hands itself over. Nothing here is asked of a model but `/retry` and `/compact`.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from rich.text import Text

from remit.cli.chat_showing import agents_of, page, paged_result, write_conversation
from remit.cli.output import console, say
from remit.cli.words import count, one_line, short
from remit.core.errors import Misused

if TYPE_CHECKING:
    from remit.cli.chat_session import Session, Talk

_COMMAND = re.compile(r"/([a-z]+|\?)(?:\s+(.*))?", re.DOTALL)
OFFERED = 20


@dataclass(frozen=True, slots=True)
class Command:
    takes: str
    meaning: str
    act: "Callable[[Session, str], Awaitable[None]]"
    is_needed: bool = False
    """It cannot do without what it takes."""


def command_in(message: str) -> tuple[str, str] | None:
    """The name and what stands behind it; None for a message, which may begin with a path."""
    found = _COMMAND.fullmatch(message)
    return (found[1], (found[2] or "").strip()) if found else None


async def carry_out(session: "Session", name: str, rest: str) -> None:
    command = COMMANDS.get(ALIASES.get(name, name))
    if command is None:
        close = get_close_matches(name, COMMANDS, n=1)
        raise Misused(f"There is no /{name}.", advice=f"Did you mean /{close[0]}?" if close else "/help lists them; // sends a slash.")
    if command.is_needed and not rest:
        raise Misused(f"/{name} takes {command.takes}.", advice=command.meaning)
    await command.act(session, rest)


async def _help(session: "Session", rest: str) -> None:
    width = max(len(f"/{name} {command.takes}") for name, command in COMMANDS.items())
    for name, command in COMMANDS.items():
        line = Text("  ").append(f"/{name} {command.takes}".ljust(width), style="cyan")
        console().print(line.append(f"  {command.meaning}"), soft_wrap=not session.is_terminal)
    say(
        "\n  Enter sends, Alt-Enter or a backslash at the end begins a new line. Ctrl-C stops what runs, or clears the line; Ctrl-D leaves."
    )


async def _new(session: "Session", rest: str) -> None:
    session.begin(None)
    say("A new conversation begins with your next message.")


async def _list(session: "Session", rest: str) -> None:
    from remit.cli.conversations import print_list

    print_list(session.kept.list(limit=OFFERED), current=session.talk.conversation)


async def _resume(session: "Session", rest: str) -> None:
    session.begin(session.kept.open(rest or "latest"))
    if not session.is_terminal:
        say(f"{session.talk.conversation}  {session.talk.title}")


async def _rename(session: "Session", rest: str) -> None:
    conversation = session.kept.rename(_current(session), rest)
    session.talk.title = conversation.title
    say(f"{conversation.conversation_id}  {conversation.title}")


async def _model(session: "Session", rest: str) -> None:
    from remit.models.client import Models
    from remit.settings import load_settings

    if not rest:
        say(", ".join(session.remit.settings.model) or "No model is configured. /model NAME takes one for this chat.")
        for name in session.remit.settings.models:
            say(f"  {one_line(name)}")
        return
    Models(load_settings(session.remit.root, {"model": rest})).choice()  # raises where it cannot be asked
    session.talk.model = rest
    session.is_left = True
    say(f"From now on {rest}.")


async def _agents(session: "Session", rest: str) -> None:
    for line in agents_of(session.remit):
        console().print(line, soft_wrap=not session.is_terminal)


async def _tree(session: "Session", rest: str) -> None:
    from remit.cli.tree import View, draw, forest

    answer = session.talk.answer
    if answer is None:
        raise Misused("Nothing has been asked yet.", advice="/tree shows what the last message handed on.")
    records = await session.remit.tree(answer.result.session_id)
    for root in forest(records):
        console().print(draw(root, View(now=time.time())))


async def _show(session: "Session", rest: str) -> None:
    from remit.cli.project import find_session

    record = await asyncio.to_thread(find_session, session.remit.store, rest)
    await page(paged_result(record), is_terminal=session.is_terminal)


async def _cost(session: "Session", rest: str) -> None:
    talk = session.talk
    say(f"This conversation: {talk.spent.words() or 'nothing yet'}")
    if talk.answer is not None:
        say(f"The last message:  {talk.answer.spent.words() or 'nothing'}")
        for record in talk.answer.records:
            if record.tokens:
                say(f"  {record.agent} {short(record.session_id)}  {count(record.tokens, 'token')}")


async def _compact(session: "Session", rest: str) -> None:
    from remit.cli.chat_compacting import compact_now

    conversation = session.kept.open(_current(session))
    work = asyncio.ensure_future(compact_now(session.remit, conversation))
    with session.ear.heard_by(work.cancel):
        try:
            words, spent = await work
        except asyncio.CancelledError:
            if not work.cancelled():
                raise
            say("Stopped: nothing was changed.")
            return
    session.talk.spent += spent
    say(words)


async def _export(session: "Session", rest: str) -> None:
    path = write_conversation(session.kept.open(_current(session)), rest)
    say(f"Written to {path}.")


async def _retry(session: "Session", rest: str) -> None:
    if not session.talk.message:
        raise Misused("Nothing has been asked yet.", advice="/retry asks the last message once more.")
    await session.ask(session.talk.message)


async def _quit(session: "Session", rest: str) -> None:
    session.talk.is_over = True


def _current(session: "Session") -> str:
    if session.talk.conversation is None:
        raise Misused("There is no conversation yet.", advice="It begins with your first message; /resume takes up an old one.")
    return session.talk.conversation


COMMANDS: dict[str, Command] = {
    "help": Command("", "these commands", _help),
    "new": Command("", "begin a new conversation", _new),
    "list": Command("", "the latest conversations", _list),
    "resume": Command("[ID]", "go on with another conversation; without an id the latest", _resume),
    "rename": Command("TITLE", "give this conversation another title", _rename, is_needed=True),
    "model": Command("[NAME]", "ask another model in this chat; without a name: which it is", _model),
    "agents": Command("", "whom the assistant can hand work to", _agents),
    "tree": Command("", "what the last message handed on, and what came of it", _tree),
    "show": Command("ID", "the whole result of a delegation", _show, is_needed=True),
    "cost": Command("", "tokens and money", _cost),
    "compact": Command("", "summarise what is old, so that the model has less to read", _compact),
    "export": Command("FILE", "write this conversation to a new file, .md or .json", _export, is_needed=True),
    "retry": Command("", "ask the last message once more", _retry),
    "quit": Command("", "leave; the conversation is kept", _quit),
}
ALIASES = {"exit": "quit", "q": "quit", "h": "help", "?": "help", "conversations": "list", "continue": "resume"}


# ---- what is offered at Tab


def offers(talk: "Talk", before: str) -> Iterator[tuple[str, str, str]]:
    """For the word before the cursor: what it could be in full, how that is shown, what it means."""
    name, space, begun = before.partition(" ")
    if not space:
        for known, command in COMMANDS.items():
            if f"/{known}".startswith(name) and name.startswith("/"):
                yield f"/{known}", f"/{known} {command.takes}".rstrip(), command.meaning
    elif talk.session is not None and " " not in begun:
        for word, meaning in _values(talk.session, name, begun):
            yield word, word, meaning


def _values(session: "Session", name: str, begun: str) -> Iterator[tuple[str, str]]:
    if name == "/resume":
        known = [(one.conversation_id, one.title) for one in session.kept.list(limit=OFFERED)]
    elif name == "/model":
        known = [(one, "") for one in dict.fromkeys((*session.remit.settings.models, *session.remit.settings.model))]
    elif name == "/show" and session.talk.answer is not None:
        known = [(short(one.session_id), one.agent) for one in session.talk.answer.delegations[-OFFERED:]]
    else:
        known = []
    yield from ((word, meaning) for word, meaning in known if word.startswith(begun))
