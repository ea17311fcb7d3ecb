"""`worker.search_files`: matches with their places, what is left out, and searches that are stopped."""

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remit import Remit
from remit.builtin.worker.search import Matches
from remit.system.beneath import Root
from remit.system.processes import MARK
from support.pace import until


@pytest.fixture
async def remit(tmp_path: Path) -> AsyncIterator[Remit]:
    async with Remit.open(tmp_path) as opened:
        yield opened


async def search(remit: Remit, **parameters: Any) -> Any:
    done = await remit.delegate("worker.search_files", parameters=parameters)
    assert done.ok, done.errors
    assert not done.warnings, done.warnings
    return done.data


def plant(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def test_each_match_has_its_line_and_its_column_in_characters(remit: Remit, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("first\ngrüße an alle: hello, hello\r\nlast hello")
    (tmp_path / "b.txt").write_text("nothing\n")
    data = await search(remit, pattern="hello")
    assert data["matches"] == [
        {"path": "src/a.py", "line": 2, "column": 16, "text": "grüße an alle: hello, hello"},
        {"path": "src/a.py", "line": 3, "column": 6, "text": "last hello"},
    ]
    assert (data["filesSearched"], data["filesMatched"], data["truncated"], data["searchedWith"]) == (2, 1, False, "ripgrep")


async def test_text_is_taken_as_it_stands_unless_it_is_said_to_be_an_expression(remit: Remit, tmp_path: Path) -> None:
    plant(tmp_path, a="f(x) = [1]\nfoo(\nFOO\n")
    assert [one["line"] for one in (await search(remit, pattern="(x) = ["))["matches"]] == [1]
    assert [one["line"] for one in (await search(remit, pattern=r"^f\w+\($", regex=True))["matches"]] == [2]
    assert [one["line"] for one in (await search(remit, pattern="foo", ignore_case=True))["matches"]] == [2, 3]
    assert (await search(remit, pattern="--files"))["matches"] == []


@pytest.mark.parametrize(("pattern", "position"), [("ab[", "2"), ("(?P<n", ""), ("x(y", ""), ("a{2,1}", ""), ("*x", "")])
async def test_what_is_no_expression_is_told_with_its_place(remit: Remit, tmp_path: Path, pattern: str, position: str) -> None:
    plant(tmp_path, a="x")
    done = await remit.delegate("worker.search_files", pattern=pattern, regex=True)
    assert done.errors[0].code == "INVALID_PARAMETERS", done
    assert "is not a regular expression" in done.errors[0].message
    assert f"at position {position}" in done.errors[0].message


@pytest.mark.parametrize("pattern", ["", "a\nb", "a\0b", "x" * 5000, "\ud800"])
async def test_what_cannot_be_searched_for_is_told_so(remit: Remit, tmp_path: Path, pattern: str) -> None:
    done = await remit.delegate("worker.search_files", pattern=pattern)
    assert done.errors[0].code == "INVALID_PARAMETERS", done


async def test_what_git_ignores_and_what_is_not_text_is_left_out(remit: Remit, tmp_path: Path) -> None:
    plant(tmp_path, _dot_gitignore="*.log\n/src/gen\n", a="hit", x_dot_log="hit", src__gen__g="hit", src__s="hit", _dot_github__w="hit")
    plant(tmp_path, src__deep___dot_gitignore="no\n", src__deep__no="hit", src__deep__yes="hit", _dot_git__info__exclude="excluded\n")
    plant(tmp_path, excluded="hit", src__excluded="hit", _dot_git__config="hit")
    (tmp_path / "binary").write_bytes(b"\0hit\n")
    (tmp_path / "link").symlink_to("a")
    paths = [one["path"] for one in (await search(remit, pattern="hit"))["matches"]]
    assert paths == [".github/w", "a", "src/deep/yes", "src/s"]
    assert [one["path"] for one in (await search(remit, pattern="hit", path="src"))["matches"]] == ["src/deep/yes", "src/s"]
    assert [one["path"] for one in (await search(remit, pattern="hit", path="src/deep"))["matches"]] == ["src/deep/yes"]
    assert [one["path"] for one in (await search(remit, pattern="hit", path="src/gen"))["matches"]] == ["src/gen/g"]
    assert "x.log" in [one["path"] for one in (await search(remit, pattern="hit", include_ignored=True))["matches"]]
    assert [one["path"] for one in (await search(remit, pattern="hit", recursive=False))["matches"]] == ["a"]


async def test_a_glob_narrows_the_search_and_takes_in_nothing_that_is_ignored(remit: Remit, tmp_path: Path) -> None:
    plant(
        tmp_path,
        _dot_gitignore="gen.py\n",
        a_dot_py="hit",
        b_dot_txt="hit",
        src__c_dot_py="hit",
        src__deep__d_dot_py="hit",
        gen_dot_py="hit",
    )
    for glob, expected in {
        "*.py": ["a.py", "src/c.py", "src/deep/d.py"],
        "src/*.py": ["src/c.py"],
        "src/**/*.py": ["src/c.py", "src/deep/d.py"],
        "*.{txt,md}": ["b.txt"],
        "[ab].*": ["a.py", "b.txt"],
        "[": [],
        "include:py": [],
    }.items():
        assert [one["path"] for one in (await search(remit, pattern="hit", glob=glob))["matches"]] == expected, glob


async def test_one_file_can_be_searched_and_lines_round_a_match_shown(remit: Remit, tmp_path: Path) -> None:
    plant(tmp_path, src__a="1\n2\nhit\n4\nhit\n6\n7\n", b="hit")
    data = await search(remit, pattern="hit", path="src/a", context_lines=2)
    assert data["matches"] == [
        {"path": "src/a", "line": 3, "column": 1, "text": "hit", "before": ["1", "2"], "after": ["4", "hit"]},
        {"path": "src/a", "line": 5, "column": 1, "text": "hit", "before": ["hit", "4"], "after": ["6", "7"]},
    ]


async def test_encodings_and_odd_names_do_not_hide_a_match(remit: Remit, tmp_path: Path) -> None:
    (tmp_path / "u16").write_text("erste\nhit hier\n", encoding="utf-16")
    (tmp_path / "bom").write_text("\ufeffhit\nhit\n", encoding="utf-8")
    (tmp_path / "latin").write_bytes(b"caf\xe9 hit\n")
    (tmp_path / "new\nline").write_text("hit\n")
    (tmp_path / "-rf").write_text("hit\n")
    (tmp_path / "a:1:2:b").write_text("hit\n")
    (tmp_path / "late").write_bytes(b"hit\n" + b"x" * 100_000 + b"\0\n")
    (tmp_path / os.fsdecode(b"\xff")).write_text("hit\n")
    data = await search(remit, pattern="hit")
    found = {(one["path"], one["line"]): (one["column"], one["text"]) for one in data["matches"]}
    assert found["u16", 2] == (1, "hit hier")
    assert found["bom", 2] == (1, "hit")
    assert found["latin", 1] == (6, "café hit")
    assert {"new\nline", "-rf", "a:1:2:b"} <= {path for path, _ in found}


async def test_many_matches_and_long_lines_are_cut_and_that_is_said(remit: Remit, tmp_path: Path) -> None:
    plant(tmp_path, many="hit\n" * 5000, long="ä" * 3000 + "hit" + "z" * 3000 + "\n")
    data = await search(remit, pattern="hit", path="many", max_results=10)
    assert (len(data["matches"]), data["truncated"]) == (10, True)
    assert "there are more" in data["notes"][0]
    (one,) = (await search(remit, pattern="hit", path="long"))["matches"]
    assert one["column"] == 3001
    assert len(one["text"]) < 500
    assert "ähitz" in one["text"]
    assert one["text"].startswith("…")


async def test_what_the_policy_lets_nobody_read_is_not_found_either(remit: Remit, tmp_path: Path) -> None:
    plant(tmp_path, _dot_env="PASSWORD=hit", a="hit")
    data = await search(remit, pattern="hit")
    assert [one["path"] for one in data["matches"]] == ["a"]
    assert "policy" in data["notes"][0]


async def test_a_cancelled_search_leaves_no_process(tmp_path: Path) -> None:
    plant(tmp_path, b="x")
    os.mkfifo(tmp_path / ".gitignore")  # ripgrep waits for it for ever
    async with Remit.open(tmp_path) as remit:
        handle = await remit.start("worker.search_files", pattern="x")
        await until(lambda: bool(marked(tmp_path)))
        await handle.cancel("enough")
        await until(lambda: not marked(tmp_path))


async def test_an_ignore_file_that_is_a_pipe_or_without_end_ends_at_the_deadline(tmp_path: Path) -> None:
    plant(tmp_path, a="hit", sub__b="hit")
    (tmp_path / "sub" / ".gitignore").symlink_to("/dev/zero")
    (tmp_path / "other").mkdir()
    os.mkfifo(tmp_path / "other" / ".gitignore")
    async with Remit.open(tmp_path) as remit:
        done = await remit.delegate("worker.search_files", pattern="hit", timeout=2)
        assert "a" in [one["path"] for one in done.data["matches"]]
    assert not marked(tmp_path)


def test_what_the_program_says_is_believed_only_where_it_is_so(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / "sub", root / ".remit", outside):
        folder.mkdir(parents=True)
        (folder / "file").write_text("first\nneedle\n")
    (root / "out").symlink_to(outside)
    (root / "link").symlink_to(outside / "file")
    (root / "inner").symlink_to("sub")
    with Root(root) as opened:
        matches = Matches(opened, only=None, most=100, glob=None)
        for name in ("out/file", "link", "../outside/file", str(outside / "file"), ".remit/file", "inner/file", "nothing", "sub"):
            matches.feed(os.fsencode(name) + b"\x002:1:6:needle\n")
        for said in (b"2:1:6:other", b"2:1:7:needle", b"1:1:0:needle", b"2:1:600000:needle", b"2:1:6:needle and more"):
            matches.feed(b"./sub/file\0" + said + b"\n")
        assert matches.to_data(0) == []
        matches.feed(b"./sub/fi")
        matches.feed(b"le\x002:1:6:need")
        matches.feed(b"le\n")
        matches.close()
    assert matches.to_data(0) == [{"path": "sub/file", "line": 2, "column": 1, "text": "needle"}]


def marked(root: Path) -> list[int]:
    """Processes that work in this folder and carry the mark of a delegation."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{entry}/cwd") == str(root) and f"{MARK}=".encode() in Path("/proc", entry, "environ").read_bytes():
                found.append(int(entry))
    return found
