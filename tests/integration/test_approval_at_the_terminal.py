"""A person is asked at a real terminal: who wants what, on which resource, by which rule, with a clock (item 7)."""

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

AGENTS = """
from remit import agent

@agent(effects=("delete",), acts_on={"path": "path"})
async def wipe(ctx, path: str, recursive: bool = False):
    return f"removed {path}"

@agent
async def tidy(ctx, paths: list[str]):
    done = [await ctx.delegate("wipe", path=path, recursive=True) for path in paths]
    return " and ".join(f"{one.data or one.stop_reason}" for one in done)
"""


class Terminal:
    def __init__(self, folder: Path, *arguments: str) -> None:
        self.process, self.master = _started(folder, arguments)
        self.text = ""

    def until(self, words: str, seconds: float = 20.0) -> str:
        end = time.monotonic() + seconds
        while words not in self.text and time.monotonic() < end:
            ready, _, _ = select.select([self.master], [], [], 0.1)
            if ready:
                try:
                    self.text += os.read(self.master, 65536).decode("utf-8", "replace")
                except OSError:
                    break
        assert words in self.text, self.text
        return self.text

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def ended(self) -> int:
        with contextlib.suppress(AssertionError):
            self.until("\0 never comes \0", 0.5)
        return self.process.wait(20)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        os.close(self.master)


def _started(folder: Path, arguments: tuple[str, ...]) -> "tuple[subprocess.Popen[bytes], int]":
    master, slave = pty.openpty()
    command = [sys.executable, "-c", _LEAD, *arguments]
    process = subprocess.Popen(command, cwd=folder, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    return process, master


_LEAD = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from remit.cli.main import main
sys.argv[0] = "remit"
main()
"""
"""A process in front of a terminal of its own, as a shell would start it."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".remit" / "agents").mkdir(parents=True)
    (tmp_path / ".remit" / "agents" / "tidying.py").write_text(AGENTS)
    return tmp_path


@contextlib.contextmanager
def terminal(folder: Path, *arguments: str) -> Iterator[Terminal]:
    opened = Terminal(folder, *arguments)
    try:
        yield opened
    finally:
        opened.close()


def test_yes_lets_one_run_and_the_next_is_asked_again(project: Path) -> None:
    with terminal(project, "delegate", "tidy", 'paths=["build", "dist"]') as shown:
        text = shown.until("Allow it?")
        assert "tidy wants to remove build with everything in it." in text
        assert "orchestrator → tidy" in text
        assert "ask-before-removing-folders" in text
        assert re.search(r"\(1[12]\d s\)", shown.until(" s)"))
        shown.type("y")
        shown.until("remove dist")
        shown.type("n")
        shown.until("removed build and refused")
        assert shown.ended() == 0


def test_always_holds_for_the_whole_tree(project: Path) -> None:
    with terminal(project, "delegate", "tidy", 'paths=["build", "dist", "out"]') as shown:
        shown.until("Allow it?")
        shown.type("a")
        shown.until("removed build and removed dist and removed out")
        assert shown.ended() == 0
        assert "remove dist with" not in shown.text


def test_silence_is_a_no_when_the_time_is_up(project: Path) -> None:
    (project / "remit.toml").write_text("approval_seconds = 1.2\n")
    with terminal(project, "delegate", "tidy", 'paths=["build"]') as shown:
        shown.until("Allow it?")
        shown.until("no answer")
        shown.until("refused")
        shown.ended()
    assert '"by":"nobody answered within 1.2 s"' in (project / ".remit" / "audit.jsonl").read_text()


def test_what_was_typed_before_the_question_is_no_answer_and_agents_words_are_harmless(project: Path) -> None:
    with terminal(project, "delegate", "tidy", 'paths=["a\\u001b[2Jb\\u202e"]') as shown:
        shown.type("yyyy\n")
        text = shown.until("Allow it?")
        assert "a\x1b[2Jb" not in text
        assert "\u202e" not in text
        shown.type("n")
        shown.until("refused")


def test_ctrl_c_at_the_question_cancels(project: Path) -> None:
    with terminal(project, "delegate", "tidy", 'paths=["build"]') as shown:
        shown.until("Allow it?")
        shown.type("\x03")
        assert shown.ended() in (130, 6, 3)


def test_without_a_terminal_nobody_can_be_asked(project: Path) -> None:
    command = [sys.executable, "-m", "remit.cli.main", "delegate", "tidy", 'paths=["build"]']
    ran = subprocess.run(command, cwd=project, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert "refused" in ran.stdout
    assert "nobody could be asked" in ran.stdout


def test_what_is_pasted_is_no_answer_by_its_first_letter_and_ctrl_d_is_a_no(project: Path) -> None:
    with terminal(project, "delegate", "tidy", 'paths=["a"]') as opened:
        opened.until("Allow it?")
        opened.type("yarn install")
        time.sleep(0.3)
        opened.type("\x04")
        opened.until("was not given")
        opened.ended()
        assert "removed a" not in opened.text
