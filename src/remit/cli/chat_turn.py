"""One message to the assistant and what came of it: the delegation is started, heard, shown, and stopped by Ctrl-C.

Used by `ask` and `chat`. What is shown where is a `Stage`'s business, the conversation is the assistant's.
"""

import asyncio
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from remit.app import Remit
from remit.assistant.asking import parameters_of
from remit.cli.answer import print_return
from remit.cli.chat_stage import REPLY_ENDS, Stage
from remit.cli.chat_status import Spent, spent_by
from remit.cli.live import INTERRUPTS, carried_out
from remit.cli.output import put
from remit.cli.words import MARKS, duration, short
from remit.core.agents import ASSISTANT
from remit.core.events import EventKind
from remit.core.record import Record
from remit.core.result import Return
from remit.core.states import State
from remit.engine.vitals import below
from remit.flow.context import Handle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remit.core.events import Event


HANGING_UP = (*INTERRUPTS, signal.SIGHUP)
"""Also a terminal that is closed stops the tree, and lets that be recorded; unless `nohup` was to see to it."""
NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    result: Return
    text: str
    """Everything it said, as it was said."""
    records: Sequence[Record]
    """The tree, the message itself first."""
    spent: Spent
    conversation: str
    """Its id; empty where whoever stands in for the assistant keeps none."""
    was_interrupted: bool

    @property
    def delegations(self) -> list[Record]:
        return list(self.records[1:])

    def stopped(self) -> list[Record]:
        """Those of its delegations that were cancelled."""
        return [record for record in self.delegations if record.state is State.CANCELLED]

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
    return {
        "session_id": record.session_id,
        "parent_id": record.parent_id,
        "agent": record.agent,
        "status": str(record.state),
        "summary": "" if result is None else result.summary,
        "duration_seconds": None if result is None else result.metadata.duration_seconds,
        "tokens": record.tokens,
    }


def print_ending(answer: Answer, console: Console, root: Path, how_to_go_on: str) -> None:
    """How it ended, where that is not well: what was stopped, which errors, what to do. Not the words again."""
    if answer.was_interrupted:
        mark, style = MARKS[State.CANCELLED]
        line = Text(f"{mark} stopped", style=style).append(f" after {duration(answer.result.metadata.duration_seconds)}", style="")
        if stopped := answer.stopped():
            names = ", ".join(f"{record.agent} {short(record.session_id)}" for record in stopped[:NAMED])
            more = f" and {len(stopped) - NAMED} more" if len(stopped) > NAMED else ""
            line.append(f", with {names}{more}", style="")
        put(console, line)
    else:
        print_return(replace(answer.result, data=None, artifacts=()), console, root)
    if how_to_go_on:
        put(console, Text(how_to_go_on, style="dim"))


async def answer_to(
    remit: Remit,
    message: str,
    stage: Stage,
    *,
    conversation: str | None = None,
    timeout: float | None = None,
    signals: Sequence[signal.Signals] = INTERRUPTS,
    stop: asyncio.Event | None = None,
) -> Answer:
    """Ask, show, wait. The first of `signals`, or `stop`, stops the whole tree, and what was said until then is the answer."""
    remit.directory.specs()  # what has to be loaded for that is loaded before the time of the message begins
    handle = await remit.start(ASSISTANT, parameters=parameters_of(message, conversation), timeout=timeout)
    heard = _Heard(handle, stage)
    heeded = [one for one in signals if signal.getsignal(one) is not signal.SIG_IGN]
    outcome = await carried_out(remit, heard, stage, heeded, stop)
    records = below(await remit.tree(handle.session_id), handle.session_id)
    return Answer(
        result=outcome.result,
        text=heard.text or text_of(outcome.result),
        records=records,
        spent=spent_by(records, remit.settings),
        conversation=conversation or heard.conversation or conversation_of(outcome.result),
        was_interrupted=outcome.was_interrupted,
    )


class _Heard:
    """A handle whose words are listened to while its return is waited for."""

    def __init__(self, handle: Handle, stage: Stage) -> None:
        self._handle = handle
        self._stage = stage
        self._said: list[str] = []
        self._replied = 0
        """So many pieces belong to replies that are whole."""
        self.conversation = ""

    @property
    def session_id(self) -> str:
        return self._handle.session_id

    @property
    def text(self) -> str:
        return "".join(self._said).strip("\n")

    async def result(self) -> Return:
        async for event in self._handle.stream():
            if event.kind is EventKind.DATA:
                self._hear(event.body.get("chunk"), event.at)
        result = await self._handle.result()
        if not self._said and result.ok and (text := text_of(result)):
            self._stage.hear(text, time.time())  # whoever stands in for the assistant need not stream
        return result

    def _hear(self, chunk: Any, at: float) -> None:
        match chunk:
            case {"restart": True}:
                del self._said[self._replied :]
                self._stage.void()
            case {"conversation": str(conversation)}:
                self.conversation = conversation
            case {"text": str(text)} | str(text) if text:
                self._said.append(text)
                self._replied = len(self._said) if text == REPLY_ENDS else self._replied
                self._stage.hear(text, at)

    def stream(self) -> "AsyncIterator[Event]":
        return self._handle.stream()

    async def cancel(self, reason: str = "") -> list[Mapping[str, Any]]:
        return await self._handle.cancel(reason)


def text_of(result: Return) -> str:
    """The words of an answer, as its return has them."""
    data = result.data
    if isinstance(data, Mapping):
        data = data.get("text")
    if isinstance(data, str):
        return data
    return result.summary if result.ok else ""


def conversation_of(result: Return) -> str:
    found = result.data.get("conversation") if isinstance(result.data, Mapping) else None
    return found if isinstance(found, str) else ""
