"""Task numbers as they are typed (S6.9, S6.10)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.cli.arguments import number_of, numbers_of
from remit.core.errors import Misused
from remit.orchestrator.changes import spell_numbers


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("12", [12]),
        ("337, 343-345", [337, 343, 344, 345]),
        ("3,1,3", [3, 1]),
        (" 5 - 7 9", [5, 6, 7, 9]),
        ("#4", [4]),
        ("2-2", [2]),
        ("99999999999999999999", [99999999999999999999]),
        ("1,,2", [1, 2]),
    ],
)
def test_numbers_lists_and_ranges_are_read(text: str, numbers: list[int]) -> None:
    assert numbers_of(text) == numbers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "Task number must be an integer. Got: x"),
        ("1.5", "Task number must be an integer. Got: 1.5"),
        ("-3", "Task number must be an integer. Got: -3"),
        ("0", "Task number must be an integer. Got: 0"),
        ("٣", "Task number must be an integer. Got: ٣"),
        ("7-5", "Invalid range 7-5"),
        ("0-3", "Invalid range 0-3"),
        ("1-99999999999", "Invalid range 1-99999999999"),
        ("1-99999999999999999999", "Invalid range 1-99999999999999999999"),
        ("9" * 5000, "Task number must be an integer. Got: " + "9" * 80),
        ("", "Task number required."),
        (" , ", "Task number required."),
    ],
)
def test_what_is_no_number_is_refused_in_the_words_of_the_spec(text: str, message: str) -> None:
    """S6.10"""
    with pytest.raises(Misused) as refused:
        numbers_of(text)
    assert refused.value.message == message


def test_a_missing_number_names_the_usage() -> None:
    """S6.10"""
    for missing in (None, "", "  "):
        with pytest.raises(Misused) as refused:
            number_of(missing, "remit research N [focus]")
        assert refused.value.message == "Task number required. Usage: remit research N [focus]"
    with pytest.raises(Misused, match=r"must be an integer\. Got: 1-2"):
        number_of("1-2", "remit plan N")


@given(st.lists(st.integers(min_value=1, max_value=5000), min_size=1, unique=True))
def test_what_is_spelled_is_read_as_the_same_numbers(numbers: list[int]) -> None:
    assert numbers_of(spell_numbers(numbers)) == sorted(numbers)
