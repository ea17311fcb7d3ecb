"""`remit ask` and `remit chat`: talk with the assistant. Its answer streams to stdout, its delegations are shown on stderr."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

from typer import Argument, Option

from remit.app import Remit
from remit.builtin.assistant.conversations import Conversations
from remit.builtin.assistant.stream import PAUSE, message_parameters
from remit.cli import arguments
from remit.cli.arguments import Timeout
from remit.cli.events import Show, SpendingTotal, Watch, spent_by
from remit.cli.exits import Exit, exit_of_return
from remit.cli.live import INTERRUPTS, Lines, await_result, report_dead_work
from remit.cli.project import Project
from remit.cli.render import (
    MARKS,
    advice_lines,
    console,
    count,
    duration,
    error_console,
    harmless,
    one_line,
    put,
    report,
    say,
    say_aside,
    short,
)  # fmt: skip
from remit.cli.results import print_return
from remit.cli.tree import LiveTree
from remit.core.agents import ASSISTANT
from remit.core.context import Handle
from remit.core.errors import Misused, RemitError, Unavailable
from remit.core.events import Event, EventKind
from remit.core.record import Record
from remit.core.result import Return
from remit.core.states import State
from remit.core.text import list_some
from remit.system.liveness import below
from remit.system.packages import need

Model = Annotated[str | None, Option("--model", metavar="MODEL", help="Use this model: provider:name, or NAME of \\[models.NAME].")]
OneConversation = Annotated[
    str | None, Option("--conversation", metavar="ID", help="Continue this one: its id, or the beginning or end of it.")
]
Latest = Annotated[bool, Option("--continue", help="Continue the latest conversation.")]


# ---- what is shown while it answers

VOID = "The text above is discarded: another model starts again."


class Plain(Show):
    """For programs and terminals without colours: text goes to stdout as it arrives, everything else to `aside`."""

    def __init__(self, aside: Show, write: Callable[[str], None]) -> None:
        self._aside = aside
        self._write = write
        self._last = ""

    def __enter__(self) -> Self:
        self._aside.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._aside.__exit__(*raised)
        if self._last and not self._last.endswith("\n"):
            self._write("\n")

    def hear(self, text: str) -> None:
        shown = harmless(text if self._last else text.lstrip("\n"))
        self._write(shown)
        self._last = shown or self._last

    def void(self) -> None:
        """Discard the text since the last delegation: another model starts again. It has been printed already, so print a notice."""
        self.hear(f"\n\n[{VOID}]\n\n")

    def show(self, records: list[Record], watch: Watch, events: list[Event]) -> None:
        # The text of the root delegation is the answer itself.
        asked = records[0].session_id if records else ""
        told = [event for event in events if event.session_id != asked or event.kind not in (EventKind.DATA, EventKind.SPENT)]
        self._aside.show(records, watch, told)


def to_stdout(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def ask(
    project: Project,
    message: Annotated[list[str] | None, Argument(metavar="MESSAGE", help="Your request; `-` reads it from stdin.")] = None,
    model: Model = None,
    conversation: OneConversation = None,
    latest: Latest = False,
    timeout: Timeout = None,
) -> Exit:
    """Ask the assistant: a language model that acts by delegating to the agents of the project."""
    words = _message(message)
    seconds = arguments.seconds(timeout, "--timeout")
    chosen = picked(project, conversation, latest=latest)
    settings: dict[str, Any] = {} if model is None else {"model": model}
    if seconds is not None:
        settings["assistant"] = {"message_seconds": seconds}
    return asyncio.run(_ask(project, words, chosen, settings, seconds))


def _message(given: list[str] | None) -> str:
    """The text of the message; `-` reads it from stdin."""
    words = given or []
    message = " ".join(f"\n\n{sys.stdin.read().strip()}\n\n" if word == "-" else word for word in words).strip()
    if not message:
        advice = 'remit ask "What is in README.md?", or `-` to read stdin; `remit chat` to talk.'
        raise Misused("There is no message.", advice=advice)
    return message


async def _ask(project: Project, message: str, conversation: str | None, settings: dict[str, Any], timeout: float | None) -> Exit:
    options: dict[str, Any] = {"approver": None} if project.as_json else {}
    async with project.open(settings=settings, **options) as remit:
        await report_dead_work(remit)
        if project.as_json:
            output = Plain(Show(), lambda _: None)
        else:  # text on stdout; delegations on stderr, as a live tree if stdout is not that terminal
            output = Plain(LiveTree() if error_console().is_terminal and not console().is_terminal else Lines(), to_stdout)
        answer = await answer_to(remit, message, output, conversation=conversation, timeout=timeout)
        code = Exit.INTERRUPTED if answer.was_interrupted else exit_of_return(answer.result)
        return project.answer(answer.to_dict, lambda: _conclude(remit, answer), code)


def _conclude(remit: Remit, answer: "Answer") -> None:
    """Print how it ended if it failed, and how to continue. The answer has already been shown."""
    if not answer.result.ok:
        go_on = f"The conversation is kept: remit ask --conversation {answer.conversation} …" if answer.conversation else ""
        with contextlib.redirect_stdout(sys.stderr):
            print_ending(answer, remit.root, go_on)
    elif error_console().is_terminal:
        say_aside(closing_line(remit, answer))


HANGING_UP = (*INTERRUPTS, signal.SIGHUP)
"""Closing the terminal also stops the tree, and is recorded; `nohup` prevents that."""
NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    result: Return
    text: str
    """Text of the answer."""
    records: Sequence[Record]
    """The tree; the first record is the message itself."""
    spent: SpendingTotal
    conversation: str
    """Its id; empty if the message was refused."""
    was_interrupted: bool

    @property
    def delegations(self) -> list[Record]:
        return list(self.records[1:])

    def to_dict(self) -> dict[str, Any]:
        return {
            "status": str(self.result.status),
            "stop_reason": str(self.result.stop_reason),
            "text": self.text,
            "conversation": self.conversation or None,
            "session_id": self.result.session_id,
            "duration_seconds": self.result.metadata.duration_seconds,
            "tokens": self.spent.tokens,
            "cost": None if self.spent.has_unknown else self.spent.cost,
            "delegations": [_brief(record) for record in self.delegations],
            "errors": [error.to_dict() for error in self.result.errors],
            "next_steps": self.result.next_steps,
            "warnings": list(self.result.warnings),
        }


def _brief(record: Record) -> dict[str, Any]:
    result = record.result
    return {name: getattr(record, name) for name in ("session_id", "parent_id", "agent", "tokens")} | {
        "status": str(record.state),
        "summary": "" if result is None else result.summary,
        "duration_seconds": None if result is None else result.metadata.duration_seconds,
    }


def print_ending(answer: Answer, root: Path, how_to_go_on: str) -> None:
    """Print how it ended if it failed: stopped delegations, errors, advice. Does not repeat the answer."""
    if answer.was_interrupted:
        stopped = [f"{one.agent} {short(one.session_id)}" for one in answer.delegations if one.state is State.CANCELLED]
        words = f"after {duration(answer.result.metadata.duration_seconds)}" + (f", with {list_some(stopped, NAMED)}" if stopped else "")
        put(words, f"{MARKS[State.CANCELLED][0]} stopped ")
    else:
        print_return(replace(answer.result, data=None, artifacts=()), root)
    if how_to_go_on:
        put(how_to_go_on, style="dim")


async def answer_to(remit: Remit, message: str, output: Plain, *, conversation: str | None = None, timeout: float | None = None) -> Answer:
    """Ask, show progress, and wait. A signal stops the whole tree; the answer is the text until then."""
    remit.directory.specs()  # loaded before the timeout of the message starts
    handle = await remit.start(ASSISTANT, parameters=message_parameters(message, conversation), timeout=timeout)
    words = _Words(output)
    signals = [one for one in HANGING_UP if signal.getsignal(one) is not signal.SIG_IGN]
    result, was_interrupted = await await_result(remit, lambda: [handle.session_id], words.heard(handle), output, signals=signals)
    records = below(await remit.tree(handle.session_id), handle.session_id)
    return Answer(
        result=result,
        text="".join(words.said).strip("\n"),
        records=records,
        spent=spent_by(records, remit.settings),
        conversation=conversation or words.conversation,
        was_interrupted=was_interrupted,
    )


class _Words:
    """The text of an answer, passed to the output as it arrives."""

    def __init__(self, output: Plain) -> None:
        self._output = output
        self._replied = 0
        """Number of chunks that belong to complete replies."""
        self.said: list[str] = []
        self.conversation = ""

    async def heard(self, handle: Handle) -> Return:
        async for event in handle.stream():
            if event.kind is EventKind.DATA:
                self._hear(event.body.get("chunk"))
        return await handle.result()

    def _hear(self, chunk: Any) -> None:
        match chunk:
            case {"restart": True}:
                del self.said[self._replied :]
                self._output.void()
            case {"conversation": str(conversation)}:
                self.conversation = conversation
            case {"text": str(text)}:
                self.said.append(text)
                self._replied = len(self.said) if text == PAUSE else self._replied
                self._output.hear(text)


def picked(project: Project, named: str | None, *, latest: bool) -> str | None:
    """The id of the selected conversation; None for a new one. Raises `Misused` if it does not exist."""
    if named is not None and latest:
        raise Misused("--conversation and --continue exclude one another.", advice="Name one conversation, or none for a new one.")
    if named is None and not latest:
        return None
    return Conversations(project.root).open(named or "latest").conversation_id


def model_name(remit: Remit) -> str:
    return one_line(" or ".join(remit.settings.model), 60) or "no model"


def closing_line(remit: Remit, answer: Answer) -> str:
    """The line below a complete answer."""
    parts = [model_name(remit), duration(answer.result.metadata.duration_seconds), answer.spent.words()]
    parts += [count(len(answer.delegations), "delegation")] if answer.delegations else []
    return " · ".join(filter(None, [*parts, answer.conversation]))


# ---- chat


def chat(project: Project, model: Model = None, conversation: OneConversation = None, latest: Latest = False) -> Exit:
    """Talk with the assistant: it streams its words and shows its delegations. `/new` starts a new conversation, Ctrl-D exits."""
    if project.as_json or sys.stdin is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Misused("`remit chat` needs a terminal.", advice='In a script: remit ask --continue "…"')
    return asyncio.run(_chat(project, picked(project, conversation, latest=latest), model))


async def _chat(project: Project, conversation: str | None, model: str | None) -> Exit:
    need("prompt_toolkit", "models")
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()
    keys.add("escape", "enter")(lambda event: event.current_buffer.newline())
    editor: PromptSession[str] = PromptSession("› ", key_bindings=keys)
    async with project.open(settings={} if model is None else {"model": model}) as remit:
        await report_dead_work(remit)
        say(f"remit chat · {model_name(remit)} · Ctrl-C stops what runs, /new starts a new conversation, Ctrl-D exits")
        try:
            remit.models.choice()
        except Unavailable as error:
            say("\n".join((error.message, *advice_lines(error.advice))))
        while True:
            try:
                message = (await editor.prompt_async()).strip()
            except KeyboardInterrupt:  # clears the line
                continue
            except (EOFError, OSError):  # Ctrl-D, or the terminal was closed
                return Exit.OK
            if message == "/new":
                conversation = None
            elif message:
                conversation = await _reply(remit, message, conversation)


async def _reply(remit: Remit, message: str, conversation: str | None) -> str | None:
    """Print the answer to a message and return the id of the conversation."""
    try:
        answer = await answer_to(remit, message, Plain(Lines(), to_stdout), conversation=conversation)
    except RemitError as error:
        report(error, as_json=False)
        return conversation
    if answer.result.ok:
        say(closing_line(remit, answer))
    else:
        print_ending(answer, remit.root, "The conversation is kept: your next message continues it." if answer.was_interrupted else "")
    return answer.conversation or conversation


# ---- conversations


def conversations(project: Project, limit: Annotated[int, Option(min=1, help="At most this many.")] = 50) -> Exit:
    """List the conversations with the assistant, newest first. Their files are in .remit/conversations."""
    found = [{"id": one.conversation_id, **asdict(one)} for one in Conversations(project.root).list(limit)]
    empty = 'There is no conversation yet. Start one: remit ask "…", or remit chat.'
    return project.answer({"conversations": found}, None if found else empty)
