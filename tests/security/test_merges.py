"""A merge adds no file to the project that its agent may not write there: then nothing is merged, and nothing is lost."""

import os
from pathlib import Path
from typing import Any

import pytest

from remit import Context, Remit, agent
from support import cli
from support.repository import begin, git

HOSTILE = {
    "remit.toml": '[agents.x]\ncommand = ["id"]\n',
    "pyproject.toml": '[project]\nname = "x"\n[tool.remit.agents.x]\ncommand = ["id"]\n',
    ".remit/agents/evil.py": "import os\n",
    ".claude/settings.json": '{"hooks": {}}\n',
    ".GitHub/Workflows/ci.yml": "on: push\n",
    "specs/001_x/plans/implementation-001.md": "- **Accept**: `id`\n",
    ".env": "KEY=1\n",
}


def new_project(root: Path) -> Path:
    (root / "old").mkdir(parents=True)
    begin(root)
    (root / "old/.envrc").write_text("export A=1\n")
    (root / "pyproject.toml").write_text('[project]\nname = "x"\n')
    (root / "a.py").write_text("a = 1\n")
    git(root, "add", "--all", "--force")
    git(root, "commit", "-qm", "begun")
    return root


def write_all(here: Path) -> None:
    for path, text in HOSTILE.items():
        (here / path).parent.mkdir(parents=True, exist_ok=True)
        (here / path).write_text(text)
    (here / "tasks").mkdir()
    (here / "tasks/tasks.json").write_text("{}\n")
    (here / ".vscode").symlink_to("tasks")
    (here / "old/.envrc").unlink()
    (here / "a.py").write_text("a = 2\n")
    git(here, "add", "--all", "--force")
    git(here, "commit", "-qm", "mine")


@agent("keeping", workspace="worktree")
async def keeping(ctx: Context) -> str:
    write_all(ctx.workspace)
    return "done"


def state(root: Path) -> tuple[list[str], str]:
    there = [path for path in [*HOSTILE, ".vscode", "old/.envrc"] if os.path.lexists(root / path)]
    return there, (root / "a.py").read_text()


@pytest.mark.parametrize("merge", [True, "queue"])
async def test_work_with_protected_files_is_not_merged(tmp_path: Path, merge: Any) -> None:
    root = new_project(tmp_path)

    @agent("coding", workspace="worktree", merge=merge)
    async def coding(ctx: Context) -> str:
        """Writes with its own tools, bypassing the policy."""
        write_all(ctx.workspace)
        return "done"

    async with Remit.open(root, agents=[coding], settings={"workspace": {"accept": ["true"]}}) as remit:
        done = await remit.delegate("coding")
    assert (done.status, done.errors[0].code) == ("partial", "MERGE_CONFLICT")
    assert state(root) == (["pyproject.toml", "old/.envrc"], "a = 1\n")
    assert (root / "pyproject.toml").read_text() == '[project]\nname = "x"\n'
    assert git(root, "status", "--porcelain", "--", ":!.remit") == ""
    assert "the policy does not allow its agent to write" in done.errors[0].message
    assert all(path in done.errors[0].message for path in [*HOSTILE, ".vscode", "old/.envrc"]), "also a link and a deletion"
    assert "a.py" not in done.errors[0].message.replace("'", "")
    assert f"remit workspaces {done.session_id} --merge --protected" in done.next_steps
    assert "command" in git(root, "show", f"remit/{done.session_id}:remit.toml")
    assert "command" not in git(root, "log", "-p", "main", "--", *HOSTILE)


async def test_protected_files_are_merged_only_with_an_explicit_option(tmp_path: Path) -> None:
    root = new_project(tmp_path)
    async with Remit.open(root, agents=[keeping]) as remit:
        done = await remit.delegate("keeping")
    refused = cli.run_process("workspaces", done.session_id, "--merge", cwd=root)
    assert (refused.code, "--protected" in refused.stdout, "remit.toml" in refused.stdout) == (1, True, True)
    assert state(root) == (["pyproject.toml", "old/.envrc"], "a = 1\n")
    (root / "b.py").write_text("b\n")
    git(root, "add", "b.py")
    git(root, "commit", "-qm", "meanwhile")
    taken = cli.run_process("workspaces", done.session_id, "--merge", "--protected", cwd=root)
    assert taken.code == 0, taken
    assert state(root) == ([*HOSTILE, ".vscode"], "a = 2\n")


async def test_git_filters_of_a_repository_nested_in_a_worktree_do_not_run(tmp_path: Path) -> None:
    """Git queries the status of nested repositories in its index, which runs commands from their configuration."""
    marker, root = tmp_path / "ran", new_project(tmp_path / "project")

    @agent("nesting", workspace="worktree")
    async def nesting(ctx: Context) -> str:
        inner = ctx.workspace / "inner"
        inner.mkdir()
        begin(inner)
        (inner / "x.txt").write_text("x\n")
        git(inner, "add", "x.txt")
        git(inner, "commit", "-qm", "inner")
        git(inner, "config", "filter.x.clean", f"touch {marker}; cat")
        (inner / ".git/info").mkdir(exist_ok=True)
        (inner / ".git/info/attributes").write_text("* filter=x\n")
        os.utime(inner / "x.txt", (1, 1))
        (ctx.workspace / "a.py").write_text("a = 2\n")
        return "done"

    async with Remit.open(root, agents=[nesting]) as remit:
        done = await remit.delegate("nesting")  # from here on the index of its workspace contains the nested repository
    merged = cli.run_process("workspaces", done.metadata.session_id, "--merge", cwd=root)
    assert merged.code == 0, merged.stderr
    assert "160000" in git(root, "ls-files", "--stage", "inner")
    assert not marker.exists()


async def test_program_named_git_in_a_worktree_is_not_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative `./bin` on PATH is resolved in the current directory, and git runs in the agent's."""
    marker, root = tmp_path / "ran", new_project(tmp_path / "project")

    @agent("planting", workspace="worktree")
    async def planting(ctx: Context) -> str:
        (ctx.workspace / "bin").mkdir()
        (ctx.workspace / "bin/git").write_text(f"#!/bin/sh\ntouch {marker}\n")
        (ctx.workspace / "bin/git").chmod(0o755)
        return "done"

    monkeypatch.setenv("PATH", f"./bin::{os.environ['PATH']}")
    async with Remit.open(root, agents=[planting]) as remit:
        done = await remit.delegate("planting")
    assert done.ok, done
    assert not marker.exists()


async def test_git_filter_script_modified_by_an_agent_is_not_run(tmp_path: Path) -> None:
    marker, root = tmp_path / "ran", new_project(tmp_path / "project")
    (root / "clean.sh").write_text("cat\n")
    (root / ".gitattributes").write_text("*.py filter=x\n")
    git(root, "add", "--all", "--force")
    git(root, "commit", "-qm", "a filter")
    git(root, "config", "filter.x.clean", "sh ./clean.sh %f")

    @agent("changing", workspace="worktree", merge=True)
    async def changing(ctx: Context) -> str:
        (ctx.workspace / "clean.sh").write_text(f"touch {marker}; cat\n")
        (ctx.workspace / "a.py").write_text("a = 2\n")
        return "done"

    async with Remit.open(root, agents=[changing]) as remit:
        done = await remit.delegate("changing")
    assert not marker.exists()
    assert "filter.x.clean" in str(done), done
    assert (root / "a.py").read_text() == "a = 1\n"
