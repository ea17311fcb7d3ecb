"""Agents that turn the repository's own configuration against whoever runs git after them; and what cannot be taken, and is said."""

import shutil
import subprocess
from pathlib import Path

import pytest
from workspace_project import commit_all, git, new_repository, run, status, work_folders

from remit import Context, Remit, Return, agent


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return new_repository(tmp_path / "project")


async def done_by(project: Path, how: str, ran: Path) -> Return:
    @agent("rude", workspace="worktree", merge=True, timeout=30)
    async def rude(ctx: Context) -> str:
        (ctx.workspace / "made.txt").write_text("made\n")
        _tamper(ctx, project, how, f"sh -c 'echo {how} >> {ran}; cat'")
        return "done"

    async with Remit.open(project, agents=[rude]) as remit:
        return await remit.delegate("rude")


def _tamper(ctx: Context, project: Path, how: str, command: str) -> None:
    here, its_own = ctx.workspace, project / ".git" / "worktrees" / ctx.session_id
    if how == "a filter":
        git(project, "config", "filter.a=b.clean", command)
        git(project, "config", "filter.a=b.smudge", command)
        git(project, "config", "filter.a=b.required", "true")
        (here / ".gitattributes").write_text("* filter=a=b\n")
    elif how == "a filter of another repository":
        other = here.parent / "other.git"
        shutil.copytree(project / ".git", other)
        subprocess.run(["git", "config", "-f", str(other / "config"), "filter.mine.process", command], check=True)
        (here / ".gitattributes").write_text("* filter=mine\n")
        (its_own / "commondir").write_text(f"{other}\n")
    elif how == "a merge driver":
        git(project, "config", "merge.mine.driver", command)
        (project / ".git" / "info").mkdir(exist_ok=True)
        (project / ".git" / "info" / "attributes").write_text("* merge=mine\n")
        (here / "src" / "a.py").write_text("mine\n")
        (project / "src" / "a.py").write_text("theirs\n")
        commit_all(project, "theirs")
    elif how == "a fetch":
        for name, value in (("core.repositoryformatversion", "1"), ("extensions.partialClone", "mine"), ("remote.mine.promisor", "true"),
                            ("remote.mine.url", f"file://{project}"), ("remote.mine.uploadpack", command)):  # fmt: skip
            git(project, "config", name, value)
        (its_own / "HEAD").write_text("12345678" * 5 + "\n")


@pytest.mark.parametrize("how", ["a filter", "a filter of another repository", "a merge driver", "a fetch"])
async def test_no_command_that_an_agent_set_for_git_is_run_by_us(project: Path, tmp_path: Path, how: str) -> None:
    ran = tmp_path / "ran"
    result = await done_by(project, how, ran)
    assert not ran.exists()
    if how == "a fetch":  # nothing in it depends on what is missing
        assert result.ok, result
        return
    assert result.status == "partial"
    assert "git settings that run commands were changed meanwhile" in result.errors[0].message
    assert "+made" in next(project / a.path for a in result.artifacts if a.path.endswith(".diff")).read_text()
    assert work_folders(project) != [], "its work stays"
    assert not (project / "made.txt").exists()


async def test_filters_that_the_user_had_before_are_used(project: Path) -> None:
    """As those of large-file storage or of encryption: without them the diff would be of something else."""
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


async def test_a_merge_goes_into_the_project_wherever_its_configuration_points(project: Path, tmp_path: Path) -> None:
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


async def test_what_could_not_be_taken_is_not_called_merged(project: Path) -> None:
    """A merge that was asked for and not done is no completed work; where it is, is said."""

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
