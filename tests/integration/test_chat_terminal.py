"""`remit chat` at a real terminal: streaming, interrupts, resizing, hang-up."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_harness import Terminal, echoing_project, terminal

from remit import SqliteStore
from support.pace import wait_until


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    with echoing_project(tmp_path) as folder:
        yield folder


def test_chat_session_from_start_to_exit(project: Path) -> None:
    """Streamed text, delegation lines, Ctrl-C that keeps the conversation, an approval."""
    with terminal(project, "chat") as chat:
        chat.until("Ctrl-D exits")
        chat.until("›")
        _message_with_a_tree(chat)
        _interrupt_and_continue(chat)
        _approve(chat)
        chat.until("›")
        chat.type("\x04")
        assert chat.exit_code() == 0
        assert "Traceback" not in chat.text


def _message_with_a_tree(chat: Terminal) -> None:
    chat.type("look around\r")
    chat.until("You said **look around**.")
    finished = chat.until("I have looked:")
    assert "nap" in finished
    chat.until("- one")
    chat.until("240 tokens, 0.0003 · 2 delegations")


def _interrupt_and_continue(chat: Terminal) -> None:
    chat.until("›")
    chat.type("please wait\r")
    chat.until("nap")
    chat.resize(70)
    chat.until("asleep")
    chat.type("\x03")
    chat.until("⊘ stopped after")
    chat.until(", with nap ")
    chat.until("The conversation is kept: your next message continues it.")
    chat.until("›")
    chat.type("this is cleared by\x03harm is done\r")
    screen = chat.until("You said **harm is done**.")
    chat.until("120 tokens")
    assert "said this is" not in screen
    assert "\x1b[2J" not in chat.raw
    assert "\x1b]0;mine" not in chat.raw
    assert "\u202e" not in chat.raw


def _approve(chat: Terminal) -> None:
    chat.until("›")
    chat.type("wipe it\r")
    chat.until("wants to remove build with everything in it.")
    chat.until("Allow it?")
    chat.type("y\n")
    chat.until("It was removed build.")
    chat.until("1 delegation")


def test_closed_terminal_leaves_no_process_and_is_recorded(project: Path) -> None:
    with terminal(project, "chat") as chat:
        chat.until("›")
        chat.type("start a program\r")
        chat.until("program")
        file = project / "program.pid"
        wait_until(lambda: file.exists() and file.read_text())
        pid = int(file.read_text())
        os.close(chat.master)
        chat.process.wait(60)
        wait_until(lambda: not Path(f"/proc/{pid}").exists())
    store = SqliteStore(project / ".remit" / "remit.db")
    assert store.live() == []
    store.close()
