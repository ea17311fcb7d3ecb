"""Workspaces of delegations: worktrees, diffs, merges, acceptance and interruptions."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from workspace_project import branches, commit_all, crash, diff_of, git, left_by, new_repository, run, status, work_folders

from remit import Context, Remit, Return, agent
from support.engine_samples import until


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return new_repository(tmp_path / "project")


def edits(ctx: Context) -> None:
    """Adds, changes, deletes and renames, text and binary."""
    here = ctx.workspace
    (here / "src" / "new.py").write_text("new = True\n")
    (here / "src" / "a.py").write_text("one = 11\ntwo = 2\nthree = 3\n")
    (here / "src" / "old.py").rename(here / "src" / "renamed.py")
    (here / "picture.bin").write_bytes(bytes(reversed(range(256))) * 8)
    (here / "blob.bin").write_bytes(b"\0\xff\0binary")
    (here / "note").symlink_to("src/a.py")


def editing(name: str, **declared: object):  # type: ignore[no-untyped-def]
    @agent(name, timeout=30, **declared)
    async def edit(ctx: Context) -> str:
        edits(ctx)
        ctx.artifact("src/new.py", type="implementation")
        return "edited"

    return edit


@agent("write", workspace="worktree", merge=True, timeout=30)
async def write(ctx: Context, path: str = "src/a.py", text: str = "written\n") -> str:
    target = ctx.workspace / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    return "written"


@agent("hangs", workspace="worktree", timeout=30)
async def hangs(ctx: Context) -> str:
    (ctx.workspace / "half.txt").write_text("half")
    await asyncio.sleep(60)
    return "never"


AGENTS = [
    editing("edit.worktree", workspace="worktree"),
    editing("edit.merged", workspace="worktree", merge=True),
    write,
]


async def ask(root: Path, name: str, **asked: object) -> Return:
    async with Remit.open(root, agents=AGENTS) as remit:
        return await remit.delegate(name, **asked)


def contents(folder: Path) -> dict[str, object]:
    """The files of a folder: bytes, or the target of a link."""
    found: dict[str, object] = {}
    for path in folder.rglob("*"):
        inside = path.relative_to(folder)
        if inside.parts[0] in (".git", ".remit") or (path.is_dir() and not path.is_symlink()):
            continue
        found[inside.as_posix()] = os.readlink(path) if path.is_symlink() else path.read_bytes()
    return found


async def test_changes_are_a_diff_and_the_project_is_unchanged(project: Path, tmp_path: Path) -> None:
    before = contents(project)
    result = await ask(project, "edit.worktree")
    assert result.ok, result
    session = result.session_id
    assert contents(project) == before
    assert status(project) == ""
    diff = project / ".remit" / "scratch" / session / "changes.diff"
    summary = next(a for a in result.artifacts if a.path.endswith(".diff"))
    assert (summary.type, summary.summary) == ("data", "7 files changed.")
    assert f".remit/work/{session}/src/new.py" in [a.path for a in result.artifacts]
    assert result.extra["workspace"]["folder"] == f".remit/work/{session}"
    fresh = tmp_path / "fresh"
    shutil.copytree(project, fresh, symlinks=True, ignore=shutil.ignore_patterns(".remit"))
    git(fresh, "apply", str(diff))
    assert contents(fresh) == contents(project / ".remit" / "work" / session)
    assert branches(project) == ["main", f"remit/{session}"]
    assert git(project, "log", "-1", "--format=%s", f"remit/{session}").strip() == "edit.worktree"
    assert git(project, "log", "-1", "--format=%(trailers:key=Session,valueonly)", f"remit/{session}").strip() == session
    assert git(project, "show", f"remit/{session}:src/new.py") == "new = True\n"
    assert f"remit workspaces {session} --merge" in result.next_steps
    assert status(project / ".remit" / "work" / session) == ""


async def test_unchanged_workspace_is_removed(project: Path) -> None:
    @agent("look", workspace="worktree", timeout=30)
    async def look(ctx: Context) -> str:
        ctx.artifact("src/a.py", type="implementation")
        return (ctx.workspace / "src" / "a.py").read_text()

    result = await run(project, look)
    assert result.ok, result
    assert result.data.startswith("one = 1")
    assert [a.path for a in result.artifacts] == ["src/a.py"]
    assert work_folders(project) == []
    assert branches(project) == ["main"]
    assert git(project, "worktree", "list").count("\n") == 1


async def test_worktree_needs_a_repository_with_a_commit(tmp_path: Path) -> None:
    refused = await ask(tmp_path, "write", path="b.txt")
    assert (refused.status, refused.errors[0].code) == ("failed", "INVALID_PARAMETERS")
    assert "not a git checkout" in refused.errors[0].message
    assert "git init" in refused.errors[0].recommendation
    git(tmp_path, "init", "-q")
    assert "without a commit" in (await ask(tmp_path, "write")).errors[0].message


async def test_completed_work_is_merged_and_its_workspace_removed(project: Path) -> None:
    result = await ask(project, "edit.merged")
    assert result.ok, result
    assert (project / "src" / "new.py").read_text() == "new = True\n"
    assert not (project / "src" / "old.py").exists()
    assert (project / "blob.bin").read_bytes() == b"\0\xff\0binary"
    assert status(project) == ""
    assert branches(project) == ["main"]
    assert work_folders(project) == []
    assert "src/new.py" in [a.path for a in result.artifacts]
    assert result.extra["workspace"] == {"kind": "worktree", "merged_into": "main"}


async def test_merge_keeps_concurrent_commits(project: Path) -> None:
    @agent("slow", workspace="worktree", merge=True, timeout=30)
    async def slow(ctx: Context) -> str:
        (ctx.workspace / "mine.txt").write_text("mine\n")
        (project / "yours.txt").write_text("yours\n")
        commit_all(project, "meanwhile")
        return "done"

    result = await run(project, slow)
    assert result.ok, result
    assert (project / "mine.txt").exists()
    assert (project / "yours.txt").exists()
    assert git(project, "log", "--reverse", "--format=%s").split() == ["first", "meanwhile", "slow"]
    assert status(project) == ""


async def test_conflict_is_reported_and_the_project_is_unchanged(project: Path) -> None:
    @agent("clash", workspace="worktree", merge=True, timeout=30)
    async def clash(ctx: Context) -> str:
        (ctx.workspace / "src" / "a.py").write_text("one = 111\ntwo = 2\nthree = 3\n")
        (project / "src" / "a.py").write_text("one = 222\ntwo = 2\nthree = 3\n")
        commit_all(project, "meanwhile")
        return "done"

    result = await run(project, clash)
    head = git(project, "log", "-1", "--format=%s").strip()
    error = result.errors[0]
    branch = f"remit/{result.session_id}"
    assert (result.status, error.type, error.code) == ("partial", "merge_conflict", "MERGE_CONFLICT")
    assert "src/a.py" in error.message
    assert f"git merge {branch}" in error.recommendation
    assert head == "meanwhile"
    assert (project / "src" / "a.py").read_text().startswith("one = 222")
    assert status(project) == ""
    assert branch in branches(project)
    assert (project / ".remit" / "work" / result.session_id / "src" / "a.py").read_text().startswith("one = 111")


async def test_merge_never_overwrites_uncommitted_work(project: Path) -> None:
    (project / "src" / "a.py").write_text("my own work\n")
    (project / "src" / "untracked.py").write_text("mine\n")
    before = status(project)
    for path in ("src/a.py", "src/untracked.py"):
        result = await ask(project, "write", path=path)
        assert (result.status, result.errors[0].code) == ("partial", "MERGE_CONFLICT")
        assert path in result.errors[0].message
        assert "uncommitted work" in result.errors[0].message
    assert (project / "src" / "a.py").read_text() == "my own work\n"
    assert (project / "src" / "untracked.py").read_text() == "mine\n"
    assert status(project) == before
    other = await ask(project, "write", path="elsewhere.txt")
    assert other.ok, "other uncommitted work does not block a merge"
    assert (project / "src" / "a.py").read_text() == "my own work\n"


async def test_concurrent_merges_lose_nothing(project: Path) -> None:
    async with Remit.open(project, agents=AGENTS) as remit:
        results = await asyncio.gather(*(remit.delegate("write", path=f"file{n}.txt", text=f"{n}\n") for n in range(6)))
    assert all(result.ok for result in results), [result.errors for result in results]
    assert {(project / f"file{n}.txt").read_text() for n in range(6)} == {f"{n}\n" for n in range(6)}
    assert status(project) == ""
    assert work_folders(project) == []


async def test_git_hooks_and_settings_do_not_affect_merges(project: Path) -> None:
    for name in ("pre-commit", "commit-msg", "post-checkout", "post-merge", "reference-transaction", "pre-merge-commit"):
        hook = project / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
    for name, value in (
        ("commit.gpgsign", "true"), ("merge.ff", "false"), ("diff.noprefix", "true"), ("merge.autostash", "true"),
        ("core.splitIndex", "true"), ("diff.external", "false"), ("color.ui", "always"), ("status.short", "true"),
    ):  # fmt: skip
        git(project, "config", name, value)
    result = await ask(project, "edit.merged")
    assert result.ok, result
    assert (project / "src" / "new.py").exists()
    assert "+++ b/src/new.py" in diff_of(project, result)


async def test_sub_folder_of_a_repository_can_be_the_project(project: Path) -> None:
    root = project / "src"

    @agent("inner", workspace="worktree", timeout=30)
    async def inner(ctx: Context) -> str:
        assert ctx.workspace.name == "src"
        (ctx.workspace / "a.py").write_text("inner\n")
        ctx.artifact("a.py", type="implementation")
        return "done"

    async with Remit.open(root, agents=[inner, write]) as remit:
        result = await remit.delegate("inner")
        merged = await remit.delegate("write", path="deep/new.txt")
    assert result.ok, result
    assert f".remit/work/{result.session_id}/src/a.py" in [a.path for a in result.artifacts]
    assert "b/src/a.py" in diff_of(root, result)
    assert merged.ok, merged
    assert (root / "deep" / "new.txt").exists()


async def test_acceptance_runs_in_the_workspace_before_the_merge(project: Path) -> None:
    met = await ask(project, "write", path="done.txt", text="yes\n", accept=["grep -q yes done.txt && touch left-by-acceptance"])
    assert (met.status, met.evidence) == ("completed", "verified")
    assert (project / "done.txt").exists()
    assert not (project / "left-by-acceptance").exists(), "files of acceptance commands are not part of the work"
    unmet = await ask(project, "write", path="done.txt", text="no\n", accept=["grep -q yes done.txt"])
    assert (unmet.status, unmet.errors[0].code) == ("partial", "VALIDATION_FAILED")
    assert (project / "done.txt").read_text() == "yes\n"
    assert f"remit/{unmet.session_id}" in branches(project)


async def test_git_operations_of_the_agent_do_not_affect_the_diff(project: Path) -> None:
    @agent("rude", workspace="worktree", timeout=30)
    async def rude(ctx: Context, how: str) -> str:
        here = ctx.workspace
        (here / "made.txt").write_text("made\n")
        match how:
            case "removes":
                (here / ".git").unlink()
            case "starts anew":
                (here / ".git").unlink()
                git(here, "init", "-q")
            case "locks":
                (project / ".git" / "worktrees" / ctx.session_id / "index.lock").touch()
            case "commits":
                commit_all(here, "my own")
            case "switches":
                git(here, "checkout", "-q", "-b", f"other-{ctx.session_id}")
        return "done"

    before = git(project, "ls-files", "-s")
    async with Remit.open(project, agents=[rude]) as remit:
        for how in ("removes", "starts anew", "locks", "commits", "switches"):
            result = await remit.delegate("rude", how=how)
            assert result.ok, (how, result)
            assert "+made" in diff_of(project, result), how
            assert git(project, "show", f"remit/{result.session_id}:made.txt") == "made\n", how
    assert git(project, "ls-files", "-s") == before


async def test_timeout_returns_partial_files_and_the_diff(project: Path) -> None:
    async with Remit.open(project, agents=[hangs]) as remit:
        result = await remit.delegate("hangs", timeout=1.5)
    assert (result.status, result.errors[0].code) == ("partial", "TIMEOUT")
    session = result.session_id
    paths = [a.path for a in result.artifacts]
    assert f".remit/work/{session}/half.txt" in paths, result
    assert f".remit/work/{session}/src/a.py" not in paths, "unchanged files are not artifacts"
    assert "+half" in diff_of(project, result)
    assert (project / ".remit" / "work" / session / "half.txt").exists()
    assert any("workspace stays" in warning for warning in result.warnings)
    assert status(project) == ""


async def test_cancelled_work_is_not_merged_and_resumes_in_its_workspace(project: Path) -> None:
    @agent("long", workspace="worktree", merge=True, timeout=30)
    async def long(ctx: Context) -> str:
        if (ctx.workspace / "first.txt").exists():
            (ctx.workspace / "second.txt").write_text("2")
            return "both"
        (ctx.workspace / "first.txt").write_text("1")
        ctx.progress("half")
        await asyncio.sleep(20)
        return "never"

    async with Remit.open(project, agents=[long]) as remit:
        handle = await remit.start("long")
        async for event in handle.stream():
            if event.kind == "progress":
                await handle.cancel("enough")
        stopped = await handle.result()
        assert not (project / "first.txt").exists()
        resumed = await remit.delegate("long", resume=stopped.session_id)
        again = await remit.delegate("long", resume=stopped.session_id, timeout=3)
    assert (resumed.status, resumed.data) == ("completed", "both")
    assert (project / "first.txt").exists()
    assert (project / "second.txt").exists()
    assert again.ok or any("no longer exists" in warning for warning in again.warnings)
    assert sorted(branches(project)) == ["main", *([f"remit/{again.session_id}"] if not again.ok else [])]


async def test_workspace_of_a_crashed_run_is_named_and_kept(project: Path) -> None:
    crash(project, "agent")
    async with Remit.open(project) as remit:
        record = (await remit.history())[0]
    result = record.result
    assert result is not None
    assert (result.status, result.errors[0].code) == ("partial", "AGENT_CRASHED")
    assert f".remit/work/{record.session_id}/half.txt" in [a.path for a in result.artifacts]
    assert "+half" in diff_of(project, result)
    assert any(f".remit/work/{record.session_id}" in warning for warning in result.warnings)
    assert git(project, "show", f"remit/{record.session_id}:half.txt") == "half\n"


@pytest.mark.parametrize("where", ["joined", "before", "after", "queued"])
async def test_kill_9_during_a_merge_loses_nothing(project: Path, where: str) -> None:
    crash(project, where)
    async with Remit.open(project, agents=AGENTS) as remit:
        record = (await remit.history())[0]
        assert record.result is not None
        assert git(project, "show", f"remit/{record.session_id}:half.txt") == "half\n"
        is_merged = where in ("after", "queued")
        assert (project / "half.txt").exists() == is_merged
        assert any("were merged" in warning for warning in record.result.warnings) == is_merged
        assert status(project) == ""
        assert (await remit.delegate("write", path="next.txt")).ok, "the next merge works"


async def test_process_killed_while_it_accepts_work_leaves_neither_worktree_nor_command(project: Path) -> None:
    killed = crash(project, "accepting")
    assert len(work_folders(project)) == 2
    await until(lambda: left_by(killed) > 0, seconds=10)
    async with Remit.open(project) as remit:
        assert left_by(killed) == 0
        (record,) = await remit.history()
        await until(lambda: work_folders(project) == [record.session_id], seconds=10)
    await until(lambda: git(project, "worktree", "list").count("\n") == 2, seconds=10)


def slow_git(folder: Path, command: str, seconds: int) -> Path:
    path = folder / "bin" / "git"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\ncase "$*" in *"{command}"*) sleep {seconds};; esac\nexec {shutil.which("git")} "$@"\n')
    path.chmod(0o755)
    return path


async def test_slow_git_does_not_exceed_the_deadline(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result names the missing diff, and nothing is removed."""
    slow = slow_git(tmp_path, " add --all", 5)
    async with Remit.open(project, agents=[hangs]) as remit:
        monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
        result = await remit.delegate("hangs", timeout=2)
    assert any("git did not finish the diff" in warning for warning in result.warnings), result.warnings
    assert f".remit/work/{result.session_id}/half.txt" in [a.path for a in result.artifacts]
    assert f"resume={result.session_id}" in result.next_steps
    assert result.extra["workspace"]["folder"] == f".remit/work/{result.session_id}"


# ---- agents that change the git configuration of the project, and work that cannot be merged


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
        git(project, "config", "-f", str(other / "config"), "filter.mine.process", command)
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
