"""`remit chat` through a pipe: each line is a message."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_harness import echoing_project, last_user_message, scripted_project

from remit import Conversations
from remit.testing import Call, ModelRequest, Say
from remit.testing import ModelTurn as Turn
from support import cli

chat = cli.typed("chat")
Captured = pytest.CaptureFixture[str]


@contextlib.contextmanager
def typed(text: str) -> Iterator[None]:
    """Replace stdin by a pipe with these lines."""
    reading, writing = os.pipe()
    os.write(writing, text.encode())
    os.close(writing)
    before = sys.stdin
    with os.fdopen(reading) as sys.stdin:
        try:
            yield
        finally:
            sys.stdin = before


def test_each_line_of_a_pipe_is_a_message_without_colours(tmp_path: Path, capsys: Captured) -> None:
    with echoing_project(tmp_path), typed("hello \\\nagain\n\nlook\n/etc/hosts\nfail\n"):
        assert chat(tmp_path) == 1, "the exit code of the first failed message"
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert out.startswith("You said **hello \nagain**.\n")
    assert "You said **look**.\n\nI have looked:\n\n- one\n- two\nYou said **/etc/hosts**.\n" in out
    assert "400" in err


def _script(request: ModelRequest) -> Turn:
    output = last_user_message(request)
    if request.messages[-1].role == "tool":
        return Say("It holds **one** line.")
    if "read" in output:
        return [Say("I will look."), Call("delegate", target="worker", operation="read_file", parameters={"path": "notes.txt"})]
    return Say(f"You said {sum(message.role == 'user' for message in request.messages)} things.")


def test_conversation_is_saved_and_continued(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("only this\n")
    with scripted_project(tmp_path, _script):
        with typed("read notes.txt\nwhat was before"):
            assert chat(tmp_path) == 0
        out = capsys.readouterr().out
        assert "I will look.\n\nIt holds **one** line.\nYou said 2 things.\n" in out
        notes = Conversations(tmp_path).latest().conversation_id
        with typed("before\n"):
            assert chat(tmp_path, as_json=True, conversation=notes) == 0
        answer = json.loads(capsys.readouterr().out)
        assert (answer["conversation"], answer["text"]) == (notes, "You said 3 things.")
        assert answer["cost"] == pytest.approx(0.00014), "100 input tokens and 20 output tokens at the configured price"
