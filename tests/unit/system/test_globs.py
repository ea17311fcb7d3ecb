"""Glob patterns and ignore files: what they match, agreement with git, and bounded time."""

import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from remit.system.beneath import Root
from remit.system.folder_walk import Walk, asked_from, rules_above
from remit.system.globs import BadPattern, compile_glob
from support.pace import allowed


@pytest.mark.parametrize(
    ("pattern", "fits", "not_these"),
    [
        ("*.py", ["a.py", "src/deep/a.py"], ["a.pyc", "a.py/b"]),
        ("src/*.py", ["src/a.py"], ["src/deep/a.py", "a.py", "x/src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/deep/er/a.py"], ["a.py", "lib/a.py"]),
        ("**/test_*.py", ["test_a.py", "x/y/test_b.py"], ["x/a_test.py"]),
        ("**", ["a", "a/b"], []),
        ("docs/**", ["docs/a", "docs/a/b"], ["docs", "x/docs/a"]),
        ("*.{js,ts}", ["a.js", "x/b.ts"], ["a.tsx", "a.{js,ts}"]),
        ("{a,b{c,d}}.x", ["a.x", "bc.x", "bd.x"], ["b.x"]),
        ("[a-c]?.txt", ["b1.txt"], ["d1.txt", "b.txt"]),
        ("[!a].txt", ["b.txt"], ["a.txt", "/.txt"]),
        ("[]x].txt", ["].txt", "x.txt"], ["y.txt"]),
        ("/top", ["top"], ["x/top"]),
        ("a*b*c", ["abc", "aXbYc", "abbcc"], ["ab", "acb", "a/b/c"]),
        ("a*a", ["aa", "aba"], ["a"]),
        ("a**b", ["aXb"], ["a/b"]),
        ("[unclosed", ["[unclosed"], ["u"]),
        (r"\*.py", ["*.py"], ["a.py"]),
        ("**/a/**/b", ["a/b", "x/a/y/z/b"], ["a", "b", "ab"]),
    ],
)
def test_pattern_matches_the_expected_paths(pattern: str, fits: list[str], not_these: list[str]) -> None:
    compiled = compile_glob(pattern)
    assert [path for path in fits if not compiled.fullmatch(path)] == []
    assert [path for path in not_these if compiled.fullmatch(path)] == []


@pytest.mark.parametrize(
    "pattern", ["*a" * 60 + "b", "**/a/" * 40 + "b", "[a-z]*" * 100, "?*" * 100, "{a,aa}*" * 6 + "b", "*" * 900, "a*" * 200 + "/b"]
)
def test_hostile_patterns_match_in_linear_time(pattern: str) -> None:
    """With Python's `re`, a hostile .gitignore could block the process."""
    began = time.perf_counter()
    try:
        compiled = compile_glob(pattern)
    except BadPattern:
        return
    for path in ("a" * 250, "a/" * 120 + "a", "ab" * 120):
        compiled.fullmatch(path)
    assert time.perf_counter() - began < allowed(3)


LINES = [
    "*.log", "!keep.log", "build/", "/top.txt", "src/gen", "src/*.tmp", "**/cache", "docs/**", "a/**/z", "!a/**/z/keep", "foo*bar",
    "[ab].c", r"\!odd", r"\#odd", "# comment", "", "trailing   ", "x/", "*.p[yc]", "deep/*/here", "!/src/gen/", "*", "!*/", "/*", "!src",
    "**/", "c.*",
]  # fmt: skip
NAMES = [
    "src", "gen", "a.log", "keep.log", "build", "top.txt", "x", "cache", "a", "z", "foobar", "b.c", "!odd", "#odd", "m.py", "deep", "here",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_git_ignores_the_same_files(seed: int, tmp_path: Path) -> None:
    """`git ls-files` of a tree with random ignore files is the reference."""
    chance = random.Random(seed)
    for _ in range(40):
        path = tmp_path.joinpath(*chance.choices(NAMES, k=chance.randint(1, 4)))
        if not any(parent.is_file() for parent in path.parents) and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
    folders = [tmp_path, *chance.sample([p for p in sorted(tmp_path.rglob("*")) if p.is_dir()], k=2)]
    for folder in folders:
        (folder / ".gitignore").write_text("\n".join(chance.sample(LINES, k=4)) + "\n")
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True, env=env)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--others", "--exclude-standard"], cwd=tmp_path, check=True, env=env, capture_output=True, text=True
    )
    with Root(tmp_path) as root:
        walk = Walk(rules=asked_from(rules_above(root, ()), ()))
        ours = {entry.path for entry in walk.entries(root.descriptor) if not entry.is_folder}
    assert ours == set(filter(None, listed.stdout.split("\0")))
