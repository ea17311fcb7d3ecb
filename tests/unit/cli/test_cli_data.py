"""How the structured result of a return is shown to a person."""

from typing import Any

import pytest

from remit.cli.data import data_lines


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        ("two\nlines", ["two", "lines"]),
        (7, ["7"]),
        ({}, ["{}"]),
        ({"path": "a.txt", "size": 3, "cut": None}, ["path  a.txt", "size  3", "cut   null"]),
        ({"content": "one\n  two\n", "path": "a"}, ["path  a", "content:", "one", "  two"]),
        ([{"path": "a", "line": 1}, {"path": "b", "line": 22}], ["- a  1", "- b  22"]),
        ([1, 2], ["[", "  1,", "  2", "]"]),
        ({"x": ""}, ['x  ""']),
    ],
)
def test_each_field_has_a_line_and_text_is_shown_as_text(data: Any, lines: list[str]) -> None:
    assert list(data_lines(data)) == lines


def test_many_entries_have_a_line_each_and_long_ones_several() -> None:
    entries = [{"path": f"file{number}", "text": "x" * 20} for number in range(10)]
    assert list(data_lines({"entries": entries}))[:2] == ["entries:", f"- file0  {'x' * 20}"]
    assert list(data_lines({"entries": [{"text": "y" * 300}]}))[1:3] == ["- {", f'    "text": "{"y" * 300}"']
