"""The beginning of a report at the prompt: plain lines, no marks, never more than asked for."""

import os
from pathlib import Path

import pytest

from remit.cli.reports import MOST_LINES, beginning, beginning_of
from remit.core.result import Artifact


def test_markdown_is_shown_without_its_marks() -> None:
    text = """# Title

## Answer

- “It **is** so” [1] `a/__main__.py:3`
- [2] `b.py:1-2`

  ```py
  if x:
      y = "`"
  ```

1. one \\<b> and [a link](https://x.example)
1. two

| name | n |
|---|---|
| `a` | 1 |

![picture](x.svg)
"""
    assert beginning(text).lines == (
        "Answer",
        "",
        "- “It is so” [1] a/__main__.py:3",
        "- [2] b.py:1-2",
        "",
        "      if x:",
        '          y = "`"',
        "",
        "1. one <b> and a link",
        "2. two",
        "",
        "name  n",
        "a     1",
    )


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("- **`fix.patch:20`** is wrong *(correctness/syntax)*", "- fix.patch:20 is wrong (correctness/syntax)"),
        ("*In progress: `x*y` and `*z`.*", "In progress: x*y and *z."),
        ("**bold *and* `code`**", "bold and code"),
        (r"2 * 3 and \*kept\* and `\*`", r"2 * 3 and *kept* and \*"),
        ("a &lt;b> and [`c`](d.md)", "a <b> and c"),
        ("| `a\\|b` |", "a|b"),
        ("\0" + "0\0", "\ufffd0\ufffd"),
    ],
)
def test_marks_around_code_vanish_wholly_and_what_is_no_mark_stays(marked: str, plain: str) -> None:
    assert beginning(f"# T\n\n{marked}\n").lines == (plain,)


def test_it_ends_where_the_report_says_so_or_where_a_part_ends_that_fits() -> None:
    marked = beginning("# T\n\none\n\n<!-- more -->\n\ntwo\nthree\n")
    assert marked.lines == ("one",)
    assert marked.left == 3
    long = beginning("\n\n".join("\n".join(["line"] * 10) for _ in range(5)))
    assert len(long.lines) == 21
    assert long.left > 20
    assert len(beginning("\n".join(["line"] * 100)).lines) == MOST_LINES


def report(path: str) -> Artifact:
    return Artifact(path=path, type="report")


def test_only_a_readable_file_of_the_project_is_read(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (tmp_path / "outside.md").write_text("secret")
    (root / "link.md").symlink_to(tmp_path / "outside.md")
    os.mkfifo(root / "pipe.md")
    (root / "folder.md").mkdir()
    (root / "good.md").write_bytes(b"# T\n\nfine \xff\n")
    for path in ("../outside.md", str(tmp_path / "outside.md"), "link.md", "pipe.md", "folder.md", "missing.md", "bad\x00.md"):
        assert beginning_of([report(path)], root) is None, path
    found = beginning_of([Artifact(path="good.md", type="data"), report("missing.md"), report("good.md")], root)
    assert found is not None
    assert found.lines == ("fine \ufffd",)


@pytest.mark.parametrize("text", ["", "#", "|", "```", "1. ", "<!-- more -->", "\\", "`" * 300, "[" * 3000, "*" * 3000, "|" * 3000])
def test_any_text_has_a_beginning(text: str) -> None:
    assert len(beginning(text).lines) <= MOST_LINES
