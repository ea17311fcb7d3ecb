"""API keys in the environment reach only the code that needs them: not git hooks and filters, not commands, not page parsers."""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import remit as package
from remit import Remit, agent
from remit.system.interpreter import listed_environment
from support import cli
from support.repository import begin, git

SOURCES = Path(package.__file__).parent
KEYS = {"ANTHROPIC_API_KEY": "sk-ant-stolen-1", "AWS_SECRET_ACCESS_KEY": "stolen-2", "DATABASE_URL": "postgres://u:stolen-3@db"}
STARTS = {"run", "Popen", "call", "check_call", "check_output", "create_subprocess_exec", "create_subprocess_shell"}
UNBOUNDED = {"system", "popen", "execv", "execvp", "execl", "execlp", "posix_spawn", "posix_spawnp", "spawnv", "spawnl"}
"""Functions of `os` that inherit the environment or are not used in the sources."""
WHOLE = {
    "agents/process/pool.py": "a user's own Python agents see what they would see in this process",
    "agents/coding/detect.py": "looks for programs and logins; nothing is started with it",
    "builtin/worker/web_search.py": "a search provider of the user's reads its own key",
    "agents/frameworks.py": "finds keys to strike them out of errors",
}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


def starts_without_environment(source: str) -> Iterator[int]:
    """Lines that start a program without an explicit environment, or with the complete environment of this process."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner, name = ast.unparse(node.func.value), node.func.attr
            if owner == "os" and name in UNBOUNDED:
                yield node.lineno
            if owner in ("subprocess", "asyncio") and name in STARTS and not (owner == "asyncio" and name == "run"):
                given = next((ast.unparse(one.value) for one in node.keywords if one.arg == "env"), "os.environ")
                if "os.environ" in given:
                    yield node.lineno


def copies_of_environment(source: str) -> Iterator[int]:
    """Lines that copy or iterate over the whole environment."""
    for node in ast.walk(ast.parse(source)):
        text = ast.unparse(node) if isinstance(node, (ast.Call, ast.Dict, ast.IfExp)) else ""
        if (
            text in ("dict(os.environ)", "os.environ.copy()", "os.environ.items()")
            or "**os.environ" in text
            or text.startswith("os.environ if")
        ):
            yield node.lineno


def test_every_subprocess_gets_an_explicit_environment() -> None:
    assert list(starts_without_environment("subprocess.run(['git'])\nos.system('x')\nsubprocess.Popen(x, env=dict(os.environ))")) == [
        1,
        2,
        3,
    ]
    sources = {path.relative_to(SOURCES).as_posix(): path.read_text() for path in SOURCES.rglob("*.py")}
    starting = {name: text for name, text in sources.items() if "subprocess" in text or any(f"os.{one}" in text for one in UNBOUNDED)}
    assert len(starting) > 10
    assert {name: lines for name, text in starting.items() if (lines := list(starts_without_environment(text)))} == {}
    copying = {name: text for name, text in sources.items() if re.search(r"os\.environ(?!\[|\.get\()", text)}
    assert {name for name, text in copying.items() if list(copies_of_environment(text))} <= set(WHOLE)


def contents(seen: Path) -> str:
    assert seen.exists(), "the program was not started"
    return seen.read_text()


def test_git_hooks_and_filters_see_no_api_key(tmp_path: Path) -> None:
    begin(tmp_path)
    hook = tmp_path / ".git" / "hooks" / "pre-commit"
    hook.write_text(f"#!/bin/sh\nenv > {tmp_path}/hook.seen\n")
    hook.chmod(0o755)
    git(tmp_path, "config", "filter.spy.clean", f"sh -c 'env > {tmp_path}/filter.seen; cat'")
    (tmp_path / ".gitattributes").write_text("*.md filter=spy\n")
    done = cli.run("task", "Write it down", cwd=tmp_path)
    assert done.code == 0, done.stderr
    for seen in (contents(tmp_path / "hook.seen"), contents(tmp_path / "filter.seen")):
        assert "stolen" not in seen
        assert os.environ["PATH"] in seen
        assert "HOME=" in seen


@agent("own", isolation="process")
def own() -> dict[str, str]:
    return {name: os.environ.get(name, "") for name in KEYS}


async def test_user_agent_in_a_process_sees_the_same_environment_as_inline(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[own]) as remit:
        found = await remit.delegate("own")
    assert found.data == KEYS


async def test_built_in_agent_that_reads_untrusted_content_sees_no_api_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.agents.executors._OURS", own.function.__module__)
    async with Remit.open(tmp_path, agents=[own]) as remit:
        found = await remit.delegate("own")
    assert found.data == dict.fromkeys(KEYS, "")


def test_listed_environment_keeps_locale_and_excludes_remit_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_TIME", "de_DE.UTF-8")
    monkeypatch.setenv("REMIT_MODEL", "x")
    assert listed_environment(("LC_*", "REMIT_MODEL")).get("LC_TIME") == "de_DE.UTF-8"
    assert "REMIT_MODEL" not in listed_environment(("REMIT_MODEL",))
