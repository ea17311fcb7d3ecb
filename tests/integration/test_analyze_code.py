"""`coder.analyze_code`: symbols of each language, import resolution, and hostile trees."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from remit import Remit, Return
from remit.builtin.coder.analysis import file_facts
from remit.builtin.coder.analysis.survey import analyse
from support.repository import begin, git

LANGUAGES = {
    "a.py": ("class Book:\n    def read(self, n):\n        return n if n and self else 0\n", "Book read:3"),
    "a.js": ("class Counter { count(t) { if (t) { return 1; } } }\nconst arrow = (x) => x && 1;\n", "Counter count:2 arrow:2"),
    "a.ts": ("interface Shape { area(): number }\nenum Colour { Red }\nfunction deep(): void {}\n", "Shape Colour deep:1"),
    "a.go": ("package a\n\ntype Name struct{}\n\nfunc (n *Name) Add(i int) {\n\tif i > 0 {\n\t}\n}\n", "Name Add:2"),
    "a.rs": ("struct Counter;\nimpl Counter { pub fn add(&self, k: bool) -> u32 { if k { 1 } else { 2 } } }\n", "Counter add:2"),
    "A.java": ("class Counter {\n    int count(int n) { for (;;) { if (n > 0) { break; } } return n; }\n}\n", "Counter count:3"),
    "a.c": ("struct word { int n; };\nstatic int find(int s) { while (s) { s--; } return s ? 1 : 0; }\n", "word find:3"),
    "a.cc": ("class Counter {\n int count() { for (auto x : xs) { } return 0; }\n};\n", "Counter count:2"),
    "a.rb": ("class Counter\n  def count(words)\n    if words\n      1\n    end\n  end\nend\n", "count:2"),
}
"""A file of each language, with its symbols and their complexity."""

PROJECTS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "py": (
        {
            "src/pkg/__init__.py": "from pkg.core import run\n",
            "src/pkg/core.py": "import os\nfrom . import tools\nfrom .deep.inner import x\nfrom pkg.tools import y\n",
            "src/pkg/tools.py": "import pkg.deep.inner\nfrom pkg.missing import nothing\n",
            "src/pkg/deep/__init__.py": "",
            "src/pkg/deep/inner.py": "from ..tools import y\n",
            "src/pkg/types.py": "import random\nimport requests\n",
            "src/pkg/random.py": "import types\n",
            "tests/test_core.py": "from pkg import core\nimport helper\n",
            "tests/helper.py": "",
        },
        {
            "src/pkg/__init__.py": "src/pkg/core.py",
            "src/pkg/core.py": "src/pkg/tools.py src/pkg/deep/inner.py",
            "src/pkg/tools.py": "src/pkg/deep/inner.py",
            "src/pkg/deep/inner.py": "src/pkg/tools.py",
            "tests/test_core.py": "src/pkg/core.py tests/helper.py",
        },
    ),
    "js": (
        {
            "src/a.ts": "import './b';\nimport x from './c.js';\nimport z from '../e';\nimport 'react';\nimport y from './d';\n",
            **dict.fromkeys(["src/b.tsx", "src/c.ts", "src/d/d2.ts", "e.mjs"], ""),
            "src/d/index.ts": "export * from './d2';\n",
        },
        {"src/a.ts": "src/b.tsx src/c.ts src/d/index.ts e.mjs", "src/d/index.ts": "src/d/d2.ts"},
    ),
}


def write_files(root: Path, files: dict[str, str | bytes] | dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    return root


def small_project(root: Path) -> Path:
    return write_files(
        root,
        {
            "src/words/__init__.py": '"""Words, counted."""\n',
            "src/words/main.py": 'from words.count import count\n\ndef main():\n    if count("a"):\n        print(1)\n',
            "src/words/count.py": "def count(text):\n    # TODO: other alphabets\n    return len(text.split())\n",
            "tests/test_count.py": "from words.count import count\n\ndef test_count():\n    assert count('a b') == 2\n",
        },
    )


async def delegate(root: Path, **parameters: Any) -> Return:
    async with Remit.open(root) as remit:
        return await remit.delegate("coder.analyze_code", parameters=parameters)


def run(root: Path, out: Path, **parameters: Any) -> dict[str, Any]:
    """Run in this process, without a delegation."""
    out.mkdir(exist_ok=True)
    return analyse(root, out, **parameters)


@pytest.fixture(scope="module")
def polyglot(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One analysis of every language and project above."""
    root, out = tmp_path_factory.mktemp("polyglot"), tmp_path_factory.mktemp("out")
    for folder, (files, _) in PROJECTS.items():
        write_files(root / folder, files)
    run(write_files(root / "lang", {name: text for name, (text, _) in LANGUAGES.items()}).parent, out)
    whole: dict[str, Any] = json.loads((out / "analysis.json").read_text())
    whole["byPath"] = {one["path"]: one for one in whole["files"]}
    return whole


@pytest.mark.parametrize("name", LANGUAGES)
def test_symbols_and_their_complexity_are_found(polyglot: dict[str, Any], name: str) -> None:
    symbols = polyglot["byPath"][f"lang/{name}"]["symbols"]
    found = [one["name"] + (f":{one['complexity']}" if "complexity" in one else "") for one in symbols]
    assert found == LANGUAGES[name][1].split()


@pytest.mark.parametrize("folder", PROJECTS)
def test_imports_are_resolved_to_project_files_and_cycles_listed(polyglot: dict[str, Any], folder: str) -> None:
    edges = {(one["from"], one["to"]) for one in polyglot["imports"] if not one["isLazy"] and one["from"].startswith(f"{folder}/")}
    assert edges == {(f"{folder}/{start}", f"{folder}/{end}") for start, ends in PROJECTS[folder][1].items() for end in ends.split()}
    (cycle,) = polyglot["summary"]["imports"]["cycles"]
    assert sorted(cycle["files"]) == ["py/src/pkg/deep/inner.py", "py/src/pkg/tools.py"]


async def test_project_analysis_returns_a_report_and_data(tmp_path: Path) -> None:
    done = await delegate(small_project(tmp_path))
    assert done.status == "completed", done.errors
    assert done.summary.startswith("11 lines of code in 4 files: Python (100 %)")
    assert done.data["imports"]["mostImported"][0] == {"path": "src/words/count.py", "importedBy": 1}
    artifacts = {Path(a.path).name: tmp_path / a.path for a in done.artifacts}
    assert set(artifacts) == {"analysis.md", "analysis.json"}
    report = artifacts["analysis.md"].read_text()
    assert report.index("## The most complex functions") < report.index("<!-- more -->") < report.index("## How it is built")
    assert 'n0["src/words/__init__.py"]' in report
    assert "n2 --> n1" in report
    assert [one["path"] for one in done.data["tests"]["untouchedFiles"]] == ["src/words/main.py"]
    part = await delegate(tmp_path, path="src", patterns=["count.py"])
    assert (part.data["path"], part.data["files"]) == ("src", 1)


@pytest.mark.parametrize("parameters", [*({"path": path} for path in ("../", "/etc", "out", "missing", "a\0b")), {"patterns": ["!"]}])
async def test_path_outside_the_workspace_and_invalid_pattern_are_refused(tmp_path: Path, parameters: dict[str, Any]) -> None:
    root = small_project(tmp_path / "project")
    (root / "out").symlink_to("/etc")
    done = await delegate(root, **parameters)
    assert done.status == "failed"
    assert done.errors[0].code in ("INVALID_PARAMETERS", "POLICY_DENIED", "FILE_NOT_FOUND")


def test_hostile_file_tree_gives_a_valid_report(tmp_path: Path) -> None:
    root = write_files(
        tmp_path / "p",
        {
            "deep.py": "(" * 3_000,
            "line.js": "x=1;" * 200_000,
            "latin.py": b"# caf\xe9\ndef caf\xe9(): pass\n",
            "nul.py": b"\0\0\0",
            "a\nb|`<script>.py": "import deep\ndef f(): pass  # TODO <img src=x onerror=alert(1)> `|`\n",
            os.fsdecode(b"bad\xff.py"): "import deep\n",
            "huge.py": b"x = 1\n" * 400_000,
            "lib/node_modules/left/index.js": "var a = 1;\n",
            "gen.go": "// Code generated by tool. DO NOT EDIT.\npackage a\n",
            "x.min.js": "var a;\n",
            "package.json": '{"name": {"a": 1}, "bin": [1], "description": "<b>Hello</b> [x](javascript:alert(1))"}',
            "pyproject.toml": "this is not toml [",
        },
    )
    (root / "loop").symlink_to(root)
    (root / "secret.py").symlink_to("/etc/passwd")
    os.mkfifo(root / "pipe.py")
    data = run(root, tmp_path / "out")["data"]
    report = (tmp_path / "out/analysis.md").read_text()
    assert "<script>" not in report.replace("`` a b\\|`<script>.py ``", "")
    assert "<img" not in report.replace("\\<img", "")
    assert "](javascript" not in report.replace("\\](javascript", "")
    paths = {one["path"] for one in json.loads((tmp_path / "out/analysis.json").read_text())["files"]}
    assert {"deep.py", "latin.py"} <= paths
    assert "secret.py" not in paths
    expected = {"links": 2, "special files": 1, "huge": 1, "binary": 1, "generated or minified": 3, "folders of other people's code": 1}
    expected["names that are not UTF-8"] = 1
    assert data["skipped"] == expected
    assert data["skippedFolders"] == ["lib/node_modules/"]
    assert data["unreadable"] == []


def test_history_lists_frequent_changes_and_runs_no_repository_code(tmp_path: Path) -> None:
    root = small_project(tmp_path / "p")
    begin(root)
    proof, trap = tmp_path / "proof", tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {proof}\n")
    trap.chmod(0o755)
    (root / ".gitattributes").write_text("*.py diff=evil filter=evil\n")
    for turn in range(3):
        (root / "src/words/main.py").write_text(f"def main(x):\n    if x and {turn}:\n        return 1\n    return 2\n")
        git(root, "add", "-A")
        git(root, "commit", "-qm", "x")
    drivers = ("diff.evil.command", "diff.evil.textconv", "filter.evil.clean")
    for name in (*drivers, "diff.external", "core.fsmonitor", "core.pager", "gpg.program"):
        git(root, "config", name, str(trap))
    git(root, "config", "log.showSignature", "true")
    data = run(root, tmp_path / "out")["data"]
    assert [(spot["path"], spot["commits"]) for spot in data["hotSpots"]] == [("src/words/main.py", 3)]
    assert data["history"] == {"commits": 3, "whyNot": ""}
    assert not proof.exists()


def test_file_that_ends_its_parser_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_files(tmp_path / "p", {f"m{n:03}.py": "def f(): pass\n" for n in range(400)})
    signals = {"m003.py": signal.SIGKILL, "m007.py": signal.SIGALRM, "m399.py": signal.SIGKILL}
    read = file_facts.read_source

    def read_or_die(source: bytes, language: str, path: str) -> dict[str, Any]:
        """As a parser does that crashes or never ends."""
        if path in signals:
            signal.raise_signal(signals[path])
        return read(source, language, path)

    monkeypatch.setattr(file_facts, "read_source", read_or_die)
    done = run(root, tmp_path / "out")
    assert (done["status"], done["data"]["files"]) == ("completed", 397)
    assert {one["path"]: one["why"] for one in done["data"]["unreadable"]} == {
        "m003.py": "the parser crashed",
        "m007.py": "the parser took longer than 10 s",
        "m399.py": "the parser crashed",
    }


def test_partial_report_is_returned_at_the_soft_deadline(tmp_path: Path) -> None:
    root = write_files(tmp_path / "p", {f"m{n:03}.py": "def f(): pass\n" for n in range(200)})
    reads = iter([*[False] * 230, *[True] * 10_000])
    done = run(root, tmp_path / "out", is_over=lambda: next(reads))
    assert (done["status"], done["errors"][0]["code"]) == ("partial", "TIMEOUT")
    assert 0 < done["data"]["notReached"] < 200
    assert done["data"]["files"] + done["data"]["notReached"] == 200
    assert "**Not complete:**" in (tmp_path / "out/analysis.md").read_text()
