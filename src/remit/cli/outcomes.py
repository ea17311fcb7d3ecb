"""What a command of the board came to, as a person reads it (S4.5): command, status, summary, artifacts, errors with recommendation,
next steps; or as one JSON document. Used by every command of the board. Imports nothing heavy: `task`, `todo` and `board` come here too.
"""

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from remit.cli.exits import Exit, exit_of_ending
from remit.cli.output import fitting, say, say_json
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
_CODES = {"dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36}
"""Of terminals."""
FROM_TODO = "From TODO.md: "
"""`board.taking.FROM`, which is not imported here: most commands take nothing over."""


def answer(outcome: "Outcome", *, as_json: bool, was_interrupted: bool = False) -> Exit:
    """Print it; the exit code that goes with it."""
    if as_json:
        say_json(outcome.to_dict())
    else:
        print_outcome(outcome)
    return Exit.INTERRUPTED if was_interrupted else exit_of_ending(Status(outcome.status), StopReason(outcome.stop_reason))


def print_outcome(outcome: "Outcome") -> None:
    say(title(outcome))
    if outcome.summary:
        say(printable(outcome.summary))
    for artifact in outcome.artifacts:
        words = f"  {one_line(artifact.summary, LONG)}" if artifact.summary else ""
        say_labelled("artifact", "green", f"{one_line(artifact.path, LONG)} ({artifact.type}){words}")
    for error in outcome.errors:
        _print_error(error, outcome)
    print_warnings(outcome)
    if outcome.commit:
        say_labelled("commit", "green", outcome.commit)
    if outcome.next_steps and not is_rehearsal(outcome):  # what comes next comes after what was not done
        first, *more = advice_lines(outcome.next_steps)
        say_labelled("next", "cyan", first)
        for line in more:
            say(line)


def print_warnings(outcome: "Outcome") -> None:
    """What a person's edits of TODO.md came to is no warning, unless they could not be taken over."""
    for warning in outcome.warnings:
        words = one_line(at_the_prompt(warning), LONG)
        if words.startswith(FROM_TODO):
            say_labelled("TODO.md", "cyan", words.removeprefix(FROM_TODO))
        else:
            say_labelled("warning", "yellow", words)


def say_labelled(label: str, style: str, words: str) -> None:
    """A line behind its label; on a terminal the rest of a long one stands below its beginning."""
    before = f"  {label}  "
    first, *more = fitting(words, less=len(before)).split("\n")
    print((_coloured(before, style) + first).rstrip(), *(" " * len(before) + line for line in more), sep="\n", flush=True)


def is_rehearsal(outcome: "Outcome") -> bool:
    """Of `--dry-run`: nothing was done."""
    return bool(outcome.data.get("dry_run"))


def title(outcome: "Outcome") -> str:
    """How it ended, of which command, for which task and in which session."""
    if is_rehearsal(outcome):
        of = "" if outcome.task_number is None else f"  task {outcome.task_number}"
        return f"{_coloured('○ rehearsal', 'dim')}  {outcome.command}{of}: nothing was changed"
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
    is_said = words in one_line(outcome.summary, LONG)
    if not is_said:
        say_labelled(error.code, "red", words)
    elif not advice:
        say_labelled("error", "red", error.code)  # all else is said: by this name it is in the ledger
    if advice:
        say_labelled(f"{error.code} →" if is_said else "  →", "red" if is_said else "yellow", advice)


def _coloured(text: str, style: str) -> str:
    """For a terminal; elsewhere, and where nobody wants colours, as it is."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\033[{_CODES[style]}m{text}\033[0m"


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
