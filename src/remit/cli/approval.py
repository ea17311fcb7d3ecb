"""Asking a person at the terminal, where a rule of the policy says so. One question at a time, with a clock that runs down.

Only where somebody can see and answer: stdin and stderr are a terminal, and this process is the one in front. Whatever is being shown
stands still meanwhile. Used by the commands that run delegations.
"""

import asyncio
import contextlib
import getpass
import os
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator

from remit.cli.render import one_line
from remit.core.policy import Approver, Decision, PolicyRequest

_MOST_FACTS = 20
_CHOICES = "[y]es, once · [a]lways in this tree · [n]o"
_ANSWERS = {"y": "y", "yes": "y", "a": "a", "always": "a", "n": "n", "no": "n", "\x1b": "n", "q": "n", "\x04": "n", "": "n"}
_shown: list[tuple[Callable[[], None], Callable[[], None]]] = []


def standing_still(pause: Callable[[], None], resume: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
    """What is shown while this holds stands still while a question is asked."""

    @contextlib.contextmanager
    def registered() -> Iterator[None]:
        _shown.append((pause, resume))
        try:
            yield
        finally:
            _shown.remove((pause, resume))

    return registered()


def person_here() -> Approver | None:
    """Who can be asked: nobody, where nobody sits."""
    return AtTheTerminal() if _is_attended() else None


def _is_attended() -> bool:
    try:
        front = os.tcgetpgrp(sys.stdin.fileno())
        return sys.stdin.isatty() and sys.stderr.isatty() and front == os.getpgrp()
    except (AttributeError, OSError, ValueError):  # closed, or no terminal at all
        return False


class AtTheTerminal:
    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()
        self._always: set[tuple[str, str, tuple[str, ...]]] = set()
        """What was allowed for a whole tree: its root, the action, and the rules that ask."""

    async def approve(self, asked: PolicyRequest, decision: Decision, seconds: float) -> tuple[bool, str]:
        who = f"{_user()} at the terminal"
        alike = (asked.root_id, asked.action, decision.rules)
        ends_at = time.monotonic() + seconds
        async with self._one_at_a_time:
            if alike in self._always:
                return True, f"{who}, for the whole tree"
            if not _is_attended():
                return False, "nobody is at the terminal any more"
            with _stopped_show(), _single_keys():
                answer = await self._answer(asked, decision, ends_at)
        if answer == "a":
            self._always.add(alike)
        words = {"y": who, "a": f"{who}, for the whole tree", "n": who}
        return answer in ("y", "a"), words.get(answer, f"nobody answered within {seconds:g} s")

    async def _answer(self, asked: PolicyRequest, decision: Decision, ends_at: float) -> str:
        """y, a or n; nothing when the time is up."""
        _say("\n".join(_question(asked, decision)) + "\n")
        loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
        keys: asyncio.Queue[str] = asyncio.Queue()
        loop.add_reader(descriptor, lambda: keys.put_nowait(_read_key(descriptor)))
        answer = ""
        try:
            while not answer and (left := ends_at - time.monotonic()) > 0:
                _say(f"\r\x1b[KAllow it? {_CHOICES}  ({left:.0f} s) ")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(1.0, left)):
                        answer = _ANSWERS.get((await keys.get()).lower(), "")
            return answer
        finally:
            loop.remove_reader(descriptor)
            _say({"y": "yes\n", "a": "always\n", "n": "no\n"}.get(answer, "no answer\n"))


def _question(asked: PolicyRequest, decision: Decision) -> list[str]:
    """Who wants what on which resource, and which rule asks. An agent's words among it: made harmless."""
    told = {one_line(name, 40): one_line(value, 200) for name, value in asked.facts.items() if name not in ("parts", "name", "inside")}
    facts = ", ".join(f"{name}={value}" for name, value in list(told.items())[:_MOST_FACTS])
    return [
        "",
        f"Approval needed: {one_line(decision.question or decision.because, 300)}",
        f"  who   {one_line(' → '.join(asked.path), 200)} (depth {asked.depth}, {asked.session_id})",
        f"  what  {one_line(asked.action, 100)}{f': {facts}' if facts else ''}",
        f"  rule  {one_line(', '.join(decision.rules), 200)}",
    ]


def _read_key(descriptor: int) -> str:
    """A key, or a word that came at once: then all of it, because what is pasted is no answer by its first letter. Nothing when the
    terminal has gone, which is a no."""
    try:
        typed = os.read(descriptor, 64).decode("utf-8", "replace")
    except OSError:
        return ""
    return typed.strip() or typed[:1]


@contextlib.contextmanager
def _single_keys() -> Iterator[None]:
    """Without Enter and without an echo. What was typed before the question is no answer to it."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor, termios.TCSANOW)
    termios.tcflush(descriptor, termios.TCIFLUSH)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)


@contextlib.contextmanager
def _stopped_show() -> Iterator[None]:
    for pause, _ in _shown:
        pause()
    try:
        yield
    finally:
        for _, resume in _shown:
            resume()


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "a person"
