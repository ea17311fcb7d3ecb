"""The forwarded output of a coding agent: its text, plan and tool calls, in one shape for every protocol; and the end of long text."""

import asyncio
import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from remit.core.context import Context
from remit.core.errors import Stopped
from remit.runtime.receive import looks_like_return, read_answer

# ---- text in pieces


class TextBuffer:
    """Forwards text in pieces by size or time instead of one event per token."""

    def __init__(self, emit: Callable[[str], None], *, characters: int = 1024, seconds: float = 0.3) -> None:
        self._emit = emit
        self._characters, self._seconds = characters, seconds
        self._held = ""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, text: str) -> None:
        self._held += text
        if len(self._held) >= self._characters:
            self.flush()
        elif self._timer is None and text:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._flush_late)

    def flush(self) -> None:
        text = self._held
        self.clear()
        if text:
            self._emit(text)

    def clear(self) -> None:
        """Drop pending text and its timer."""
        self._held = ""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _flush_late(self) -> None:
        with contextlib.suppress(Stopped):  # the delegation may have ended meanwhile
            self.flush()


# ---- text, plan and tool calls

PIECE_CHARACTERS = 16 * 1024
HELD_CHARACTERS = 256 * 1024
"""A longer text is not a return."""
CALLS_KEPT = 1000
_WHY_CHARACTERS = 160
OVER = ("completed", "failed")
_BLOCK = re.compile(r"(?:\A|\n)[ \t]*(?=[`~{])")
"""Where a return may begin: a fence or a brace at the beginning of a line."""


class Words:
    """Its text as chunks. From where a return may begin, text is held back until the message or turn ends."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._held = ""
        self._is_line_begun = False

    def say(self, text: str) -> None:
        if not self._held:
            begin = self._block_in(text)
            self._emit(text[:begin])
            text = text[begin:]
        self._held += text
        if len(self._held) > HELD_CHARACTERS:
            self._release()

    def end_message(self) -> None:
        """The message was not the final return: emit the held text."""
        self._release()
        self._is_line_begun = False

    def end_turn(self) -> None:
        if has_return(self._held):
            self._held = ""
        self.end_message()

    def _release(self) -> None:
        text, self._held = self._held, ""
        self._emit(text)

    def _emit(self, text: str) -> None:
        for start in range(0, len(text), PIECE_CHARACTERS):
            self._ctx.emit(text[start : start + PIECE_CHARACTERS])

    def _block_in(self, text: str) -> int:
        """Position at which a return may begin; the length of the text if there is none."""
        found = next((one for one in _BLOCK.finditer(text) if one.start() or text[0] == "\n" or not self._is_line_begun), None)
        _, newline, line = text.rpartition("\n")
        self._is_line_begun = bool(line.strip()) or (not newline and self._is_line_begun)
        return len(text) if found is None else found.start()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    kind: str
    title: str
    is_told: bool = False
    status: str = ""
    """How it ended; empty while it runs."""


class ToolCalls:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._calls: dict[str, Call] = {}

    def known(self, call_id: str, *, kind: str = "", title: str = "") -> Call:
        """The known facts of a call: later reports omit earlier details."""
        before = self._calls.get(call_id, Call(kind="other", title=""))
        call = before if before.status else replace(before, kind=kind or before.kind, title=title or before.title)
        self._keep(call_id, call)
        return call

    def begin(self, call_id: str, *, kind: str = "", title: str = "") -> None:
        call = self.known(call_id, kind=kind, title=title)
        if not call.is_told and not call.status:
            self._ctx.progress(_line(call))
            self._keep(call_id, replace(call, is_told=True))

    def end(self, call_id: str, status: str, *, kind: str = "", title: str = "", why: str = "") -> None:
        """`status`: completed, failed or denied. A repetition counts once."""
        call = self.known(call_id, kind=kind, title=title)
        if call.status:
            return
        self._keep(call_id, replace(call, is_told=True, status=status))
        if status == "failed":
            short = " ".join(why.split())[:_WHY_CHARACTERS]
            self._ctx.progress(f"{_line(call)} ({status}{f': {short}' if short else ''})")
        elif status == "completed" and not call.is_told:
            self._ctx.progress(_line(call))
        self._ctx.emit({"tool": {"id": call_id, "kind": call.kind, "title": call.title, "status": status}})

    def decide(self, call_id: str, *, kind: str = "", title: str = "", decision: str, because: str) -> None:
        """A permission: every decision for programs, denials for people. A denied call is finished."""
        call = self.known(call_id, kind=kind, title=title)
        if call.status == "denied":
            return
        self._ctx.emit({"permission": {"kind": call.kind, "title": call.title, "decision": decision, "because": because}})
        if decision == "denied":
            self._ctx.progress(f"Permission denied for {_line(call)} ({because}).")
            self.end(call_id, "denied")

    def _keep(self, call_id: str, call: Call) -> None:
        if not call_id:
            return
        if len(self._calls) >= CALLS_KEPT and call_id not in self._calls:
            self._calls.clear()
        self._calls[call_id] = call


def tell_plan(ctx: Context, steps: Sequence[tuple[str, str]]) -> None:
    """Its steps, each with its status."""
    if not steps:
        return
    done = sum(status == "completed" for _, status in steps)
    now = next((step for step, status in steps if status == "in_progress"), "")
    ctx.emit({"plan": [{"step": step, "status": status} for step, status in steps]})
    ctx.progress(f"Plan: {done} of {len(steps)} done{f', now: {now}' if now else ''}", done / len(steps))


def _line(call: Call) -> str:
    return f"{call.kind}: {call.title}" if call.title else call.kind


# ---- returns


def find_return(last: str, whole: str, return_file: Path) -> tuple[str, bool]:
    """The last message, or all of the text if only that contains a return; and whether there is one, in the text or in the file."""
    for text, file in ((last, None), (whole, None), (last, return_file)):
        if has_return(text, file):
            return text, True
    return last or whole, False


def has_return(text: str, return_file: Path | None = None) -> bool:
    candidate = read_answer(text, return_file).candidate
    return candidate is not None and looks_like_return(candidate)


# ---- the end of a long text

LIMIT_CHARACTERS = 4 << 20
"""Of longer text the end is kept: a return comes last."""


class Tail:
    __slots__ = ("_between", "_parts", "_size")

    def __init__(self, between: str = "") -> None:
        """`between`: the separator between added pieces."""
        self._between = between
        self._parts: list[str] = []
        self._size = 0

    def add(self, text: str) -> None:
        self._parts.append(text)
        self._size += len(text) + len(self._between)
        if self._size > 2 * LIMIT_CHARACTERS:  # not for each piece: joining is expensive
            kept = self.text()
            self._parts, self._size = [kept], len(kept)

    def clear(self) -> None:
        self._parts, self._size = [], 0

    def text(self) -> str:
        return self._between.join(self._parts)[-LIMIT_CHARACTERS:]
