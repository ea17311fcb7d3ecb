"""Work of a task in its worktree: one verdict before anything is merged, then it lands once, rebased and green, or not at all."""

import asyncio
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from implement_harness import returned
from landing_harness import GREEN, Writer, branches, made_board, status, writes
from workspace_project import crash, left_by

from remit import Context, Limits, ParallelOptions, Refused, Remit, Unavailable, agent, archive_tasks, implement_parallel
from remit import implement_task as implement
from support import cli
from support.boards import LandingOptions, comment_on_work, merge_work, ready_tasks
from support.repository import git

PLAN = """# Plan

### Phase 1: Read rows [NOT STARTED]
- **Goal**: rows come out

### Phase 2: Write CSV [NOT STARTED]
- **Goal**: a file goes in
"""


def log(root: Path) -> list[str]:
    return git(root, "log", "--reverse", "--format=%s").splitlines()


def commit_theirs(root: Path, name: str, text: str = "x\n") -> None:
    """A commit of another person, made meanwhile."""
    (root / name).write_text(text)
    git(root, "add", name)
    git(root, "commit", "-q", "-m", "theirs")


def clean(root: Path) -> bool:
    return git(root, "status", "--porcelain").strip() == ""


@pytest.mark.parametrize("merge", [True, "queue"])
async def test_work_without_declared_files_has_one_verdict_in_record_git_and_board(tmp_path: Path, merge: Any) -> None:
    board, writer = made_board(tmp_path), Writer(writes("new.txt"), merge=merge)
    async with Remit.open(tmp_path, agents=writer.agents(), recover=False) as remit:
        outcome = await implement(remit, board, 1)
        record = await remit.describe(outcome.session_id)
    assert outcome.status == "completed", outcome
    assert outcome.artifacts[0].path == "new.txt"
    assert str(record.state) == "completed"
    assert record.result.extra["workspace"]["changed"] == ["new.txt"]
    accepted = f"accepted by `{GREEN}`" if merge == "queue" else "no acceptance command was run"
    assert "completed" in cli.run("show", outcome.session_id, cwd=tmp_path).stdout
    for shown in (("board", "1"), ("task", "1")):
        messages = " ".join(cli.run(*shown, cwd=tmp_path).stdout.split())
        assert "Merged into main as " in messages
        assert accepted in messages
    assert status(board) == "completed"
    assert log(tmp_path) == ["begin", "task 1: Task 1", "task 1: complete implementation"]
    assert git(tmp_path, "show", "HEAD:new.txt") == "new\n"
    assert clean(tmp_path)
    assert branches(tmp_path) == ["main"]
    assert not list((tmp_path / ".remit/work").glob("sess_*"))


async def test_second_run_without_changes_is_not_completed_by_the_old_diff(tmp_path: Path) -> None:
    def half(_ctx: Context, folder: Path, _more: Any) -> Any:
        (folder / "half.txt").write_text("half\n")
        return returned(status="partial")

    board, writer = made_board(tmp_path, accept=()), Writer(half, lambda *_: returned(), writes("half.txt", "whole\n"), merge=True)
    assert (await writer.implement(board)).status == "partial"
    async with Remit.open(tmp_path, agents=writer.agents(), recover=False) as remit:
        second = await implement(remit, board, 1)
        assert str((await remit.describe(second.session_id)).state) == "failed"
    assert (second.status, status(board)) == ("failed", "implementing")
    assert git(tmp_path, "ls-tree", "--name-only", "main", "half.txt") == "", "nothing is merged"
    assert "changed nothing in this run" in second.errors[0].message
    assert (await writer.implement(board)).status == "completed"
    assert git(tmp_path, "show", "HEAD:half.txt") == "whole\n"


async def test_task_is_merged_once_with_a_commit_per_phase(tmp_path: Path) -> None:
    board = made_board(tmp_path, plans={1: PLAN})
    heads: list[str] = []

    def script(_ctx: Context, folder: Path, more: dict[str, Any]) -> Any:
        heads.append(git(tmp_path, "log", "-1", "--format=%s").strip())
        (folder / f"part{more['phase']}.txt").write_text("x\n")
        (folder / "__pycache__").mkdir(exist_ok=True)
        (folder / "__pycache__/x.pyc").write_text("x")
        return returned()

    outcome = await Writer(script).implement(board)
    assert outcome.status == "completed", outcome
    assert heads == ["begin", "begin"], "nothing is merged between phases"
    assert log(tmp_path) == ["begin", "task 1 phase 1: Read rows", "task 1 phase 2: Write CSV", "task 1: complete implementation"]
    assert "__pycache__" not in git(tmp_path, "ls-tree", "-r", "--name-only", "HEAD")
    trailers = git(tmp_path, "log", "--format=%(trailers:key=Session,valueonly)").split()
    assert len(trailers) == 3
    assert clean(tmp_path)


@pytest.mark.parametrize("is_conflict", [False, True], ids=["red together", "conflict"])
async def test_work_that_cannot_land_is_returned_to_its_session_and_merged_when_fixed(tmp_path: Path, is_conflict: bool) -> None:
    """Green alone, red together: the file `a` and another one's `b`. Or both sides of a conflict."""
    mine, theirs = ("README", "README") if is_conflict else ("a", "b")
    accept = GREEN if is_conflict else "test ! -e a -o ! -e b || { echo both of them; exit 1; }"
    board = made_board(tmp_path, accept=(accept,))

    def first(_ctx: Context, folder: Path, _more: Any) -> Any:
        (folder / mine).write_text("Mine.\n")
        commit_theirs(tmp_path, theirs, "Theirs.\n")
        return returned()

    def second(_ctx: Context, folder: Path, _more: Any) -> Any:
        text = (folder / theirs).read_text()
        assert "Theirs." in text, "it works on the merged state"
        assert not is_conflict or all(words in text for words in ("Mine.", "<<<<<<<"))
        (folder / mine).unlink()
        (folder / ("README" if is_conflict else "c")).write_text("Theirs and mine.\n")
        return returned()

    writer = Writer(first, second)
    outcome = await writer.implement(board)
    assert outcome.status == "completed", outcome
    assert ("README" if is_conflict else "both of them") in writer.requests[1]["task"]
    assert writer.resumed == [None, {"vendor": "scripted", "turn": 1}]
    assert git(tmp_path, "show", f"main:{'README' if is_conflict else 'c'}") == "Theirs and mine.\n"
    assert is_conflict or "b" in git(tmp_path, "ls-tree", "--name-only", "main").split()
    assert clean(tmp_path)


async def test_work_that_keeps_failing_acceptance_is_partial_and_not_merged(tmp_path: Path) -> None:
    board = made_board(tmp_path, accept=("test ! -e a -o ! -e b",))

    def first(_ctx: Context, folder: Path, _more: Any) -> Any:
        (folder / "a").write_text("a")
        commit_theirs(tmp_path, "b")
        return returned()

    writer = Writer(first, writes("c"))
    outcome = await writer.implement(board)
    assert (outcome.status, outcome.errors[0].code, status(board)) == ("partial", "MERGE_RED", "partial")
    assert len(writer.requests) == 2, "its agent did not pass its own acceptance"
    assert "Its agent did not fix that: Acceptance command" in outcome.summary[:200]
    assert "a" not in git(tmp_path, "ls-tree", "--name-only", "main").split()
    (folder,) = (tmp_path / ".remit/work").glob("sess_*")
    (folder / "a").unlink()  # a person fixes it there
    again = await writer.implement(board)
    assert again.status == "completed", again
    assert len(writer.requests) == 2
    assert "c" in git(tmp_path, "ls-tree", "--name-only", "main").split()


async def test_unresolved_conflict_stays_on_its_branch(tmp_path: Path) -> None:
    board = made_board(tmp_path)

    def first(_ctx: Context, folder: Path, _more: Any) -> Any:
        (folder / "README").write_text("Mine.\n")
        commit_theirs(tmp_path, "README", "Theirs.\n")
        return returned()

    writer = Writer(first, writes("other.txt"))
    outcome = await writer.implement(board)
    assert (outcome.status, outcome.errors[0].code, status(board)) == ("partial", "MERGE_CONFLICT", "partial")
    assert git(tmp_path, "show", "main:README") == "Theirs.\n"
    async with Remit.open(tmp_path, agents=writer.agents(), recover=False) as remit:
        taken = await merge_work(remit, board, 1)
    assert (taken.status, taken.errors[0].code) == ("partial", "MERGE_CONFLICT")
    assert "Conflict markers are left in README." in taken.summary
    assert len(writer.requests) == 2, "a person asked for the merge, not for another turn of the agent"
    again = await writer.implement(board)
    assert (again.status, again.errors[0].code, len(writer.requests)) == ("partial", "MERGE_CONFLICT", 3)
    (folder,) = (tmp_path / ".remit/work").glob("sess_*")
    (folder / "README").write_text("Resolved by a person.\n")
    assert (await writer.implement(board)).status == "completed"
    assert git(tmp_path, "show", "main:README") == "Resolved by a person.\n"
    assert len(writer.requests) == 3


async def test_merge_waits_for_conflicting_uncommitted_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.runtime.merge_queue.DIRTY_SECONDS", 0.3)
    board, writer = made_board(tmp_path), Writer(writes("README", "Mine.\n"), merge=False)
    (tmp_path / "README").write_text("Being edited.\n")
    outcome = await writer.implement(board, landing=LandingOptions(mode="queue"))  # as --parallel does
    assert (outcome.status, outcome.errors[0].code) == ("partial", "MERGE_WAITING")
    assert "README" in outcome.errors[0].message
    assert (tmp_path / "README").read_text() == "Being edited.\n"
    git(tmp_path, "checkout", "README")
    assert (await writer.implement(board)).status == "completed", "what the queue began lands by it, however its agent is declared"
    assert len(writer.requests) == 1
    assert (tmp_path / "README").read_text() == "Mine.\n"


async def test_branch_checked_out_during_the_run_is_not_changed(tmp_path: Path) -> None:
    board = made_board(tmp_path)

    def script(_ctx: Context, folder: Path, _more: Any) -> Any:
        git(tmp_path, "switch", "-q", "-c", "other")
        (folder / "new.txt").write_text("new\n")
        return returned()

    assert (await Writer(script).implement(board)).status == "completed"
    assert git(tmp_path, "show", "main:new.txt") == "new\n"
    assert not (tmp_path / "new.txt").exists()
    assert git(tmp_path, "branch", "--show-current").strip() == "other"


@pytest.mark.parametrize(
    ("accept", "workspace", "words"),
    [
        ((), {}, ['accept = ["make test"]', "--no-accept"]),
        ((GREEN,), {"accept": [GREEN]}, ["main itself fails its acceptance commands"]),
        (
            (GREEN,),
            {"setup": ["echo no compiler; exit 3"]},
            ["[workspace] setup: `echo no compiler; exit 3` exited 3. Its output ended: no compiler", "accept_in"],
        ),
    ],
    ids=["no acceptance", "branch is red", "set-up fails"],
)
async def test_work_that_could_not_land_is_refused_before_anything_runs(
    tmp_path: Path, accept: Any, workspace: dict[str, Any], words: list[str]
) -> None:
    board, writer = made_board(tmp_path, accept=accept), Writer(writes("new.txt"))
    if "accept" in workspace:
        commit_theirs(tmp_path, "broken")
    async with Remit.open(tmp_path, agents=writer.agents(), recover=False, settings={"workspace": workspace}) as remit:
        with pytest.raises((Refused, Unavailable)) as refused:
            await implement(remit, board, 1)
    assert all(one in f"{refused.value.message} {refused.value.advice}" for one in words)
    assert (status(board), writer.requests, branches(tmp_path)) == ("planned", [], ["main"])
    if not accept:
        assert (await writer.implement(board, landing=LandingOptions(is_accepting=False))).status == "completed"


async def test_set_up_has_network_and_runs_files_of_agents_in_the_sandbox(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    with socket.create_server(("127.0.0.1", 0)) as server:
        reach = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)"
        (tmp_path / "setup.sh").write_text(f'exec {sys.executable} -I -c "{reach}"\n')
        hostile = writes("setup.sh", f"touch {outside}/owned; mkdir -p .git/hooks; true\n")
        board, writer = made_board(tmp_path, tasks=2), Writer(hostile, writes("new.txt"))
        async with Remit.open(tmp_path, agents=writer.agents(), recover=False, settings={"workspace": {"setup": ["sh setup.sh"]}}) as remit:
            outcomes = [await implement(remit, board, number) for number in (1, 2)]
    assert [outcome.status for outcome in outcomes] == ["completed", "completed"], outcomes
    assert "owned" in git(tmp_path, "show", "HEAD:setup.sh")
    assert list(outside.iterdir()) == []


async def test_flaky_acceptance_is_repeated_once_and_recorded(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    board, writer = made_board(tmp_path, accept=()), Writer(writes("new.txt"))
    count = tmp_path_factory.mktemp("outside") / "count"
    count.write_text("")
    flaky = f"echo x >> {count}; test $(wc -l < {count}) -ne 2"  # the base, then red, then green
    settings = {"workspace": {"accept": [flaky]}, "accept_in": "host"}
    async with Remit.open(tmp_path, agents=writer.agents(), recover=False, settings=settings) as remit:
        outcome = await implement(remit, board, 1)
    assert outcome.status == "completed", outcome
    assert any(words.startswith("Flaky:") for words in outcome.warnings)


async def test_protected_files_are_not_merged(tmp_path: Path) -> None:
    board = made_board(tmp_path)

    def script(_ctx: Context, folder: Path, _more: Any) -> Any:
        (folder / "new.txt").write_text("new\n")
        (folder / "remit.toml").write_text("model = 'evil'\n")
        (folder / "specs/state.json").write_text("{}")
        return returned()

    outcome = await Writer(script).implement(board)
    assert outcome.status == "completed", outcome
    assert "remit.toml" not in git(tmp_path, "ls-tree", "--name-only", "main").split()
    assert any("remit.toml" in words for words in outcome.warnings)
    assert status(board) == "completed"


# ---- a delegation that belongs to no task


def committing() -> Any:
    """An agent whose work the queue merges: one file, named by its parameter."""

    @agent("writer", workspace="worktree", merge="queue", timeout=60)
    async def commit(ctx: Context, path: str) -> str:
        (ctx.workspace / path).write_text("new\n")
        return "done"

    return commit


@pytest.mark.parametrize("accept", [GREEN, "test ! -e new.txt -o ! -e theirs.txt"])
async def test_queue_merges_a_delegation_only_if_the_merged_tree_passes(tmp_path: Path, accept: str) -> None:
    made_board(tmp_path)

    @agent("writer", workspace="worktree", merge="queue")
    async def writer(ctx: Context) -> str:
        (ctx.workspace / "new.txt").write_text("new\n")
        commit_theirs(tmp_path, "theirs.txt")
        return "done"

    async with Remit.open(tmp_path, agents=[writer], settings={"workspace": {"accept": [accept]}}) as remit:
        result = await remit.delegate("writer")
    is_green = accept == GREEN
    assert [str(result.status), *(error.code for error in result.errors)] == (["completed"] if is_green else ["partial", "MERGE_RED"])
    assert ("new.txt" in git(tmp_path, "ls-tree", "--name-only", "main").split()) is is_green


async def test_cancelled_delegation_does_not_land(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """It is cancelled while its acceptance command runs; the next one lands after that has ended."""
    made_board(tmp_path)
    begun, go_on = (tmp_path_factory.mktemp("outside") / name for name in ("begun", "go_on"))
    for pipe in (begun, go_on):
        os.mkfifo(pipe)
    settings = {"workspace": {"accept": [f"test ! -e one.txt || {{ echo > {begun}; cat {go_on}; }}"]}, "accept_in": "host"}
    async with Remit.open(tmp_path, agents=[committing()], settings=settings) as remit:
        handle = await remit.start("writer", path="one.txt")
        await asyncio.to_thread(begun.read_text)
        await handle.cancel("not wanted")
        await asyncio.to_thread(go_on.write_text, "")
        second = await remit.delegate("writer", path="two.txt")
    assert second.ok, second
    assert [name for name in git(tmp_path, "ls-tree", "--name-only", "main").split() if name in ("one.txt", "two.txt")] == ["two.txt"]
    assert f"remit/{handle.session_id}" in branches(tmp_path), "its work is kept"


async def test_queue_loses_nothing_of_a_merge_that_an_agent_made(tmp_path: Path) -> None:
    """A merge commit may contain changes of its own: how a conflict was resolved."""
    made_board(tmp_path)

    @agent("merger", workspace="worktree", merge="queue")
    async def merger(ctx: Context) -> str:
        here = ctx.workspace
        git(here, "checkout", "-q", "-b", f"side-{ctx.session_id}")
        (here / "side.txt").write_text("side\n")
        git(here, "add", ".")
        git(here, "commit", "-q", "-m", "side")
        git(here, "checkout", "-q", f"remit/{ctx.session_id}")
        git(here, "merge", "-q", "--no-ff", "--no-commit", f"side-{ctx.session_id}")
        (here / "resolved.txt").write_text("only in the merge\n")
        git(here, "add", ".")
        git(here, "commit", "-q", "-m", "joined")
        return "done"

    async with Remit.open(tmp_path, agents=[merger], settings={"workspace": {"accept": [GREEN]}}) as remit:
        result = await remit.delegate("merger")
    assert result.ok, result
    assert {"side.txt", "resolved.txt"} <= set(git(tmp_path, "ls-tree", "--name-only", "main").split())


# ---- several at once


async def test_failed_task_stops_only_its_dependents(tmp_path: Path) -> None:
    board = made_board(tmp_path, 5)
    with board.change() as draft:
        draft.state = draft.state.with_tasks(
            (replace(draft.state.task(3), dependencies=(1,)), replace(draft.state.task(5), dependencies=(4,)))
        )
    began: list[int] = []
    both = asyncio.Event()

    async def script(_ctx: Context, folder: Path, more: dict[str, Any]) -> Any:
        number = more["number"]
        began.append(number)
        if {1, 2} <= set(began):
            both.set()
        await asyncio.wait_for(both.wait(), 30)
        if number == 4:
            return returned(status="failed")
        if number == 3:
            assert (folder / "new1.txt").exists(), "what it depends on is merged"
        (folder / f"new{number}.txt").write_text("new\n")
        return returned()

    writer = Writer(script)
    assert ready_tasks(board) == (1, 2, 3, 4, 5)
    async with Remit.open(tmp_path, agents=writer.agents(), recover=False) as remit:
        outcome = await implement_parallel(remit, board, [1, 2, 3, 4, 5], ParallelOptions(width=4))
    assert outcome.data["completed"] == [1, 2, 3]
    assert outcome.data["not_begun"] == [5]
    assert (outcome.status, status(board, 4), status(board, 5)) == ("partial", "implementing", "planned")
    assert began.index(3) > began.index(1)
    assert clean(tmp_path)


async def test_tasks_with_a_common_file_do_not_run_concurrently(tmp_path: Path) -> None:
    plan = "# Plan\n\n### Phase 1: Edit [NOT STARTED]\n- **Files**: `src/app.py`\n"
    board, at_once, most = made_board(tmp_path, 2, plans={1: plan, 2: plan}), [0], [0]

    async def script(_ctx: Context, folder: Path, more: dict[str, Any]) -> Any:
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        await asyncio.sleep(0.2)
        at_once[0] -= 1
        (folder / f"new{more['number']}.txt").write_text("new\n")
        return returned()

    async with Remit.open(tmp_path, agents=Writer(script).agents(), recover=False) as remit:
        outcome = await implement_parallel(remit, board, [1, 2], ParallelOptions(width=4))
    assert outcome.status == "completed", outcome
    assert most == [1]


async def test_time_and_budget_limits_apply_to_all_tasks(tmp_path: Path) -> None:
    board = made_board(tmp_path, 3)
    async with Remit.open(tmp_path, agents=Writer(writes("x.txt")).agents(), recover=False) as remit:
        outcome = await implement_parallel(remit, board, [1, 2, 3], ParallelOptions(width=1, budget=Limits(delegations=1)))
        late = await implement_parallel(remit, board, [3], ParallelOptions(width=1, timeout_all=0.5))
    assert any(error.code == "BUDGET_EXCEEDED" for error in outcome.errors)
    assert len(outcome.data["completed"]) <= 1
    assert late.data["not_begun"] == [3]
    assert "the time limit for all tasks was reached" in late.summary


async def test_candidates_are_accepted_in_a_batch_and_a_failing_one_is_isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.runtime.merge_queue.SLOW_SECONDS", 0.0)
    board = made_board(tmp_path, 4, accept=("true",))

    async def script(_ctx: Context, folder: Path, more: dict[str, Any]) -> Any:
        (folder / f"part{more['number']}").write_text("x")
        return returned()

    settings = {"workspace": {"accept": ["test $(ls part* 2> /dev/null | grep -c '[13]') -lt 2"]}}  # 1 and 3 do not go together
    writer = Writer(script)
    async with Remit.open(tmp_path, agents=writer.agents(), recover=False, settings=settings) as remit:
        outcome = await implement_parallel(remit, board, [1, 2, 3, 4], ParallelOptions(width=4))
    assert len(outcome.data["completed"]) == 3
    assert [error.code for error in outcome.errors] == ["MERGE_RED"]
    on_main = {name for name in git(tmp_path, "ls-tree", "--name-only", "main").split() if name.startswith("part")}
    assert on_main in ({"part1", "part2", "part4"}, {"part2", "part3", "part4"})


# ---- set-up of worktrees


async def test_worktree_is_set_up_once_and_shared_files_are_not_committed(tmp_path: Path) -> None:
    board = made_board(tmp_path, plans={1: PLAN})
    (tmp_path / ".git/info/exclude").write_text("secret.env\nmodules/\nmade.txt\n")
    (tmp_path / "secret.env").write_text("key")
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules/one").write_text("1")
    settings = {
        "workspace": {"setup": ["echo made >> made.txt"], "copy": ["secret.env"], "link": ["modules"], "accept": ["test -s modules/one"]}
    }
    seen: list[str] = []

    def script(_ctx: Context, folder: Path, more: dict[str, Any]) -> Any:
        seen.append((folder / "made.txt").read_text() + (folder / "secret.env").read_text() + (folder / "modules/one").read_text())
        (folder / f"part{more['phase']}.txt").write_text("x\n")
        return returned()

    async with Remit.open(tmp_path, agents=Writer(script).agents(), recover=False, settings=settings) as remit:
        outcome = await implement(remit, board, 1)
    assert outcome.status == "completed", outcome
    assert seen == ["made\nkey1", "made\nkey1"]
    names = git(tmp_path, "ls-tree", "--name-only", "main").split()
    assert not {"secret.env", "modules", "made.txt"} & set(names)


# ---- looking at the work, commenting on it, merging and discarding it


async def test_review_comments_go_to_the_session_and_the_work_can_be_merged(tmp_path: Path) -> None:
    board, writer = made_board(tmp_path), Writer(writes("new.txt"), writes("new.txt", "better\n"), merge=False)
    await writer.implement(board)
    async with Remit.open(tmp_path, agents=writer.agents(), recover=False) as remit:
        outcome = await comment_on_work(remit, board, 1, ["new.txt:1 say it better"])
        assert outcome.status == "completed", outcome
        assert "new.txt:1 say it better" in writer.requests[1]["task"]
        assert writer.resumed[1] == {"vendor": "scripted", "turn": 1}
        assert status(board) == "partial"
        assert "new.txt" not in git(tmp_path, "ls-tree", "--name-only", "main").split()
        assert (await comment_on_work(remit, board, 1, ["better still"])).status == "partial", "its agent changed nothing"
        merged = await merge_work(remit, board, 1)
        assert len(writer.requests) == 3, "a person takes it as it is"
    assert (merged.status, status(board)) == ("completed", "completed")
    assert git(tmp_path, "show", "main:new.txt") == "better\n"
    assert clean(tmp_path)


async def test_work_that_landed_before_a_kill_is_read_instead_of_a_cached_result(tmp_path: Path) -> None:
    @agent("reader", cache="1h", effects=("read",))
    async def reader(ctx: Context) -> bool:
        return (ctx.workspace / "new.txt").exists()

    await Writer(writes("new.txt"), merge=False).implement(made_board(tmp_path))
    async with Remit.open(tmp_path, agents=[reader]) as remit:
        assert (await remit.delegate("reader")).data is False
    crash(tmp_path, "task after")
    async with Remit.open(tmp_path, agents=[reader]) as remit:
        found = [await remit.delegate("reader") for _ in range(2)]
    assert ([one.data for one in found], "cached_from" in found[1].metadata.extra) == ([True, True], True)


@pytest.mark.parametrize("is_archived", [False, True])
async def test_worktree_of_a_killed_process_is_removed_by_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_archived: bool
) -> None:
    board, writer = made_board(tmp_path, 2), Writer(writes("one.txt"), writes("two.txt"))
    with monkeypatch.context() as killed:
        killed.setattr("remit.board.task_landing.TaskLanding.close", lambda _landing: asyncio.sleep(0))
        await writer.implement(board)
    if is_archived:
        archive_tasks(board, agreed=lambda _tasks: True)
    assert len(branches(tmp_path)) == 2
    assert (await writer.implement(board, 2)).status == "completed"
    assert branches(tmp_path) == ["main"]


@pytest.mark.parametrize("where", ["task setting up", "task accepting"])
async def test_killed_command_leaves_no_process_on_the_host(tmp_path: Path, where: str) -> None:
    made_board(tmp_path)
    killed = crash(tmp_path, where)
    assert left_by(killed) == 1
    async with Remit.open(tmp_path):
        assert left_by(killed) == 0


async def test_user_can_merge_work_despite_the_verdict(tmp_path: Path) -> None:
    board = made_board(tmp_path, 2)

    def script(_ctx: Context, folder: Path, more: dict[str, Any]) -> Any:
        if more["number"] == 1:
            (folder / "new.txt").write_text("new\n")
        return returned(status="failed")

    writer = Writer(script)
    for number in (1, 2):
        assert (await writer.implement(board, number)).status == "failed"
    async with Remit.open(tmp_path, agents=writer.agents(), recover=False) as remit:
        merged = await merge_work(remit, board, 1)
        with pytest.raises(Refused, match="cannot be merged: it has no work"):
            await merge_work(remit, board, 2)
    assert (merged.status, status(board, 1), status(board, 2)) == ("completed", "completed", "implementing")
    assert git(tmp_path, "show", "main:new.txt") == "new\n"
    assert clean(tmp_path)
