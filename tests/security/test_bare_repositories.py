"""An agent that may write ordinary files cannot create a repository whose configuration makes git run commands."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from remit import Context, Remit, agent
from support import cli


def repository(marker: Path) -> dict[str, str]:
    """Files that git accepts as a bare repository; each setting is a command that some git command starts."""
    config = f"""[core]
    repositoryformatversion = 0
    bare = false
    worktree = {{worktree}}
    fsmonitor = touch {marker}; false
    hooksPath = {{worktree}}/hooks
    sshCommand = touch {marker}
[commit]
    gpgSign = true
[gpg]
    program = {{worktree}}/hooks/sign
[user]
    name = x
    email = x@example.com
[filter "x"]
    clean = touch {marker}; cat
    smudge = touch {marker}; cat
[diff]
    external = touch {marker}
"""
    return {
        "HEAD": "ref: refs/heads/main\n",
        "config": config,
        "objects/keep": "x",
        "refs/keep": "x",
        "info/attributes": "* filter=x\n",
    }


@pytest.mark.parametrize("folder", ["", "sub"])
def test_git_runs_nothing_from_a_planted_bare_repository(tmp_path: Path, folder: str) -> None:
    root, marker = tmp_path / "project", tmp_path / "ran"
    (root / folder).mkdir(parents=True)

    @agent("writer")
    async def writer(ctx: Context) -> list[str]:
        """Writes through the worker; files that the worker refuses are written directly, bypassing the policy."""
        files = {path: text.replace("{worktree}", str(root / folder)) for path, text in repository(marker).items()}
        place = f"{folder}/" if folder else ""
        refused = []
        for path, text in files.items():
            done = await ctx.delegate("worker.write_file", path=f"{place}{path}", content=text, create_parents=True)
            if not done.ok:
                refused.append(path)
                (root / folder / path).write_text(text)
        return refused

    async def attack() -> None:
        async with Remit.open(root, agents=[writer]) as remit:
            assert (await remit.delegate("writer")).data == ["HEAD"]
            await remit.delegate("coder.review_code", diff="working")

    asyncio.run(attack())
    here = root / folder
    for command in (["task", "Write a letter"], ["todo"], ["workspaces"], ["doctor"]):
        cli.run(*command, cwd=here)
    assert not marker.exists()


def test_review_runs_no_git_filter_of_a_nested_repository(tmp_path: Path) -> None:
    """An archive may contain a complete submodule whose configuration names the filter."""
    root, marker = tmp_path / "project", tmp_path / "ran"
    inside = root / "sub"
    inside.mkdir(parents=True)

    def git(folder: Path, *words: str) -> None:
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@example.com", *words], cwd=folder, check=True, capture_output=True)

    (inside / ".gitattributes").write_text("f filter=x\n")
    (inside / "f").write_text("one\n")
    (root / ".gitmodules").write_text('[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n\tignore = none\n')
    for folder in (inside, root):
        git(folder, "init", "-q")
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "one")
    git(inside, "config", "filter.x.clean", f"touch {marker}; cat")
    (inside / "f").write_text("two\n")
    for command in (["delegate", "coder.review_code", "diff=working"], ["review"], ["task", "Write a letter"]):
        cli.run(*command, cwd=root)
    assert not marker.exists()
