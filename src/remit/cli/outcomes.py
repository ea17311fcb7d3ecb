"""What a command of the board came to, as a person reads it (S4.5): command, status, summary, artifacts, errors with recommendation,
next steps; or as one JSON document. Used by every command of the board. Imports nothing heavy: `task`, `todo` and `board` come here too.
"""

import contextlib
import os
import sys
from typing import TYPE_CHECKING

import typer

from remit.cli.exits import Exit, exit_of_ending
from remit.cli.output import say, say_json
from remit.cli.words import MARKS, advice_lines, at_the_prompt, one_line, printable
from remit.core.result import Status, StopReason
from remit.core.states import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remit.app import Remit
    from remit.core.errors import ErrorInfo
    from remit.core.result import Return
    from remit.flow.context import Handle
    from remit.orchestrator.outcome import Outcome

LONG = 500


def answer(outcome: "Outcome", *, as_json: bool, was_interrupted: bool = False) -> Exit:
    """Print it; the exit code that goes with it."""
    if as_json:
        say_json(outcome.to_dict())
    else:
        print_outcome(outcome)
    return Exit.INTERRUPTED if was_interrupted else exit_of_ending(Status(outcome.status), StopReason(outcome.stop_reason))


def print_outcome(outcome: "Outcome") -> None:
    say(_title(outcome))
    if outcome.summary:
        say(printable(outcome.summary))
    for artifact in outcome.artifacts:
        words = f"  {one_line(artifact.summary, LONG)}" if artifact.summary else ""
        say(f"{_coloured('  artifact', 'green')}  {one_line(artifact.path, LONG)} ({artifact.type}){words}")
    for error in outcome.errors:
        _print_error(error, outcome)
    for warning in outcome.warnings:
        say(f"{_coloured('  warning', 'yellow')}  {one_line(at_the_prompt(warning), LONG)}")
    if outcome.commit:
        say(f"{_coloured('  commit', 'green')}  {outcome.commit}")
    if outcome.next_steps:
        first, *more = advice_lines(outcome.next_steps)
        say(f"{_coloured('  next', 'cyan')}  {first}")
        for line in more:
            say(line)


def _title(outcome: "Outcome") -> str:
    state = _state_of(outcome)
    mark, style = MARKS[state]
    parts = [_coloured(f"{mark} {outcome.status}", style)]
    if state not in (State.REFUSED, State.CANCELLED, State.TIMEOUT):
        parts.append(f"  {outcome.command}")
    else:
        parts.append(f" ({state})  {outcome.command}")
    if outcome.task_number is not None:
        parts.append(f"  task {outcome.task_number}" + (f" [{outcome.task_status}]" if outcome.task_status else ""))
    return "".join(parts) + (f"  {outcome.session_id}" if outcome.session_id else "")


def _state_of(outcome: "Outcome") -> State:
    reasons = {"deadline": State.TIMEOUT, "idle": State.TIMEOUT, "cancelled": State.CANCELLED, "refused": State.REFUSED}
    return State(outcome.status) if outcome.status in ("completed", "blocked") else reasons.get(outcome.stop_reason, State(outcome.status))


def _print_error(error: "ErrorInfo", outcome: "Outcome") -> None:
    """Its message only when the summary has not said it, its advice only when it is not the next step."""
    words = one_line(error.message, LONG)
    is_next = error.recommendation.rstrip(".") in outcome.next_steps
    advice = "" if is_next else one_line(at_the_prompt(error.recommendation), LONG)
    label = _coloured(f"  {error.code}", "red")
    if words not in one_line(outcome.summary, LONG):
        say(f"{label}  {words}")
        label = "   "
    elif not advice:
        say(label)
    if advice:
        say(f"{label} {_coloured('→', 'yellow')} {advice}")


def _coloured(text: str, style: str) -> str:
    """For a terminal; elsewhere, and where nobody wants colours, as it is."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return typer.style(text, dim=True) if style == "dim" else typer.style(text, fg=style)


class Shown:
    """Waiting at the command line: what is delegated is shown meanwhile, and Ctrl-C cancels it. Give it as `waiting`.

    Within `listening` a Ctrl-C that comes before there is anything to cancel is remembered: what is begun then is cancelled at once, and
    filed like anything else.
    """

    def __init__(self, *, as_json: bool) -> None:
        import asyncio  # not above: commands that delegate nothing print through here too, and need not wait for it

        self._as_json = as_json
        self._asked = asyncio.Event()
        self._was_cut_short = False

    @property
    def was_interrupted(self) -> bool:
        return self._was_cut_short or self._asked.is_set()

    @contextlib.contextmanager
    def listening(self) -> "Iterator[None]":
        from remit.cli.live import on_interrupt

        with on_interrupt(self._asked.set):
            yield

    async def __call__(self, remit: "Remit", handle: "Handle") -> "Return":
        import asyncio

        from remit.cli.live import best_show, carried_out

        cancelling = asyncio.create_task(self._cancel(remit, handle.session_id))
        try:
            ended = await carried_out(remit, handle, best_show(as_json=self._as_json))
        finally:
            cancelling.cancel()
        self._was_cut_short = self._was_cut_short or ended.was_interrupted
        return ended.result

    async def _cancel(self, remit: "Remit", session_id: str) -> None:
        await self._asked.wait()
        await remit.cancel(session_id, "interrupted at the terminal")
