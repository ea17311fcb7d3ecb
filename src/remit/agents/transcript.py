"""The forwarded output of a coding agent: its text and tool calls, in one shape for every protocol; and the end of long text."""

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator
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


# ---- text and tool calls

PIECE_CHARACTERS = 16 * 1024
HELD_CHARACTERS = 256 * 1024
"""A longer text is not a return."""
_WHY_CHARACTERS = 160
OVER = ("completed", "failed")
_BLOCK = re.compile(r"^[ \t]*(?=[`~{])", re.MULTILINE)
"""Where a return may begin: a fence or a brace at the beginning of a line."""


class Words:
    """Its text as chunks. From where a return may begin, text is held back until the message or turn ends."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._held = ""
        self._is_mid_line = False

    def say(self, text: str) -> None:
        if not self._held:
            block = next((one for one in _BLOCK.finditer(text) if one.start() or not self._is_mid_line), None)
            end = len(text) if block is None else block.start()
            _, newline, line = text.rpartition("\n")
            self._is_mid_line = bool(line.strip()) or (self._is_mid_line and not newline)
            self._emit(text[:end])
            text = text[end:]
        self._held += text
        if len(self._held) > HELD_CHARACTERS:
            self._emit_held()

    def end_message(self) -> None:
        """The message was not the final return: emit the held text."""
        self._emit_held()
        self._is_mid_line = False

    def end_turn(self) -> None:
        if has_return(self._held):
            self._held = ""
        self.end_message()

    def _emit_held(self) -> None:
        text, self._held = self._held, ""
        self._emit(text)

    def _emit(self, text: str) -> None:
        for piece in pieces(text):
            self._ctx.emit(piece)


def pieces(text: str) -> Iterator[str]:
    return (text[start : start + PIECE_CHARACTERS] for start in range(0, len(text), PIECE_CHARACTERS))


class ToolCalls:
    """One line of progress when a call begins, and one chunk when it ended. Later reports of a call may omit its details."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._begun: dict[str, tuple[str, str]] = {}
        """Kind and title of running calls that were reported."""
        self._over: dict[str, str] = {}
        """How calls ended."""

    def begin(self, call_id: str, kind: str, title: str) -> None:
        if not call_id or (call_id not in self._begun and call_id not in self._over):
            self._begun[call_id] = kind, title
            self._ctx.progress(_line(kind, title))

    def end(self, call_id: str, status: str, *, kind: str = "", title: str = "", why: str = "") -> None:
        """`status`: completed, failed or denied. A repetition counts once."""
        if call_id and call_id in self._over:
            return
        self._over[call_id] = status
        begun = self._begun.pop(call_id, None)
        kind, title = kind or (begun[0] if begun else "other"), title or (begun[1] if begun else "")
        if status == "failed":
            short = " ".join(why.split())[:_WHY_CHARACTERS]
            self._ctx.progress(f"{_line(kind, title)} (failed{f': {short}' if short else ''})")
        elif status == "completed" and begun is None:
            self._ctx.progress(_line(kind, title))
        self._ctx.emit({"tool": {"id": call_id, "kind": kind, "title": title, "status": status}})

    def deny(self, call_id: str, kind: str, title: str, because: str) -> None:
        """A call without permission; it may have been reported as failed before."""
        if not call_id or self._over.get(call_id) != "denied":
            self._ctx.emit({"permission": {"kind": kind, "title": title, "decision": "denied", "because": because}})
            self._ctx.progress(f"Permission denied for {_line(kind, title)} ({because}).")
            self.end(call_id, "denied", kind=kind, title=title)


def _line(kind: str, title: str) -> str:
    return f"{kind}: {title}" if title else kind


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
