"""`worker.search_files`: matches, ignored files, limits and cancellation."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remit import Remit
from support.census import processes_left
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


def write_files(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def test_match_has_line_and_column_in_characters(remit: Remit, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("first\ngrüße an alle: hello, hello\r\nlast hello")
    (tmp_path / "b.txt").write_text("nothing\n")
    data = await search(remit, pattern="hello")
    assert data["matches"] == [
        {"path": "src/a.py", "line": 2, "column": 16, "text": "grüße an alle: hello, hello"},
        {"path": "src/a.py", "line": 3, "column": 6, "text": "last hello"},
    ]
    assert (data["filesSearched"], data["matchCount"], data["truncated"]) == (2, 2, False)


async def test_pattern_is_literal_unless_regex_is_set(remit: Remit, tmp_path: Path) -> None:
    write_files(tmp_path, a="f(x) = [1]\nfoo(\nFOO\n")
    assert [one["line"] for one in (await search(remit, pattern="(x) = ["))["matches"]] == [1]
    assert [one["line"] for one in (await search(remit, pattern=r"^f\w+\($", regex=True))["matches"]] == [2]
    assert [one["line"] for one in (await search(remit, pattern="foo", ignore_case=True))["matches"]] == [2, 3]
    assert (await search(remit, pattern="--files"))["matches"] == []


@pytest.mark.parametrize("pattern", ["ab[", "(?P<n", "a{2,1}", "*x"])
async def test_invalid_regular_expression_is_refused(remit: Remit, tmp_path: Path, pattern: str) -> None:
    write_files(tmp_path, a="x")
    done = await remit.delegate("worker.search_files", pattern=pattern, regex=True)
    assert done.errors[0].code == "INVALID_PARAMETERS", done
    assert "is not a regular expression" in done.errors[0].message


async def test_ignored_and_binary_files_are_skipped(remit: Remit, tmp_path: Path) -> None:
    write_files(
        tmp_path, _dot_gitignore="*.log\n/src/gen\n", a="hit", x_dot_log="hit", src__gen__g="hit", src__s="hit", _dot_github__w="hit"
    )
    write_files(tmp_path, src__deep___dot_gitignore="no\n", src__deep__no="hit", src__deep__yes="hit", _dot_git__config="hit")
    (tmp_path / "binary").write_bytes(b"\0hit\n")
    (tmp_path / "link").symlink_to("a")
    paths = [one["path"] for one in (await search(remit, pattern="hit"))["matches"]]
    assert paths == [".github/w", "a", "src/deep/yes", "src/s"]
    assert [one["path"] for one in (await search(remit, pattern="hit", path="src"))["matches"]] == ["src/deep/yes", "src/s"]
    assert [one["path"] for one in (await search(remit, pattern="hit", path="src/deep"))["matches"]] == ["src/deep/yes"]
    assert [one["path"] for one in (await search(remit, pattern="hit", path="src/gen"))["matches"]] == ["src/gen/g"]
    assert "x.log" in [one["path"] for one in (await search(remit, pattern="hit", include_ignored=True))["matches"]]
    assert [one["path"] for one in (await search(remit, pattern="hit", recursive=False))["matches"]] == ["a"]


async def test_glob_filters_and_does_not_include_ignored_files(remit: Remit, tmp_path: Path) -> None:
    write_files(
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


async def test_encodings_and_odd_names_do_not_hide_a_match(remit: Remit, tmp_path: Path) -> None:
    (tmp_path / "bom").write_text("\ufeffhit\nhit\n", encoding="utf-8")
    (tmp_path / "latin").write_bytes(b"caf\xe9 hit\n")
    (tmp_path / "new\nline").write_text("hit\n")
    (tmp_path / "-rf").write_text("hit\n")
    (tmp_path / "a:1:2:b").write_text("hit\n")
    (tmp_path / "late").write_bytes(b"hit\n" + b"x" * 100_000 + b"\0\n")
    (tmp_path / os.fsdecode(b"\xff")).write_text("hit\n")
    data = await search(remit, pattern="hit")
    found = {(one["path"], one["line"]): (one["column"], one["text"]) for one in data["matches"]}
    assert found["bom", 2] == (1, "hit")
    assert found["latin", 1] == (6, "café hit")
    assert {"new\nline", "-rf", "a:1:2:b"} <= {path for path, _ in found}


async def test_files_forbidden_by_the_policy_are_not_searched(remit: Remit, tmp_path: Path) -> None:
    write_files(tmp_path, _dot_env="PASSWORD=hit", a="hit")
    data = await search(remit, pattern="hit")
    assert [one["path"] for one in data["matches"]] == ["a"]
    assert "policy" in data["notes"][0]


async def test_cancelled_search_leaves_no_process(tmp_path: Path) -> None:
    write_files(tmp_path, b="x")
    os.mkfifo(tmp_path / ".gitignore")  # ripgrep blocks on it
    async with Remit.open(tmp_path) as remit:
        handle = await remit.start("worker.search_files", pattern="x")
        await until(lambda: bool(processes_left(remit)))
        await handle.cancel("enough")
        await until(lambda: not processes_left(remit))


async def test_blocking_ignore_file_ends_at_the_deadline(tmp_path: Path) -> None:
    write_files(tmp_path, a="hit", sub__b="hit")
    (tmp_path / "sub" / ".gitignore").symlink_to("/dev/zero")
    (tmp_path / "other").mkdir()
    os.mkfifo(tmp_path / "other" / ".gitignore")
    async with Remit.open(tmp_path) as remit:
        done = await remit.delegate("worker.search_files", pattern="hit", timeout=2)
        assert "a" in [one["path"] for one in done.data["matches"]]
        assert not processes_left(remit)
