"""Command-line values: parameters, lists, durations, times, budgets, task numbers."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from remit import Limits, Misused
from remit.cli.arguments import budget, number_of, numbers_of, pairs, parse_time

NOW = 1_700_000_000.0
TEXTS = {"type": "array", "items": {"type": "string"}}
SCHEMA = {
    "properties": {
        "task": {"type": "string"},
        "year": {"type": "string"},
        "count": {"type": "integer"},
        "files": {"anyOf": [TEXTS, {"type": "object"}, {"type": "null"}]},
        "either": {"anyOf": [{"type": "string"}, TEXTS]},
    },
    "required": ["task"],
}


@pytest.mark.parametrize(
    ("words", "schema", "value"),
    [
        (["n=3", "on=true", "none=null", 'l=["a", 1]'], None, {"n": 3, "on": True, "none": None, "l": ["a", 1]}),
        (["word=hello", "path=a=b", "empty="], None, {"word": "hello", "path": "a=b", "empty": ""}),
        (["a=NaN", "c={x}", "d=01"], None, {"a": "NaN", "c": "{x}", "d": "01"}),
        (["year=2024", "count=2024"], SCHEMA, {"year": "2024", "count": 2024}),
        (['year="2024"'], SCHEMA, {"year": "2024"}),
        (["files=*.py, b.md,", "files=*.{md,txt}"], SCHEMA, {"files": ["*.py", "b.md", "*.{md,txt}"]}),
        (['files=["a, b"]', 'files="c, d"'], SCHEMA, {"files": ["a, b", "c, d"]}),
        (['files={"a": "b"}'], SCHEMA, {"files": {"a": "b"}}),
        (["either=a,b"], SCHEMA, {"either": "a,b"}),
        (["Set x = 3 in a.py", "count=2"], SCHEMA, {"task": "Set x = 3 in a.py", "count": 2}),
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
        (["=value"], None, "name=value", "Write e.g."),
        (["a=1", "a=2"], None, "a is given twice", "JSON"),
        (["Fix", "it"], SCHEMA, "task is given twice", "quotes"),
        (["Fix it"], {"properties": {"text": {"type": "string"}}}, "'Fix it' is not of the form name=value", "Write text='Fix it'"),
        (["Fix it"], {}, "not of the form", "This agent takes no parameters."),
    ],
)
def test_invalid_parameter_is_refused_with_an_example(words: list[str], schema: Any, message: str, advice: str) -> None:
    with pytest.raises(Misused, match=message) as caught:
        pairs(words, schema)
    assert advice in caught.value.advice


def test_time_is_an_age_an_iso_time_or_unix_seconds() -> None:
    times = {
        "1.5h": NOW - 5400,
        "2026-01-31T12:00:00+00:00": 1_769_860_800.0,
        "2026-01-31": datetime(2026, 1, 31).timestamp(),
        "1700000000": NOW,
    }
    assert {text: parse_time(text, "--since", NOW) for text in times} == times


def test_budget_is_parsed_and_invalid_ones_are_refused() -> None:
    assert budget(["tokens=50", "cost=0.5"]) == Limits(tokens=50, cost=0.5)
    assert budget([]) is None
    for bad, said in (
        ("foo=3", "no budget of 'foo'"),
        ("tokens", "whole number"),
        ("alive=1.5", "whole number"),
        ("cost=-1", "at least 0"),
    ):
        with pytest.raises(Misused, match=said):
            budget([bad])


def test_task_numbers_lists_and_ranges_are_parsed() -> None:
    lists = {"337, 343-345": [337, 343, 344, 345], "3,1,3": [3, 1], " 5 - 7 9": [5, 6, 7, 9], "#4": [4]}
    assert {text: numbers_of(text) for text in lists} == lists


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((bad, f"Task number must be an integer. Got: {bad[:80]}") for bad in ("x", "1.5", "-3", "0", "٣", "9" * 5000)),
        *((bad, f"Invalid range {bad}") for bad in ("7-5", "0-3", "1-99999999999")),
        (" ", "Task number required. Usage: remit plan N"),
    ],
)
def test_invalid_task_number_is_refused(text: str, message: str) -> None:
    for parse, given in ((numbers_of, text), (number_of, text if "range" not in message else "x")):
        with pytest.raises(Misused) as refused:
            parse(given, "remit plan N")
        assert refused.value.message == (message if given == text else "Task number must be an integer. Got: x")
