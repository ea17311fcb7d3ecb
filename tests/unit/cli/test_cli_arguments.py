"""Command-line values: parameters, lists, durations, times, budgets, task numbers."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from remit import Limits, Misused
from remit.cli.arguments import OPTIONS, budget, number_of, numbers_of, pairs, parse_time

NOW = 1_700_000_000.0
TEXTS = {"type": "array", "items": {"type": "string"}}
LISTS = {
    "properties": {
        "files": {"anyOf": [TEXTS, {"type": "object"}, {"type": "null"}]},
        "patterns": TEXTS,
        "either": {"anyOf": [{"type": "string"}, TEXTS]},
        "numbers": {"type": "array", "items": {"type": "integer"}},
    }
}
TYPED = {"properties": {"year": {"type": "string"}, "count": {"type": "integer"}}}
TASKED = {"properties": {"task": {"type": "string"}}, "required": ["task"], "additionalProperties": True}
ECHO = {"properties": {"times": {"type": "integer"}, "text": {"type": "string"}}, "required": ["text"]}


@pytest.mark.parametrize(
    ("words", "schema", "value"),
    [
        (["n=3", "on=true", "none=null", 'l=["a", 1]'], None, {"n": 3, "on": True, "none": None, "l": ["a", 1]}),
        (["word=hello", "path=a=b", "empty="], None, {"word": "hello", "path": "a=b", "empty": ""}),
        (["a=NaN", "b=Infinity", "c={x}", "d=01"], None, {"a": "NaN", "b": "Infinity", "c": "{x}", "d": "01"}),
        (["year=2024", "count=2024"], TYPED, {"year": "2024", "count": 2024}),
        (['year="2024"'], TYPED, {"year": "2024"}),
        (["files=README.md"], LISTS, {"files": ["README.md"]}),
        (["files=a.md, b.md,"], LISTS, {"files": ["a.md", "b.md"]}),
        (["patterns=*.py", "patterns=*.{md,txt},!x"], LISTS, {"patterns": ["*.py", "*.{md,txt}", "!x"]}),
        (['files=["a, b"]', 'files="c, d"'], LISTS, {"files": ["a, b", "c, d"]}),
        (['files={"a": "b"}'], LISTS, {"files": {"a": "b"}}),
        (["files=null"], LISTS, {"files": None}),
        (["files="], LISTS, {"files": []}),
        (["either=a,b"], LISTS, {"either": "a,b"}),
        (["numbers=1,2"], LISTS, {"numbers": "1,2"}),
        (["Set x = 3 in a.py", "depth=2"], TASKED, {"task": "Set x = 3 in a.py", "depth": 2}),
        (["@home"], TASKED, {"task": "@home"}),
    ],
)
def test_parameters_are_parsed_as_json_or_by_the_schema(words: list[str], schema: Any, value: dict[str, object]) -> None:
    assert pairs(words, schema) == value


def test_at_sign_reads_a_file_and_reports_an_unreadable_one(tmp_path: Path) -> None:
    (tmp_path / "text.md").write_text("two\nlines")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert pairs([f"text=@{tmp_path}/text.md"]) == {"text": "two\nlines"}
    for name, said in (("missing", "No such file"), ("binary", "not UTF-8")):
        with pytest.raises(Misused, match=said):
            pairs([f"text=@{tmp_path}/{name}"])


@pytest.mark.parametrize(
    ("words", "schema", "message", "advice"),
    [
        (["name"], None, "name=value", "Write e.g."),
        (["=value"], None, "name=value", "Write e.g."),
        (["a=1", "a=2"], None, "a is given twice", "JSON"),
        (["either=a", "either=b"], LISTS, "either is given twice", "JSON"),
        (["Fix", "it"], TASKED, "task is given twice", "quotes"),
        (["Fix it"], ECHO, "'Fix it' is not of the form name=value", "Write text='Fix it'"),
        (["Fix it"], {"properties": {"n": {"type": "integer"}}}, "not of the form", "Write n=…"),
        (["Fix it"], {}, "not of the form", "This agent takes no parameters."),
    ],
)
def test_invalid_parameter_is_refused_with_an_example(words: list[str], schema: Any, message: str, advice: str) -> None:
    with pytest.raises(Misused, match=message) as caught:
        pairs(words, schema)
    assert advice in caught.value.advice


@pytest.mark.parametrize("name", OPTIONS)
def test_option_written_as_a_parameter_is_refused_with_the_option(name: str) -> None:
    with pytest.raises(Misused, match=f"{name} is an option, not a parameter of this agent") as caught:
        pairs([f"{name}=a b"], TASKED)
    assert caught.value.advice == f"Write --{name} 'a b'"
    assert pairs([f"{name}=x"], {"properties": {name: {"type": "string"}}}) == {name: "x"}
    assert pairs([f"{name}=x"]) == {name: "x"}, "without a schema everything is a parameter"


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("45s", NOW - 45),
        ("1.5h", NOW - 5400),
        ("2d", NOW - 172_800),
        ("1w", NOW - 604_800),
        ("2026-01-31T12:00:00+00:00", 1_769_860_800.0),
        ("2026-01-31", datetime(2026, 1, 31).timestamp()),
        ("1700000000", NOW),
        (None, None),
    ],
)
def test_time_is_an_age_an_iso_time_or_unix_seconds(text: str | None, at: float | None) -> None:
    assert parse_time(text, "--since", NOW) == at


def test_budget_is_parsed_and_invalid_ones_are_refused() -> None:
    assert budget(["tokens=50", "cost=0.5"]) == Limits(tokens=50, cost=0.5)
    assert budget([]) is None
    for bad, said in (
        ("tokens", "KIND=LIMIT"),
        ("tokens=", "KIND=LIMIT"),
        ("foo=3", "no budget of 'foo'"),
        ("tokens=many", "whole number"),
        ("alive=1.5", "whole number"),
        ("cost=-1", "at least 0"),
    ):
        with pytest.raises(Misused, match=said):
            budget([bad])


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("337, 343-345", [337, 343, 344, 345]),
        ("3,1,3", [3, 1]),
        (" 5 - 7 9", [5, 6, 7, 9]),
        ("#4", [4]),
        ("2-2", [2]),
        ("99999999999999999999", [99999999999999999999]),
        ("1,,2", [1, 2]),
    ],
)
def test_task_numbers_lists_and_ranges_are_parsed(text: str, numbers: list[int]) -> None:
    assert numbers_of(text) == numbers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((bad, f"Task number must be an integer. Got: {bad[:80]}") for bad in ("x", "1.5", "-3", "0", "٣", "9" * 5000)),
        *((bad, f"Invalid range {bad}") for bad in ("7-5", "0-3", "1-99999999999", "1-99999999999999999999")),
        ("", "Task number required."),
        (" , ", "Task number required."),
    ],
)
def test_invalid_task_number_is_refused(text: str, message: str) -> None:
    with pytest.raises(Misused) as refused:
        numbers_of(text)
    assert refused.value.message == message


def test_missing_task_number_names_the_usage() -> None:
    for missing in (None, "", "  "):
        with pytest.raises(Misused) as refused:
            number_of(missing, "remit research N [focus]")
        assert refused.value.message == "Task number required. Usage: remit research N [focus]"
    with pytest.raises(Misused, match=r"must be an integer\. Got: 1-2"):
        number_of("1-2", "remit plan N")
