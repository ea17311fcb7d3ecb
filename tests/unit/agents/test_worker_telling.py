"""What the worker says of a file: how many lines it has, and a path that reads as one."""

import pytest

from remit.agents.builtin.worker.workspace import lines_in, named


@pytest.mark.parametrize("end", [chr(number) for number in range(128)] + ["\r\n", "\x85", "\u2028", "\u2029", "ü"])
def test_lines_are_counted_as_they_are_split(end: str) -> None:
    for text in ("", end, f"a{end}", f"a{end}b", f"{end}\n", f"\n{end}a", f"a\nb{end}c\n", "a\nb", "\n\n"):
        assert lines_in(text) == len(text.splitlines()), repr(text)


@pytest.mark.parametrize("path", ["a**b", "a`b", "a<b", "a](b", "# a", " a", "a\nb", "a" * 101])
def test_a_path_that_would_read_as_something_else_is_not_repeated(path: str) -> None:
    assert named(path) == "The path"
    assert named("src/a*b_#1.md") == "src/a*b_#1.md"
