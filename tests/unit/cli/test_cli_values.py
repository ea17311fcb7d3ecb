"""Values as they are typed at a prompt."""

from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.cli.arguments import OPTIONS, budget, pairs, parse_time, seconds
from remit.core.budget import Limits
from remit.core.errors import Misused

NOW = 1_700_000_000.0


def test_values_are_json_where_they_are_json_and_text_elsewhere() -> None:
    assert pairs(["n=3", "on=true", "none=null", 'l=["a", 1]', "word=hello", "path=a=b", "empty="]) == {
        "n": 3,
        "on": True,
        "none": None,
        "l": ["a", 1],
        "word": "hello",
        "path": "a=b",
        "empty": "",
    }


def test_what_json_does_not_know_stays_text() -> None:
    assert pairs(["a=NaN", "b=Infinity", "c={x}", "d=01"]) == {"a": "NaN", "b": "Infinity", "c": "{x}", "d": "01"}


def test_a_parameter_that_the_schema_calls_a_string_is_not_read_as_a_number() -> None:
    schema = {"properties": {"year": {"type": "string"}, "count": {"type": "integer"}}}
    assert pairs(["year=2024", "count=2024"], schema) == {"year": "2024", "count": 2024}
    assert pairs(['year="2024"'], schema) == {"year": "2024"}


def test_an_at_sign_reads_a_file(tmp_path: Path) -> None:
    (tmp_path / "text.md").write_text("two\nlines")
    assert pairs([f"text=@{tmp_path}/text.md"]) == {"text": "two\nlines"}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Misused, match="No such file"):
        pairs([f"text=@{tmp_path}/missing"])
    with pytest.raises(Misused, match="not UTF-8"):
        pairs([f"text=@{tmp_path}/binary"])


@pytest.mark.parametrize("bad", ["name", "=value", ""])
def test_what_is_no_pair_is_refused_with_an_example(bad: str) -> None:
    with pytest.raises(Misused, match="name=value"):
        pairs([bad])


TEXTS = {"type": "array", "items": {"type": "string"}}
LISTS = {
    "properties": {
        "files": {"anyOf": [TEXTS, {"type": "object"}, {"type": "null"}]},
        "patterns": TEXTS,
        "either": {"anyOf": [{"type": "string"}, TEXTS]},
        "numbers": {"type": "array", "items": {"type": "integer"}},
    }
}


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["files=README.md"], {"files": ["README.md"]}),
        (["files=a.md, b.md,"], {"files": ["a.md", "b.md"]}),
        (["patterns=*.py", "patterns=*.{md,txt},!x"], {"patterns": ["*.py", "*.{md,txt}", "!x"]}),
        (["files=2024"], {"files": ["2024"]}),
        (['files=["a, b"]', 'files="c, d"'], {"files": ["a, b", "c, d"]}),
        (['files={"a": "b"}'], {"files": {"a": "b"}}),
        (["files=null"], {"files": None}),
        (["files="], {"files": []}),
        (["either=a,b"], {"either": "a,b"}),
        (["numbers=1,2"], {"numbers": "1,2"}),
    ],
)
def test_a_list_of_texts_may_be_typed_with_commas_or_one_by_one(words: list[str], value: dict[str, object]) -> None:
    assert pairs(words, LISTS) == value


def test_what_may_be_a_text_too_is_given_once() -> None:
    with pytest.raises(Misused, match="twice"):
        pairs(["either=a", "either=b"], LISTS)


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(Misused, match="twice"):
        pairs(["a=1", "a=2"])


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_after_the_equals_sign_gives_a_value(text: str) -> None:
    if not text.startswith("@"):
        assert set(pairs([f"name={text}"])) == {"name"}


@pytest.mark.parametrize(("text", "seconds"), [("45s", 45), ("30m", 1800), ("1.5h", 5400), ("2d", 172_800), ("1w", 604_800)])
def test_a_span_counts_back_from_now(text: str, seconds: float) -> None:
    assert parse_time(text, "--since", NOW) == NOW - seconds


def test_an_iso_time_and_unix_seconds_are_moments() -> None:
    assert parse_time("2026-01-31T12:00:00+00:00", "--since", NOW) == 1_769_860_800.0
    assert parse_time("2026-01-31", "--since", NOW) == datetime(2026, 1, 31).timestamp()
    assert parse_time("1700000000", "--since", NOW) == 1_700_000_000.0
    assert parse_time(None, "--since", NOW) is None


@pytest.mark.parametrize("bad", ["yesterday", "1x", "", "2026-13-01", "h"])
def test_what_is_no_time_is_refused_with_examples(bad: str) -> None:
    with pytest.raises(Misused, match="--since"):
        parse_time(bad, "--since", NOW)


@pytest.mark.parametrize(("text", "value"), [("30", 30), ("0.5", 0.5), (".5", 0.5), ("10s", 10), ("2m", 120), ("1.5h", 5400)])
def test_a_timeout_is_seconds_or_a_span(text: str, value: float) -> None:
    assert seconds(text, "--timeout") == value


@pytest.mark.parametrize("bad", ["-1", "0", "abc", "10x", "", "inf", "nan", "1e999"])
def test_a_timeout_that_is_none_is_refused_with_examples(bad: str) -> None:
    with pytest.raises(Misused, match="--timeout must be a number of seconds above 0"):
        seconds(bad, "--timeout")


def test_a_budget_is_read_kind_by_kind() -> None:
    assert budget(["tokens=50", "cost=0.5"]) == Limits(tokens=50, cost=0.5)
    assert budget([]) is None


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("tokens", "KIND=LIMIT"),
        ("tokens=", "KIND=LIMIT"),
        ("foo=3", "no budget of 'foo'"),
        ("tokens=many", "whole number"),
        ("alive=1.5", "whole number"),
        ("cost=-1", "at least 0"),
    ],
)
def test_a_budget_that_is_none_is_refused_in_its_own_words(bad: str, said: str) -> None:
    with pytest.raises(Misused, match=said):
        budget([bad])


TASKED = {"properties": {"task": {"type": "string"}}, "required": ["task"], "additionalProperties": True}
ECHO = {"properties": {"times": {"type": "integer"}, "text": {"type": "string"}}, "required": ["text"]}


@pytest.mark.parametrize("text", ["Fix it", "fix", "Set x = 3 in a.py", "5", "@home"])
def test_a_bare_text_is_the_task_of_an_agent_that_takes_one(text: str) -> None:
    assert pairs([text, "depth=2"], TASKED) == {"task": text, "depth": 2}


def test_a_task_that_came_apart_is_to_be_quoted() -> None:
    for given_words in (["Fix", "it"], ["task=Fix", "it"]):
        with pytest.raises(Misused, match="task is given twice") as caught:
            pairs(given_words, TASKED)
        assert "quotes" in caught.value.advice


@pytest.mark.parametrize(
    ("schema", "advice"),
    [(ECHO, "Write text='Fix it'"), ({"properties": {"n": {"type": "integer"}}}, "Write n=…"), ({}, "This agent takes no parameters.")],
)
def test_the_example_for_a_bare_text_names_a_parameter_of_that_agent(schema: dict[str, object], advice: str) -> None:
    with pytest.raises(Misused, match="'Fix it' is not of the form name=value") as caught:
        pairs(["Fix it"], schema)
    assert caught.value.advice == advice


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_written_as_a_parameter_is_told_to_be_one(name: str) -> None:
    for schema in (TASKED, ECHO):
        with pytest.raises(Misused, match=f"{name} is no parameter of this agent") as caught:
            pairs([f"{name}=a b"], schema)
        assert caught.value.advice == f"Write --{name} 'a b'"
    assert pairs([f"{name}=x"], {"properties": {name: {"type": "string"}}}) == {name: "x"}
    assert pairs([f"{name}=x"]) == {name: "x"}, "of an agent nobody knows nothing is known"
