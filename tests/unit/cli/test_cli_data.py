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
        ({"note": "one\n  two\n", "path": "a"}, ["path  a", "note:", "  one", "    two"]),
        ([{"name": "a", "n": 1}, {"name": "bb", "n": 22}], ["name   n", "a      1", "bb    22"]),
        ([1, 2], ["- 1", "- 2"]),
        ({"words": ["a", "b"], "none": []}, ["words  a, b", "none   []"]),
        ({"x": ""}, ['x  ""']),
        ({"a": {"b": {"c": 1}}}, ["a:", "  b:", "    c  1"]),
        ([{"a": [{"b": 1}]}], ["- a:", "    - b  1"]),
        ({"inf": float("inf"), 3: "x"}, ["inf  null", "3    x"]),
    ],
)
def test_each_field_has_a_line_and_text_is_shown_as_text(data: Any, lines: list[str]) -> None:
    assert list(data_lines(data)) == lines


def test_data_of_any_depth_is_told_in_lines_of_bounded_length() -> None:
    deep: Any = "bottom"
    for _ in range(200):
        deep = {"down": deep, "list": [deep] if isinstance(deep, str) else []}
    assert max(map(len, data_lines(deep))) < 200


def test_the_entries_of_a_folder_look_like_a_list_of_files() -> None:
    entries = [
        {"path": "a", "type": "folder", "sizeBytes": 4096, "modifiedAt": "2026-01-02T03:04:05+00:00"},
        {"path": "a/b.txt", "type": "file", "sizeBytes": 1234, "modifiedAt": "2026-01-02T03:04:05+00:00"},
        {"path": "c", "type": "link", "sizeBytes": 3, "modifiedAt": None},
    ]
    assert list(data_lines({"path": ".", "entries": entries, "files": 1})) == [
        "          2026-01-02 03:04  a/",
        "  1.2 kB  2026-01-02 03:04  a/b.txt",
        "                            c@",
    ]


def test_matches_look_like_the_output_of_grep() -> None:
    matches = [{"path": "a.py", "line": 3, "column": 1, "text": "\tx = 1  "}, {"path": "b.py", "line": 7, "column": 2, "text": "y"}]
    assert list(data_lines({"matches": matches, "matchCount": 2})) == ["a.py:3:     x = 1", "b.py:7: y"]


def test_lines_around_matches_are_told_once_and_apart_from_others() -> None:
    matches = [
        {"path": "a", "line": 2, "text": "two", "before": ["one"], "after": ["three"]},
        {"path": "a", "line": 4, "text": "four", "before": ["three"], "after": []},
        {"path": "a", "line": 9, "text": "nine", "before": ["eight"], "after": []},
    ]
    assert list(data_lines({"matches": matches})) == ["a-1- one", "a:2: two", "a-3- three", "a:4: four", "--", "a-8- eight", "a:9: nine"]


def test_the_text_of_a_file_and_what_a_program_printed_stand_alone() -> None:
    assert list(data_lines({"path": "a", "encoding": "utf-8", "content": "one\ntwo\n"})) == ["one", "two"]
    assert "content" in list(data_lines({"path": "a", "encoding": "base64", "content": "AAAA"}))[-1]
    assert list(data_lines({"exitCode": 0, "stdout": "hi\n", "stderr": "careful\n", "sandbox": {}})) == ["hi", "stderr:", "careful"]


def test_what_a_web_search_found_has_title_address_and_snippet() -> None:
    found = {"results": [{"title": "Owls", "url": "https://owls.example/", "snippet": "They\nfly."}]}
    assert list(data_lines(found)) == ["1. Owls", "   https://owls.example/", "   They fly."]
