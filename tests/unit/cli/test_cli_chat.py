"""Model output on its way to a terminal, and commands of a chat."""

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.cli.ask import Breaks
from remit.cli.chat import command_in
from remit.cli.render import harmless


def pieces(text: str, cuts: Sequence[int]) -> list[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in pairwise(places)]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", "�[2J�]0;title�"),
        ("\x9b31m", "�31m"),
        ("a\r\nb\rc", "a\nbc"),
        ("a\u202eb\u2066c", "a�b�c"),
        ("a\u00a0b\u202fc", "a b c"),
        ("soft\u00adhyphen\ufeff", "softhyphen"),
        ("\U0001f469\u200d\U0001f4bb ok\ttab", "\U0001f469\u200d\U0001f4bb ok\ttab"),
        ("\ud800", "�"),
        ("tag\U000e0041", "tag"),
    ],
)
def test_terminal_control_sequences_are_neutralized(text: str, shown: str) -> None:
    assert harmless(text) == shown


@given(st.text(), st.lists(st.integers(0, 1000), max_size=6))
def test_neutralizing_is_independent_of_chunk_boundaries(text: str, cuts: list[int]) -> None:
    whole = harmless(text)
    assert "".join(map(harmless, pieces(text, cuts))) == whole
    assert not any(sign < " " and sign not in "\n\t" for sign in whole)
    assert "\x7f" not in whole


def test_break_noticed_late_is_ignored() -> None:
    before, after = (SimpleNamespace(created_at=at) for at in (4.0, 7.0))
    breaks, records = Breaks(), list[Any]
    assert breaks.joined("a", 5.0) == "a"
    assert not breaks.noticed(records([before]))
    assert breaks.joined("b", 6.0) == "b"
    assert breaks.noticed(records([before, after]))
    assert breaks.joined("c", 8.0) == "\n\nc"


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        ("/help", ("help", "")),
        ("/resume  conv_1 ", ("resume", "conv_1")),
        ("/?", ("?", "")),
        ("/etc/hosts is what?", None),
        ("//help", None),
        ("what is /help", None),
        ("/", None),
    ],
)
def test_line_that_begins_with_a_slash_and_a_word_is_a_command(typed: str, command: tuple[str, str] | None) -> None:
    assert command_in(typed) == command
