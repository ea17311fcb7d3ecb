"""Agents that change the git configuration of the project, and work that cannot be merged."""

import shutil
import subprocess
from pathlib import Path

import pytest
from workspace_project import commit_all, git, new_repository, run, status, work_folders

from remit import Context, Remit, Return, agent


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return new_repository(tmp_path / "project")


async def run_hostile(project: Path, how: str, ran: Path) -> Return:
    @agent("rude", workspace="worktree", merge=True, timeout=30)
    async def rude(ctx: Context) -> str:
        (ctx.workspace / "made.txt").write_text("made\n")
        tamper(ctx, project, how, f"sh -c 'echo {how} >> {ran}; cat'")
        return "done"

    async with Remit.open(project, agents=[rude]) as remit:
        return await remit.delegate("rude")


def tamper(ctx: Context, project: Path, how: str, command: str) -> None:
    here, its_own = ctx.workspace, project / ".git" / "worktrees" / ctx.session_id
    if how == "filter":
        git(project, "config", "filter.a=b.clean", command)
        git(project, "config", "filter.a=b.smudge", command)
        git(project, "config", "filter.a=b.required", "true")
        (here / ".gitattributes").write_text("* filter=a=b\n")
    elif how == "foreign filter":
        other = here.parent / "other.git"
        shutil.copytree(project / ".git", other)
        subprocess.run(["git", "config", "-f", str(other / "config"), "filter.mine.process", command], check=True)
        (here / ".gitattributes").write_text("* filter=mine\n")
        (its_own / "commondir").write_text(f"{other}\n")
    elif how == "merge driver":
        git(project, "config", "merge.mine.driver", command)
        (project / ".git" / "info").mkdir(exist_ok=True)
        (project / ".git" / "info" / "attributes").write_text("* merge=mine\n")
        (here / "src" / "a.py").write_text("mine\n")
        (project / "src" / "a.py").write_text("theirs\n")
        commit_all(project, "theirs")
    elif how == "fetch":
        for name, value in (("core.repositoryformatversion", "1"), ("extensions.partialClone", "mine"), ("remote.mine.promisor", "true"),
                            ("remote.mine.url", f"file://{project}"), ("remote.mine.uploadpack", command)):  # fmt: skip
            git(project, "config", name, value)
        (its_own / "HEAD").write_text("12345678" * 5 + "\n")


@pytest.mark.parametrize("how", ["filter", "foreign filter", "merge driver", "fetch"])
async def test_git_commands_configured_by_an_agent_are_not_run(project: Path, tmp_path: Path, how: str) -> None:
    ran = tmp_path / "ran"
    result = await run_hostile(project, how, ran)
    assert not ran.exists()
    if how == "fetch":  # the missing objects are not needed
        assert result.ok, result
        return
    assert result.status == "partial"
    assert "git settings that run commands were changed meanwhile" in result.errors[0].message
    assert "+made" in next(project / a.path for a in result.artifacts if a.path.endswith(".diff")).read_text()
    assert work_folders(project) != [], "its work is kept"
    assert not (project / "made.txt").exists()


async def test_existing_filters_of_the_user_are_used(project: Path) -> None:
    """Filters such as git-lfs or git-crypt: the diff needs them."""
    git(project, "config", "filter.upper.clean", "tr a-z A-Z")
    git(project, "config", "filter.upper.smudge", "tr A-Z a-z")
    (project / ".gitattributes").write_text("*.up filter=upper\n")
    commit_all(project, "filtered")

    @agent("writes", workspace="worktree", merge=True, timeout=30)
    async def writes(ctx: Context) -> str:
        (ctx.workspace / "a.up").write_text("words\n")
        return "done"

    result = await run(project, writes)
    assert result.ok, result
    assert git(project, "show", "HEAD:a.up") == "WORDS\n"
    assert (project / "a.up").read_text() == "words\n"


async def test_merge_goes_into_the_project_despite_core_worktree(project: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    @agent("points", workspace="worktree", merge=True, timeout=30)
    async def points(ctx: Context) -> str:
        (ctx.workspace / "made.txt").write_text("made\n")
        git(project, "config", "core.worktree", str(elsewhere))
        return "done"

    result = await run(project, points)
    assert result.ok, result
    assert list(elsewhere.iterdir()) == []
    git(project, "--work-tree=.", "config", "--unset", "core.worktree")
    assert (project / "made.txt").read_text() == "made\n"
    assert status(project) == ""


async def test_failed_merge_is_partial(project: Path) -> None:
    """A requested merge that failed is partial; the result names the folder."""

    @agent("breaks", workspace="worktree", merge=True, timeout=30)
    async def breaks(ctx: Context, how: str) -> str:
        (ctx.workspace / "made.txt").write_text("made\n")
        if how == "encoding":
            (ctx.workspace / ".gitattributes").write_text("*.txt working-tree-encoding=UTF-16\n")
        else:
            shutil.rmtree(project / ".git" / "worktrees" / ctx.session_id)
        return "done"

    async with Remit.open(project, agents=[breaks]) as remit:
        for how, words in (("encoding", "BOM is required in 'made.txt'"), ("removes", "was damaged or removed")):
            result = await remit.delegate("breaks", how=how)
            assert result.status == "partial", how
            assert result.errors[0].code == "MERGE_CONFLICT"
            assert words in " ".join(result.warnings)
            assert f".remit/work/{result.session_id}" in result.next_steps
            assert (project / ".remit" / "work" / result.session_id / "made.txt").read_text() == "made\n"
