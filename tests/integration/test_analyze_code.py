"""`coder.analyze_code` (S5.2, issue 4 item 5) from end to end: in its process, with its cache, on trees that nobody should trust."""

import json
import os
import sqlite3
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from remit import Remit, Return
from remit.agents.builtin.coder.analysis.crew import Crew, Read
from remit.agents.builtin.coder.analysis.findings import Findings
from remit.agents.builtin.coder.analysis.history import read_history
from remit.agents.builtin.coder.analysis.listing import Listed, Lister
from remit.agents.builtin.coder.analysis.opening import Reader, read_one
from remit.agents.builtin.coder.analysis.running import Analysis, Asked, write_markdown, write_picture, write_whole
from remit.system.processes import children

LONG_AGO = 1_700_000_000


def grow(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        os.utime(path, (LONG_AGO, LONG_AGO))  # else it is too young to be trusted the next time
    return root


def small_project(root: Path) -> Path:
    return grow(
        root,
        {
            "pyproject.toml": '[project]\nname = "words"\ndescription = "Counts words."\n[project.scripts]\nwords = "words.main:main"\n',
            "src/words/__init__.py": '"""Words, counted."""\n',
            "src/words/main.py": 'from words.count import count\n\ndef main():\n    if count("a"):\n        print(1)\n',
            "src/words/count.py": "def count(text):\n    # TODO: other alphabets\n    return len(text.split())\n",
            "tests/test_count.py": "from words.count import count\n\ndef test_count():\n    assert count('a b') == 2\n",
        },
    )


def run(root: Path, cache: Path | None = None, **asked: Any) -> Findings:
    findings, kept = Analysis(Asked(workspace=root, cache_folder=cache, **asked)).run()
    kept.close()
    return findings


def git(root: Path, *words: str) -> None:
    names = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *names, *words], cwd=root, check=True, capture_output=True, timeout=20)


async def delegate(root: Path, **asked: Any) -> Return:
    async with Remit.open(root) as remit:
        return await remit.delegate("coder.analyze_code", parameters=asked)


async def test_a_project_is_told_as_report_picture_and_data(tmp_path: Path) -> None:
    done = await delegate(small_project(tmp_path))
    assert done.status == "completed", done.errors
    assert done.summary.startswith("9 lines of code in 4 files: Python (100 %)")
    assert done.data["name"] == "words"
    assert done.data["entryPoints"][0]["what"] == "command words = words.main:main"
    assert done.data["imports"]["mostImported"][0] == {"path": "src/words/count.py", "importedBy": 1}
    assert done.data["todos"]["items"][0]["text"] == "TODO: other alphabets"
    artifacts = {Path(a.path).name: tmp_path / a.path for a in done.artifacts}
    assert set(artifacts) == {"analysis.md", "imports.svg", "analysis.json"}
    report = artifacts["analysis.md"].read_text()
    assert "# words" in report
    assert "## Where to start" in report
    ET.fromstring(artifacts["imports.svg"].read_text())
    whole = json.loads(artifacts["analysis.json"].read_text())
    symbols = {one["path"]: [s["name"] for s in one["symbols"]] for one in whole["files"]}
    assert symbols["src/words/main.py"] == ["main"]
    assert {"from": "src/words/main.py", "to": "src/words/count.py", "count": 1, "isLazy": False} in whole["imports"]


async def test_a_second_run_reads_only_what_changed(tmp_path: Path) -> None:
    small_project(tmp_path)
    first = await delegate(tmp_path)
    grow(tmp_path, {"src/words/count.py": "def count(text):\n    return 0\n"})
    second = await delegate(tmp_path, path="src", patterns=["*.py"])
    assert (first.data["parsedNow"], first.data["fromCache"]) == (5, 0)
    assert (second.data["parsedNow"], second.data["fromCache"]) == (1, 2)
    assert second.data["todos"]["count"] == 0


async def test_a_change_that_kept_size_and_time_is_read_too(tmp_path: Path) -> None:
    """As some build tools and unpackers do it; what the system notes itself, nobody can set back."""
    grow(tmp_path, {"a.py": "def one(): pass\n"})
    await delegate(tmp_path)
    grow(tmp_path, {"a.py": "def two(): pass\n"})
    again = await delegate(tmp_path)
    whole = next(tmp_path / artifact.path for artifact in again.artifacts if artifact.path.endswith(".json"))
    assert [symbol["name"] for symbol in json.loads(whole.read_text())["files"][0]["symbols"]] == ["two"]


@pytest.mark.parametrize("path", ["../", "/etc", "out", "missing", "a\0b"])
async def test_nothing_outside_of_the_workspace_is_looked_at(tmp_path: Path, path: str) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "out").symlink_to("/etc")
    done = await delegate(root, path=path)
    assert done.status == "failed"
    assert done.errors[0].code in ("INVALID_PARAMETERS", "POLICY_DENIED", "FILE_NOT_FOUND")


async def test_a_pattern_that_is_none_is_refused(tmp_path: Path) -> None:
    done = await delegate(small_project(tmp_path), patterns=["!"])
    assert done.errors[0].code == "INVALID_PARAMETERS"


def test_files_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    root, cache = small_project(tmp_path / "p"), tmp_path / "own" / "cache"
    run(root, cache)
    (root / "src/words/count.py").unlink()
    assert run(root, cache).from_cache == 4
    with sqlite3.connect(cache / "analysis.db") as database:
        assert database.execute("SELECT count(*) FROM facts").fetchone() == (4,)


@pytest.mark.parametrize("damage", ["garbage", "truncated", "other tables", "other facts", "newer"])
def test_a_damaged_cache_is_made_anew(tmp_path: Path, damage: str) -> None:
    root, cache = small_project(tmp_path / "p"), tmp_path / "own" / "cache"
    run(root, cache)
    file = cache / "analysis.db"
    if damage == "garbage":
        file.write_bytes(b"not a database at all" * 400)
    elif damage == "truncated":
        file.write_bytes(file.read_bytes()[:5000])
    else:
        with sqlite3.connect(file) as database:
            database.execute({
                "other tables": "ALTER TABLE facts RENAME COLUMN gist TO jest",
                "other facts": """UPDATE facts SET gist = '{"language": "Python", "lines": [1]}'""",
                "newer": "PRAGMA user_version = 99",
            }[damage])  # fmt: skip
    for _ in range(2):
        assert [f.name for f in run(root, cache).survey.most_complex(1)] == ["main"]
    assert run(root, cache).from_cache == 5


def test_a_cache_that_cannot_be_used_is_done_without(tmp_path: Path) -> None:
    root = small_project(tmp_path / "p")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "cache").symlink_to(elsewhere)
    analysis = Analysis(Asked(workspace=root, cache_folder=tmp_path / "own" / "cache"))
    findings, cache = analysis.run()
    write_whole(analysis, findings, cache, tmp_path / "whole.json")
    assert len(json.loads((tmp_path / "whole.json").read_text())["files"]) == 5
    assert list(elsewhere.iterdir()) == []


def test_several_runs_at_once_share_a_cache(tmp_path: Path) -> None:
    root, cache = small_project(tmp_path / "p"), tmp_path / "own" / "cache"
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: run(root, cache), range(8)))
    assert [one.code for one in found] == [9] * 8
    assert run(root, cache).from_cache == 5


def hostile_tree(root: Path) -> Path:
    grow(
        root,
        {
            "deep.py": "(" * 3_000,
            "line.js": "x=1;" * 200_000,
            "latin.py": b"# caf\xe9\ndef caf\xe9(): pass\n",
            "nul.py": b"\0\0\0",
            "a\nb|`<script>.py": "def f(): pass  # TODO <img src=x onerror=alert(1)> `|`\n",
            os.fsdecode(b"bad\xff.py"): "import deep\n",
            "huge.py": b"x = 1\n" * 400_000,
            "lib/node_modules/left/index.js": "var a = 1;\n",
            "gen.go": "// Code generated by tool. DO NOT EDIT.\npackage a\n",
            "x.min.js": "var a;\n",
            "README.md": "# <b>Hello</b> [x](javascript:alert(1))\n\n"
            + "Words that tell what this is, long enough to be taken as prose.\n",
            "package.json": '{"name": {"a": 1}, "bin": [1], "main": 7}',
            "pyproject.toml": "this is no toml [",
            "tsconfig.json": "[1, 2",
        },
    )
    (root / "loop").symlink_to(root)
    (root / "secret.py").symlink_to("/etc/passwd")
    os.mkfifo(root / "pipe.py")
    return root


def test_a_hostile_tree_gives_a_report_that_holds(tmp_path: Path) -> None:
    root = hostile_tree(tmp_path / "p")
    analysis = Analysis(Asked(workspace=root))
    findings, cache = analysis.run()
    write_markdown(findings, tmp_path / "r.md")
    write_picture(findings, tmp_path / "i.svg")
    write_whole(analysis, findings, cache, tmp_path / "w.json")
    report = (tmp_path / "r.md").read_text()
    assert "<script>" not in report.replace("`a\ufffdb\\|ˋ<script>.py`", "")
    assert "<img" not in report.replace("\\<img", "")
    assert "](javascript" not in report.replace("\\](javascript", "")
    ET.fromstring((tmp_path / "i.svg").read_text())
    whole = json.loads((tmp_path / "w.json").read_text())
    paths = {one["path"] for one in whole["files"]}
    assert {"deep.py", "latin.py", "bad\ufffd.py"} <= paths
    assert "secret.py" not in paths
    skipped = findings.survey.skipped
    assert (skipped["links"], skipped["special files"], skipped["huge"]) == (2, 1, 1)
    assert skipped["generated or minified"] == 3
    assert skipped["folders of other people's code"] == 1
    assert findings.survey.troubles == []


@pytest.mark.parametrize("in_git", [True, False])
def test_report_and_picture_tell_of_the_same_files_folders_and_circles(tmp_path: Path, in_git: bool) -> None:
    root = grow(
        tmp_path / "p",
        {
            "src/a/one.py": "from b.two import f\n",
            "src/a/other.py": "x = 1\n",
            "src/b/two.py": "def f():\n    pass\n",
            "src/b/three.py": "from a.other import x\n",
            "src/b/empty.py": "",
            "tests/test_one.py": "def test_it():\n    pass\n",
            "third_party/y/deep/v.py": "x = 1\n",
            **{f"src/a/m{number}.py": "x = 1\n" for number in range(60)},
        },
    )
    if in_git:
        git(root, "init", "-q")
    findings = run(root)
    write_markdown(findings, tmp_path / "r.md")
    write_picture(findings, tmp_path / "i.svg")
    report, picture = (tmp_path / "r.md").read_text(), (tmp_path / "i.svg").read_text()
    assert "**Not tangled**" in report
    assert "Folders do: `src/a/` and `src/b/` import one another" in report
    assert "The picture leaves out 1 test file and 1 file without code." in report
    assert "in 66 files" in report
    assert "64 files in 2 folders" in picture
    assert "left out: 1 test file and 1 file without code" in picture
    assert "other people's code: 1 (in `third_party/`)" in report
    assert report.index("## In short") < report.index("<!-- more -->") < report.index("## How it is built")


def test_a_folder_that_turned_into_a_link_is_not_entered(tmp_path: Path) -> None:
    root = grow(tmp_path / "p", {"a/b.py": "x = 1\n"})
    listing = Lister(root, "", [], lambda: False).listing()
    (root / "a").rename(tmp_path / "away")
    (root / "a").symlink_to(tmp_path / "away")
    reader = Reader(root)
    assert read_one(reader, listing.files[0])[2].startswith("unreadable")
    reader.close()


@pytest.mark.parametrize("is_checkout", [False, True])
def test_what_git_ignores_is_not_read(tmp_path: Path, is_checkout: bool) -> None:
    root = grow(
        tmp_path,
        {".gitignore": "*.log.py\n/build/\n!keep.log.py\n", "a.py": "", "b.log.py": "", "keep.log.py": "", "build/c.py": "",
         "sub/build/d.py": "",
         "sub/.gitignore": "e.py\n", "sub/e.py": "", "e.py": ""},
    )  # fmt: skip
    if is_checkout:
        git(root, "init", "-q")
        git(root, "add", "a.py")
    listing = Lister(root, "", ["*.py"], lambda: False).listing()
    assert [one.path for one in listing.files] == ["a.py", "e.py", "keep.log.py", "sub/build/d.py"]
    assert listing.by_git is is_checkout
    assert [one.path for one in Lister(root, "sub", [], lambda: False).listing().files] == ["sub/.gitignore", "sub/build/d.py"]


def test_a_repository_inside_of_another_is_read_when_it_is_named(tmp_path: Path) -> None:
    root = grow(tmp_path, {"a.py": "", "inner/b.py": "", "inner/.gitignore": "c.py\n", "inner/c.py": ""})
    git(root, "init", "-q")
    git(root / "inner", "init", "-q")
    assert run(root).survey.skipped["repositories inside of it"] == 1
    assert [m.path for m in run(root, below="inner").survey.members] == ["inner/b.py"]


def test_history_shows_what_changes_often_and_runs_nothing_of_the_repository(tmp_path: Path) -> None:
    root = small_project(tmp_path / "p")
    git(root, "init", "-q")
    proof = tmp_path / "proof"
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {proof}\n")
    trap.chmod(0o755)
    (root / ".gitattributes").write_text("*.py diff=evil filter=evil\n")
    for turn in range(3):
        (root / "src/words/main.py").write_text(f"def main(x):\n    if x and {turn}:\n        return 1\n    return 2\n")
        git(root, "add", "-A")
        git(root, "commit", "-qm", "x")
    for name in (
        "diff.external",
        "diff.evil.command",
        "diff.evil.textconv",
        "core.fsmonitor",
        "core.pager",
        "gpg.program",
        "filter.evil.clean",
    ):
        git(root, "config", name, str(trap))
    git(root, "config", "log.showSignature", "true")
    findings = run(root)
    assert [spot.member.path for spot in findings.hot_spots] == ["src/words/main.py"]
    assert (findings.hot_spots[0].churn.commits, findings.history.commits) == (3, 3)
    assert read_history(root, "src/words").files.keys() == {f"src/words/{name}.py" for name in ("__init__", "main", "count")}
    assert not proof.exists()


def test_at_the_soft_deadline_what_there_is_is_handed_in_and_the_next_run_goes_on(tmp_path: Path) -> None:
    root = grow(tmp_path / "p", {f"m{n:03}.py": "def f(): pass\n" for n in range(200)})
    cache = tmp_path / "own" / "cache"
    looks = iter([False, False, True, *[True] * 1000])
    first = run(root, cache, is_over=lambda: next(looks))
    assert 0 < first.left < 200
    second = run(root, cache)
    assert second.left == 0
    assert (second.from_cache, second.parsed_now) == (200 - first.left, first.left)


def _sabotaged(reader: Reader, one: Listed) -> tuple[str, str, str]:
    if one.path == "crash.py":
        os.abort()
    if one.path == "hang.py":
        time.sleep(600)
    if one.path == "odd.py":
        return "\n", "\n", "\n"
    return read_one(reader, one)


def test_a_file_that_crashes_or_hangs_the_parser_costs_only_itself(tmp_path: Path) -> None:
    root = grow(tmp_path, {f"{name}.py": "x = 1\n" for name in ["crash", "hang", *(f"m{n:03}" for n in range(150))]})
    files = Lister(root, "", [], lambda: False).listing().files
    before = set(children(os.getpid()) or ())
    read = {r.one.path: r for r in Crew(root, files, _sabotaged, file_seconds=1.0).run(lambda: False)}
    assert len(read) == 152
    assert {path for path, one in read.items() if one.trouble} == {"crash.py", "hang.py"}
    assert "crashed" in read["crash.py"].trouble
    assert "longer than 1 s" in read["hang.py"].trouble
    assert set(children(os.getpid()) or ()) <= before


def test_a_worker_that_answers_nonsense_is_not_believed(tmp_path: Path) -> None:
    root = grow(tmp_path, {"odd.py": "", "m.py": ""})
    read: list[Read] = list(Crew(root, Lister(root, "", [], lambda: False).listing().files, _sabotaged).run(lambda: False))
    assert [(r.one.path, bool(r.trouble)) for r in read if r.one.path == "odd.py"] == [("odd.py", True)]


def test_languages_that_are_not_parsed_are_counted_by_lines(tmp_path: Path) -> None:
    findings = run(
        grow(tmp_path, {"a.rb": "x\n\ny\n", "b.weird": "1\n", "run": "#!/usr/bin/env python3\ndef f(): pass\n", "Makefile": "all:\n"})
    )
    assert {name: tally.lines for name, tally in findings.survey.tallies.items()} == {
        "Ruby": 3,
        ".weird": 1,
        "Python": 2,
        "no extension": 1,
    }
    assert [e.path for e in findings.survey.entries] == ["run"]


def test_a_header_is_read_as_what_there_is_more_of(tmp_path: Path) -> None:
    text = "class A { int f() { return 1; } };\n"
    findings = run(grow(tmp_path, {"a.cpp": text, "b.cc": text, "c.c": "", "d.h": text}))
    assert {m.path: m.language for m in findings.survey.members}["d.h"] == "C++"


def test_importing_the_coder_loads_no_grammar() -> None:
    words = "import sys, remit.agents.builtin.coder.analysis; print([m for m in sys.modules if m.startswith('tree_sitter')])"
    assert subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True, timeout=30).stdout == "[]\n"
