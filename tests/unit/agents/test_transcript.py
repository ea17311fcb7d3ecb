"""Streaming of a coding agent's text: the return at its end is not streamed."""

import sys
from pathlib import Path
from typing import Any

import pytest

from remit.agents.transcript import HELD_CHARACTERS, Words

sys.path.insert(0, str(Path(__file__).parents[2] / "integration"))
from recording_backend import RecordingBackend

RETURN = '{"status": "completed", "summary": "Done.", "artifacts": [], "metadata": {}}'


@pytest.fixture
async def backend(tmp_path: Path) -> RecordingBackend:
    return RecordingBackend(tmp_path)


def emitted(backend: RecordingBackend) -> list[Any]:
    return [note[1] for note in backend.notes if note[0] == "emit"]


def streamed(backend: RecordingBackend) -> str:
    return "".join(emitted(backend))


@pytest.mark.parametrize("block", [RETURN, f"```json\n{RETURN}\n```", f"~~~\n{RETURN}\n~~~\n"])
@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_return_at_the_end_of_a_turn_is_not_streamed(backend: RecordingBackend, block: str, size: int) -> None:
    words, text = Words(backend.context()), f"I am done {{so far}}, `really`.\n\n{block}"
    for start in range(0, len(text), size):
        words.say(text[start : start + size])
    words.end_turn()
    assert streamed(backend).strip() == "I am done {so far}, `really`."


async def test_other_text_and_earlier_returns_are_streamed(backend: RecordingBackend) -> None:
    words = Words(backend.context())
    words.say(RETURN)
    assert streamed(backend) == ""
    words.end_message()
    words.say("One more thing.")
    words.end_turn()
    assert streamed(backend) == RETURN + "One more thing."
    backend.notes.clear()
    words.say(text := 'Look:\n```json\n{"colour": "red"}\n```\nand more')
    words.end_turn()
    assert streamed(backend) == text
    backend.notes.clear()
    words.say("{" + "x" * HELD_CHARACTERS)
    assert len(streamed(backend)) == HELD_CHARACTERS + 1, "the buffer is bounded"
