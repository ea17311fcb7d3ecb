"""Asks the person at the terminal for the approvals that the policy requires: one question at a time, until a deadline.

Asks only if stdin and stderr are a terminal and this process is in the foreground. Live views pause during a question."""

import asyncio
import contextlib
import os
import sys
import termios
import time
from collections.abc import Callable, Iterator

from remit.cli.render import one_line
from remit.core.policy import Approver, Decision, PolicyRequest

_MOST_FACTS = 20
_CHOICES = "[y]es, once · [a]lways in this tree · [n]o"
_ANSWERS = {"y": "y", "yes": "y", "a": "a", "always": "a", "n": "n", "no": "n", "": "n"}
_pictures: list[tuple[Callable[[], None], Callable[[], None]]] = []


@contextlib.contextmanager
def pausing(pause: Callable[[], None], resume: Callable[[], None]) -> Iterator[None]:
    """Pause a live view during questions."""
    _pictures.append((pause, resume))
    try:
        yield
    finally:
        _pictures.remove((pause, resume))


def person_here() -> Approver | None:
    """The approver at the terminal, or None without a terminal."""
    return TerminalApprover() if _is_attended() else None


def _is_attended() -> bool:
    try:
        foreground = os.tcgetpgrp(sys.stdin.fileno())
        return sys.stdin.isatty() and sys.stderr.isatty() and foreground == os.getpgrp()
    except (AttributeError, OSError, ValueError):  # closed, or not a terminal
        return False


class TerminalApprover:
    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()
        self._always: set[tuple[str, str, tuple[str, ...]]] = set()
        """Allowed for a whole tree: its root, the action, and the rules that require approval."""

    async def approve(self, asked: PolicyRequest, decision: Decision, seconds: float) -> tuple[bool, str]:
        import getpass

        try:
            who = f"{getpass.getuser()} at the terminal"
        except (KeyError, OSError):  # a user without a name
            who = "a person at the terminal"
        alike = (asked.root_id, asked.action, decision.rules)
        ends_at = time.monotonic() + seconds
        async with self._one_at_a_time:
            if alike in self._always:
                return True, f"{who}, for the whole tree"
            if not _is_attended():
                return False, "the terminal was closed"
            with _paused():
                answer = await self._answer(asked, decision, max(0.0, ends_at - time.monotonic()))
        if answer == "a":
            self._always.add(alike)
        reasons = {"y": who, "a": f"{who}, for the whole tree", "n": who}
        return answer in ("y", "a"), reasons.get(answer, f"no answer within {seconds:g} s")

    async def _answer(self, asked: PolicyRequest, decision: Decision, seconds: float) -> str:
        """y, a or n; empty when the time is up."""
        loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
        lines: asyncio.Queue[str] = asyncio.Queue()
        with contextlib.suppress(termios.error):
            termios.tcflush(descriptor, termios.TCIFLUSH)  # what was typed before the question is not an answer
        loop.add_reader(descriptor, lambda: lines.put_nowait(_read_line(descriptor)))
        _write("\n".join(_question(asked, decision)) + "\n")
        try:
            async with asyncio.timeout(seconds):
                while True:
                    _write(f"Allow it? {_CHOICES}  ({seconds:.0f} s) ")
                    if answer := _ANSWERS.get((await lines.get()).lower()):
                        return answer
        except TimeoutError:
            _write("no answer\n")
            return ""
        finally:
            loop.remove_reader(descriptor)


def _question(asked: PolicyRequest, decision: Decision) -> list[str]:
    """The caller, the request, and the rule that requires approval. Text from agents is sanitized."""
    facts = [
        f"{one_line(name, 40)}={one_line(value, 200)}" for name, value in asked.facts.items() if name not in ("parts", "name", "inside")
    ]
    return [
        "",
        f"Approval needed: {one_line(decision.question or decision.because, 300)}",
        f"  who   {one_line(' → '.join(asked.path), 200)} (depth {asked.depth}, {asked.session_id})",
        f"  what  {one_line(asked.action, 100)}{': ' if facts else ''}{', '.join(facts[:_MOST_FACTS])}",
        f"  rule  {one_line(', '.join(decision.rules), 200)}",
    ]


def _read_line(descriptor: int) -> str:
    """The line that was entered. Empty, which means no, for Ctrl-D or if the terminal was closed."""
    try:
        return os.read(descriptor, 1024).decode("utf-8", "replace").strip()
    except OSError:
        return ""


@contextlib.contextmanager
def _paused() -> Iterator[None]:
    for pause, _ in _pictures:
        pause()
    try:
        yield
    finally:
        for _, resume in _pictures:
            resume()


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
