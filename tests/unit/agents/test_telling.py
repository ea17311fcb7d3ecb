"""What is told on of a coding agent's work: a line for people, a chunk for machines, and the return to nobody but the caller."""

import sys
from pathlib import Path
from typing import Any

import pytest

from remit.agents.transcript import HELD_CHARACTERS, ToolCalls, Words

sys.path.insert(0, str(Path(__file__).parents[2] / "integration"))
from recording_backend import RecordingBackend

RETURN = '{"status": "completed", "summary": "Done.", "artifacts": [], "metadata": {}}'


@pytest.fixture
async def backend(tmp_path: Path) -> RecordingBackend:
    return RecordingBackend(tmp_path)


def emitted(backend: RecordingBackend) -> list[Any]:
    return [note[1] for note in backend.notes if note[0] == "emit"]


def said(backend: RecordingBackend) -> str:
    return "".join(emitted(backend))


def lines(backend: RecordingBackend) -> list[str]:
    return [note[1] for note in backend.notes if note[0] == "progress"]


# ---- words


@pytest.mark.parametrize("block", [RETURN, f"```json\n{RETURN}\n```", f"~~~\n{RETURN}\n~~~\n"])
@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_the_return_at_the_end_of_a_turn_is_not_streamed_before_it_is_returned(
    backend: RecordingBackend, block: str, size: int
) -> None:
    words, text = Words(backend.context()), f"I am done {{so far}}, `really`.\n\n{block}"
    for start in range(0, len(text), size):
        words.say(text[start : start + size])
    words.end_turn()
    assert said(backend).strip() == "I am done {so far}, `really`."


async def test_other_words_are_streamed_also_a_return_that_was_not_the_last_and_json_that_is_none(backend: RecordingBackend) -> None:
    words = Words(backend.context())
    words.say(RETURN)
    assert said(backend) == ""
    words.end_message()
    words.say("One more thing.")
    words.end_turn()
    assert said(backend) == RETURN + "One more thing."
    backend.notes.clear()
    words.say(text := 'Look:\n```json\n{"colour": "red"}\n```\nand more')
    words.end_turn()
    assert said(backend) == text
    backend.notes.clear()
    words.say("{" + "x" * HELD_CHARACTERS)
    assert len(said(backend)) == HELD_CHARACTERS + 1, "what is held back is bounded"


# ---- tool calls


async def test_a_call_is_one_line_for_people_and_one_chunk_for_machines(backend: RecordingBackend) -> None:
    calls = ToolCalls(backend.context())
    calls.begin("1", kind="execute", title="pytest -q")
    calls.begin("1", kind="execute", title="pytest -q")
    calls.end("1", "completed")
    calls.end("1", "completed", title="3 passed")
    calls.decide("2", kind="read", title="a.py", decision="allowed", because="allowed by 'read'")
    assert lines(backend) == ["execute: pytest -q"], "what is allowed has no line of its own"
    assert emitted(backend).pop()["permission"]["decision"] == "allowed"
    assert emitted(backend)[:1] == [{"tool": {"id": "1", "kind": "execute", "title": "pytest -q", "status": "completed"}}]


async def test_one_that_fails_is_told_again_with_why(backend: RecordingBackend) -> None:
    calls = ToolCalls(backend.context())
    calls.begin("1", kind="Bash", title="exit 3")
    calls.end("1", "failed", why="Exit code\n3")
    assert lines(backend) == ["Bash: exit 3", "Bash: exit 3 (failed: Exit code 3)"]
    assert emitted(backend)[-1]["tool"]["status"] == "failed"


async def test_a_denied_one_is_told_once_and_over(backend: RecordingBackend) -> None:
    calls = ToolCalls(backend.context())
    for _ in range(2):
        calls.decide("1", kind="Bash", title="rm -rf /", decision="denied", because="nothing fits")
    calls.end("1", "failed")
    assert lines(backend) == ["Permission denied for Bash: rm -rf / (nothing fits)."]
    assert [next(iter(chunk)) for chunk in emitted(backend)] == ["permission", "tool"]
    assert emitted(backend)[-1]["tool"]["status"] == "denied"
