"""Model output on its way to a terminal."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.cli.ask import Plain
from remit.cli.events import SpendingTotal
from remit.cli.live import Silence
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


def test_answer_begins_with_words_and_ends_with_one_line_end() -> None:
    written: list[str] = []
    with Plain(Silence(), written.append) as plain:
        for piece in ("\n", "One", "\n\n", "Two\n", "three"):
            plain.hear(piece)
    assert "".join(written) == "One\n\nTwo\nthree\n"
    with Plain(Silence(), written.append):
        pass
    assert "".join(written) == "One\n\nTwo\nthree\n", "an empty answer writes nothing"


def test_cost_is_a_sum_or_unknown() -> None:
    known, unknown = SpendingTotal(tokens=1000, cost=0.5), SpendingTotal(tokens=10, has_unknown=True)
    assert SpendingTotal().words() == ""
    assert known.words() == "1,000 tokens, 0.50"
    assert unknown.words() == "10 tokens, money unknown"
    assert known.plus(unknown).words() == "1,010 tokens, at least 0.50"
