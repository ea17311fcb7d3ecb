"""The slash commands of a chat: `/help`, `/resume ID` and the like. Only `/retry` and `/compact` ask a model."""

import asyncio
import io
import pydoc
import re
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from remit.cli.conversations import print_list
from remit.cli.events import SpendMeter, Spent, is_priced
from remit.cli.project import find_session
from remit.cli.render import console, count, harmless, json_text, one_line, say, short
from remit.cli.results import print_return
from remit.cli.tree import View, draw, forest
from remit.core.agents import ASSISTANT, rank
from remit.core.errors import Misused
from remit.core.record import Record

if TYPE_CHECKING:
    from remit.app import Remit
    from remit.builtin.assistant.conversations import Conversation
    from remit.cli.chat import Session, Talk


_COMMAND = re.compile(r"/([a-z]+|\?)(?:\s+(.*))?", re.DOTALL)
OFFERED = 20


@dataclass(frozen=True, slots=True)
class Command:
    takes: str
    meaning: str
    act: "Callable[[Session, str], Awaitable[None]]"
    is_needed: bool = False
    """Its argument is required."""


def command_in(message: str) -> tuple[str, str] | None:
    """The name and its argument; None for a message, which may begin with a path."""
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
    from remit.system.settings_files import load_settings

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
    answer = session.talk.answer
    if answer is None:
        raise Misused("Nothing has been asked yet.", advice="/tree shows the delegations of the last message.")
    records = await session.remit.tree(answer.result.session_id)
    for root in forest(records):
        console().print(draw(root, View(now=time.time())))


async def _show(session: "Session", rest: str) -> None:
    record = await asyncio.to_thread(find_session, session.remit.store, rest)
    await page(paged_result(record, session.remit.root), is_terminal=session.is_terminal)


async def _cost(session: "Session", rest: str) -> None:
    talk = session.talk
    say(f"This conversation: {talk.spent.words() or 'nothing yet'}")
    if talk.answer is not None:
        say(f"The last message:  {talk.answer.spent.words() or 'nothing'}")
        for record in talk.answer.records:
            if record.tokens:
                say(f"  {record.agent} {short(record.session_id)}  {count(record.tokens, 'token')}")


async def _compact(session: "Session", rest: str) -> None:
    conversation = session.kept.open(_current(session))
    work = asyncio.ensure_future(compact_now(session.remit, conversation))
    with session.interrupts.heard_by(work.cancel):
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
        raise Misused("There is no conversation yet.", advice="It begins with your first message; /resume continues an old one.")
    return session.talk.conversation


COMMANDS: dict[str, Command] = {
    "help": Command("", "these commands", _help),
    "new": Command("", "begin a new conversation", _new),
    "list": Command("", "the latest conversations", _list),
    "resume": Command("[ID]", "continue another conversation; without an id the latest", _resume),
    "rename": Command("TITLE", "give this conversation another title", _rename, is_needed=True),
    "model": Command("[NAME]", "use another model in this chat; without a name: show it", _model),
    "agents": Command("", "agents the assistant can delegate to", _agents),
    "tree": Command("", "delegations of the last message", _tree),
    "show": Command("ID", "the whole result of a delegation", _show, is_needed=True),
    "cost": Command("", "tokens and money", _cost),
    "compact": Command("", "summarise old messages, so that the model has less to read", _compact),
    "export": Command("FILE", "write this conversation to a new file, .md or .json", _export, is_needed=True),
    "retry": Command("", "ask the last message once more", _retry),
    "quit": Command("", "leave; the conversation is kept", _quit),
}
ALIASES = {"exit": "quit", "q": "quit", "h": "help", "?": "help", "conversations": "list", "continue": "resume"}


# ---- completion


def offers(talk: "Talk", before: str) -> Iterator[tuple[str, str, str]]:
    """Completions of the word before the cursor: the word, how it is shown, its meaning."""
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


SECONDS = 60.0


async def compact_now(remit: "Remit", conversation: "Conversation") -> tuple[str, Spent]:
    """A message for the user, and the cost. Raises `Unavailable` without a model, `Refused` while it is being answered."""
    from remit.builtin.assistant.conversations import CostLine, SummaryLine
    from remit.builtin.assistant.memory import room_for, summarised

    remit.models.choice()  # raises
    settings = remit.settings.assistant
    room = room_for(settings.compact_tokens, None, 0, settings.result_characters)
    with conversation.writing():
        before = conversation.compacted
        first, last = 0 if before is None else before.count, _last_said(conversation)
        if last <= first:
            return "There is nothing to summarise: the last exchange is kept as it is.", Spent()
        used = SpendMeter(SECONDS)
        old = conversation.messages[first:last]
        summary = await summarised(remit.models, used, old, "" if before is None else before.summary, room, SECONDS)
        conversation.append(SummaryLine(at=time.time(), count=last, summary=summary.text, by=summary.by))
        is_unknown = bool(used.tokens) and not used.cost and not is_priced(remit.settings)
        spent = Spent(tokens=used.tokens, cost=used.cost, has_unknown=is_unknown)
        if used.tokens:
            conversation.append(CostLine(at=time.time(), tokens=spent.tokens, cost=None if spent.has_unknown else spent.cost))
    how = "by their first lines, as no model answered" if summary.by == "excerpt" else f"by {summary.by}"
    return f"{count(len(old), 'message')} summarised {how}. The file keeps them.", spent


def _last_said(conversation: "Conversation") -> int:
    """Index of the last message of the user."""
    from remit.core.model_messages import UserMessage

    said: list[Any] = [place for place, one in enumerate(conversation.spoken) if isinstance(one.message, UserMessage) and not one.by]
    return said[-1] if said else 0


def agents_of(remit: "Remit") -> Iterator[Text]:
    """By target: its description, or its operations."""
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


def paged_result(record: "Record", root: Path) -> str:
    """The whole result: the return as it is printed, then all of its data. Texts with several lines stay texts."""
    result = record.result
    if result is None:
        return f"{record.agent}  {record.session_id}  {record.state}\nIt has not ended yet.\n"
    written = io.StringIO()
    print_return(replace(result, data=None), root, written)
    data = result.data
    texts = {name: value for name, value in data.items() if isinstance(value, str) and "\n" in value} if isinstance(data, Mapping) else {}
    rest = {name: value for name, value in data.items() if name not in texts} if isinstance(data, Mapping) else data
    parts = [f"given  {json_text(dict(record.parameters))}", written.getvalue().rstrip()]
    parts += [] if rest is None or rest == result.summary else [rest if isinstance(rest, str) else json_text(rest, indent=2)]
    return harmless("\n\n".join([*parts, *(f"{name}:\n{value}" for name, value in texts.items())]) + "\n")


async def page(text: str, *, is_terminal: bool) -> None:
    """With the pager ($PAGER) if it does not fit on the terminal."""
    if not is_terminal or text.count("\n") < shutil.get_terminal_size().lines - 2:
        print(text, end="", flush=True)
    else:
        await asyncio.to_thread(pydoc.pager, text)


def write_conversation(conversation: "Conversation", file: str) -> Path:
    """To a new file: as JSON where its name says so, else as Markdown."""
    from remit.builtin.assistant.export import export_text

    path = Path(file).expanduser()
    text = export_text(conversation, "json" if path.suffix == ".json" else "markdown")
    with path.open("x", encoding="utf-8") as opened:
        opened.write(text)
    return path
