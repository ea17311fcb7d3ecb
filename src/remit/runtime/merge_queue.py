"""The merge queue: candidates are merged one after the other, each rebased on the current branch, accepted on the merged tree, then
fast-forwarded.

One queue per repository at a time, also across processes. If acceptance is slow, waiting candidates are accepted together; a failing batch
is split until the failing candidate is found. A failing candidate is tried once more, since tests can be flaky, and that is recorded."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from remit.core.errors import ErrorInfo, RemitError, Unavailable
from remit.core.settings import Settings
from remit.runtime.landing import (
    MOVES,
    QUEUE_LOCK,
    MoveResult,
    RebaseResult,
    checked_out_branch,
    fresh_worktree,
    git_of,
    head_of,
    move_branch,
    only_board_changed,
    rebase,
    remember_candidate,
)
from remit.runtime.verify import Acceptance, AcceptanceSite, Check, run_acceptance, run_setup, share_files
from remit.runtime.workspaces import MergeResult, Workspace
from remit.system.files import file_lock
from remit.system.threads import finish_despite_cancel, off_loop

TURN_LOCK = "remit-queue-next.lock"
"""Held by the process that is next in the queue, so that processes merge in turn."""
MERGE_LOCK = "remit-merge.lock"
"""Held while work is merged without acceptance, which does not wait for the acceptance of others."""
SLOW_SECONDS = 5.0
"""Acceptance time from which waiting candidates are batched."""
BATCH = 8
POLL_SECONDS = 0.2
DIRTY_SECONDS = 10.0
"""How long to wait for uncommitted work of the user to be committed, and for another git command to end."""
LANDED, RED, CONFLICT, WAITS = "landed", "red", "conflict", "waits"
CODES = {RED: "MERGE_RED", CONFLICT: "MERGE_CONFLICT", WAITS: "MERGE_WAITING"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The work of one task to merge."""

    workspace: Workspace
    tip: str
    accept: tuple[str, ...] = ()
    """Commands of the task and its plan, beside those of the project."""
    stop_at: float
    """Monotonic: acceptance commands stop then."""
    dirty_seconds: float = DIRTY_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """The outcome of a candidate."""

    state: str
    commit: str = ""
    """The commit under which it was merged."""
    rebased: RebaseResult | None = None
    """If not merged: its work on top of the branch."""
    error: ErrorInfo | None = None
    output: str = ""
    """The end of the failing command's output."""
    notes: tuple[str, ...] = ()
    """Notes to keep: a flaky command, a blocking file."""
    summary: str = ""
    """How it was merged, in a sentence."""


@dataclass(slots=True)
class _QueuedCandidate:
    candidate: Candidate
    landing: "asyncio.Future[Landing]" = field(repr=False)
    is_moving: bool = False
    """The branch is being moved to it."""
    is_cancelled: bool = False
    """The branch is not moved to it, unless git has begun to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Result of the acceptance commands on one commit."""

    failed: Check | None = None
    error: ErrorInfo | None = None
    commands: tuple[str, ...] = ()
    """That exited 0."""
    notes: tuple[str, ...] = ()
    """How they had failed before."""

    @property
    def is_met(self) -> bool:
        return self.error is None


class MergeQueue:
    """The merge queue of one project in this process."""

    def __init__(self, root: Path, settings: Settings, *, is_accepting: bool = True, marks: Mapping[str, str]) -> None:
        """`is_accepting`: whether acceptance commands run on the merged tree; otherwise a candidate is merged if it can be rebased.
        `marks`: variables by which recovery finds their processes."""
        self._root = root
        self._settings = settings
        self._rules = settings.workspace
        self._is_accepting = is_accepting
        self._marks = marks
        self._waiting: list[_QueuedCandidate] = []
        self._worker: asyncio.Task[None] | None = None
        self._own: asyncio.Task[None] | None = None
        self._slow = 0.0
        """Duration of the last acceptance."""
        self._turn = asyncio.Lock()
        """One landing of this process at a time."""
        self._owner = ""
        """The worktree whose agent has its last turn: nothing else lands, in other processes neither."""
        self._base = asyncio.Lock()
        self._base_proof: Proof | None = None

    async def land(self, candidate: Candidate) -> Landing:
        """Wait until it is merged or cannot be. Cancellation removes it from the queue, or waits while the branch moves."""
        waiting = _QueuedCandidate(candidate, asyncio.get_running_loop().create_future())
        if self._owner == candidate.workspace.session_id:
            self._own = asyncio.create_task(self._land_or_fail([waiting]))
        else:
            self._waiting.append(waiting)
            if self._worker is None or self._worker.done():
                self._worker = asyncio.create_task(self._work())
        try:
            return await asyncio.shield(waiting.landing)
        except asyncio.CancelledError:
            waiting.is_cancelled = True
            if waiting.is_moving:
                await asyncio.wait([waiting.landing])
            waiting.landing.cancel()
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            raise

    @contextlib.asynccontextmanager
    async def exclusive(self, workspace: Workspace, stop_at: float) -> AsyncIterator[None]:
        """While its agent has its last turn: nothing else lands, so that what it is given stays true. Bounded by its deadline."""
        async with self._locked_queue(workspace, stop_at):
            self._owner = workspace.session_id
            try:
                yield
            finally:
                self._owner = ""

    async def base_proof(self, workspace: Workspace, stop_at: float) -> Proof:
        """The project's commands on its current branch: run once, since only accepted work is merged later."""
        if not self._rules.accept:
            return Proof()
        async with self._base:
            if self._base_proof is None or not self._base_proof.is_met:
                async with self._locked_queue(workspace, stop_at):
                    head = await off_loop(head_of, workspace)
                    self._base_proof = await self._prove(workspace, head, (), stop_at)
            return self._base_proof

    async def _work(self) -> None:
        while self._waiting:
            first = self._waiting[0]
            try:
                async with self._locked_queue(first.candidate.workspace, first.candidate.stop_at):
                    batch = self._waiting[: BATCH if self._slow >= SLOW_SECONDS else 1]
                    del self._waiting[: len(batch)]
                    await self._land_or_fail(batch)
            except (RemitError, OSError) as error:
                self._waiting = [one for one in self._waiting if one is not first]
                _answer([first], _failed(error))

    async def _land_or_fail(self, batch: Sequence[_QueuedCandidate]) -> None:
        try:
            await self._land(batch)
        except (RemitError, OSError) as error:
            _answer(batch, _failed(error))
        except Exception as error:  # noqa: BLE001 - the queue must continue, and its waiters must receive the error
            for one in batch:
                if not one.landing.done():
                    one.landing.set_exception(error)

    @contextlib.asynccontextmanager
    async def _locked_queue(self, workspace: Workspace, stop_at: float) -> AsyncIterator[None]:
        """The queue of the repository, also against other processes."""
        async with self._turn:
            with contextlib.ExitStack() as held:
                await self._lock(held, workspace, stop_at)
                yield

    async def _lock(self, held: contextlib.ExitStack, workspace: Workspace, stop_at: float) -> None:
        """Lock out other processes, in turn with them."""
        with contextlib.ExitStack() as turn:
            for name, stack in ((TURN_LOCK, turn), (QUEUE_LOCK, held)) if self._is_accepting else ((MERGE_LOCK, held),):
                while True:
                    try:
                        await off_loop(stack.enter_context, file_lock(workspace.common_dir / name, timeout=POLL_SECONDS))
                        break
                    except Unavailable:
                        if time.monotonic() >= stop_at:
                            raise Unavailable("Another process was landing its work until the time was up.") from None

    async def _land(self, batch: Sequence[_QueuedCandidate]) -> None:
        """Merge a batch if it is accepted, else split it."""
        for _ in range(MOVES):
            batch = [one for one in batch if not one.landing.done()]
            if not batch:
                return
            head, stacked = await self._stack(batch)
            if not stacked:
                return
            batch = [one for one, _ in stacked]
            tip = stacked[-1][1].tip
            workspace = batch[-1].candidate.workspace
            proof = Proof()
            if tip != head:
                commands = tuple(dict.fromkeys(command for one in batch for command in one.candidate.accept))
                stop_at = max(one.candidate.stop_at for one in batch)
                proof = await self._prove(workspace, tip, commands, stop_at)
                if not proof.is_met and len(batch) > 1:
                    half = len(batch) // 2
                    await self._land(batch[:half])
                    await self._land(batch[half:])
                    return
                if not proof.is_met and time.monotonic() < stop_at and not batch[0].landing.done():
                    again = await self._prove(workspace, tip, commands, stop_at)
                    if again.is_met and proof.error is not None:
                        again = replace(again, notes=(f"Flaky: {proof.error.message} It exited 0 when it was run again.",))
                    proof = again
                if not proof.is_met:
                    assert proof.error is not None
                    words = f"The work is not accepted on top of the project's branch. {proof.error.message}"
                    output = proof.failed.output_tail if proof.failed is not None else ""
                    _answer(batch, _not_landed(RED, words, proof.error.recommendation, rebased=stacked[-1][1], output=output))
                    return
            if await self._move(head, stacked, proof):
                return
        _answer(batch, _not_landed(WAITS, f"{workspace.onto} moved {MOVES} times while the work was accepted."))

    async def _stack(self, batch: Sequence[_QueuedCandidate]) -> tuple[str, list[tuple[_QueuedCandidate, RebaseResult]]]:
        """Stack the candidates on the branch. One that conflicts with the branch is answered; one that conflicts only with another
        candidate waits."""
        workspace = batch[0].candidate.workspace
        head = onto = await off_loop(head_of, workspace)
        stacked: list[tuple[_QueuedCandidate, RebaseResult]] = []
        for one in batch:
            rebased = await off_loop(rebase, one.candidate.workspace, one.candidate.tip, onto)
            if rebased.is_clean:
                stacked.append((one, rebased))
                onto = rebased.tip
            elif onto == head:
                words = (
                    f"It cannot be rebased on {workspace.onto}: both sides changed the same lines ({', '.join(rebased.conflicts[:10])})."
                )
                _answer([one], _not_landed(CONFLICT, words, rebased=rebased))
            else:
                self._waiting.insert(0, one)
        return head, stacked

    async def _prove(self, workspace: Workspace, commit: str, commands: Sequence[str], stop_at: float) -> Proof:
        """Run the project's and the given commands in a temporary worktree of `commit`."""
        if not self._is_accepting or not (commands or self._rules.accept):
            return Proof()
        began = time.monotonic()
        with contextlib.ExitStack() as held:
            folder = await off_loop(held.enter_context, fresh_worktree(workspace, commit))
            try:
                await off_loop(share_files, folder, self._root, self._rules)
                async for proof in self._proofs(folder, commands, stop_at):
                    if proof.error is not None:
                        failed = next(check for check in proof.checks if not check.is_met)
                        return Proof(failed=failed, error=proof.error)
            finally:
                await off_loop(held.close)
        self._slow = time.monotonic() - began
        return Proof(commands=tuple(dict.fromkeys((*self._rules.accept, *commands))))

    async def _proofs(self, folder: Path, commands: Sequence[str], stop_at: float) -> AsyncIterator[Acceptance]:
        yield await run_setup(folder, self._root, self._settings, seconds=stop_at - time.monotonic(), marks=self._marks)
        for wanted, is_asked_here in ((self._rules.accept, True), (commands, False)):
            site = AcceptanceSite(
                folder=folder, root=self._root, settings=self._settings, is_asked_here=is_asked_here, marks=self._marks
            )  # fmt: skip
            yield await run_acceptance(wanted, site, seconds_left=stop_at - time.monotonic())

    async def _move(self, head: str, stacked: Sequence[tuple[_QueuedCandidate, RebaseResult]], proof: Proof) -> bool:
        """Move the branch to the accepted work; False: it moved meanwhile, or work was cancelled, so rebase and accept again."""
        workspace = stacked[-1][0].candidate.workspace
        until = time.monotonic() + max(one.candidate.dirty_seconds for one, _ in stacked)
        while True:
            for one, rebased in stacked:
                await off_loop(remember_candidate, one.candidate.workspace, rebased.tip)
            moved = await _move_unless_cancelled([one for one, _ in stacked], workspace, head, stacked[-1][1].tip)
            if moved is None:
                return False
            if moved.is_done:
                for one, rebased in stacked:
                    _answer([one], _landed(workspace.onto, rebased, proof, len(stacked)))
                return True
            if moved.is_outdated:
                now = await off_loop(head_of, workspace)
                if not await off_loop(only_board_changed, workspace, head, now):
                    return False
                again = await self._stack([one for one, _ in stacked])
                if [one for one, _ in again[1]] != [one for one, _ in stacked]:
                    return False
                head, stacked = again
            elif time.monotonic() >= until:
                files = f" ({', '.join(moved.files[:10])})" if moved.files else ""
                words = f"It cannot be merged into {workspace.onto}: {moved.reason}{files}."
                _answer([one for one, _ in stacked], _not_landed(WAITS, words, notes=proof.notes))
                return True
            else:
                await asyncio.sleep(POLL_SECONDS)


async def merge_work(
    workspace: Workspace,
    commit: str,
    root: Path,
    settings: Settings,
    *,
    accept: tuple[str, ...] = (),
    is_accepting: bool,
    seconds: float,
    marks: Mapping[str, str],
) -> MergeResult:
    """Merge `commit` into the branch that is checked out in the project. Without acceptance commands it waits for no uncommitted work."""
    onto = await off_loop(checked_out_branch, git_of(workspace))
    if not onto:
        return MergeResult(is_done=False, reason="no branch is checked out in the project (HEAD is detached)")
    candidate = Candidate(
        workspace=replace(workspace, onto=onto), tip=commit, accept=accept, stop_at=time.monotonic() + seconds,
        dirty_seconds=DIRTY_SECONDS if is_accepting else 0.0,
    )  # fmt: skip
    landing = await MergeQueue(root, settings, is_accepting=is_accepting, marks=marks).land(candidate)
    if landing.error is None:
        return MergeResult(is_done=True, into=onto, notes=landing.notes)
    return MergeResult(
        is_done=False, into=onto, conflicts=landing.rebased.conflicts if landing.rebased is not None else (),
        reason=landing.error.message.rstrip("."), code=landing.error.code if is_accepting else CODES[CONFLICT],
    )  # fmt: skip


async def _move_unless_cancelled(batch: Sequence[_QueuedCandidate], workspace: Workspace, head: str, tip: str) -> MoveResult | None:
    """Move the branch; None: one of the batch was cancelled before git began, and the others are to be rebased again."""
    for one in batch:
        one.is_moving = not one.landing.done()
    if not all(one.is_moving for one in batch):
        return None
    moved = await finish_despite_cancel(off_loop(move_branch, workspace, head, tip, lambda: not any(one.is_cancelled for one in batch)))
    for one in batch:
        one.is_moving = moved.is_done
        if one.is_cancelled and not moved.is_done:
            one.landing.cancel()
    return None if any(one.landing.done() for one in batch) else moved


def _answer(waiting: Sequence[_QueuedCandidate], landing: Landing) -> None:
    for one in waiting:
        if not one.landing.done():
            one.landing.set_result(landing)


def _not_landed(state: str, message: str, advice: str = "", **more: Any) -> Landing:
    error = ErrorInfo(type="merge_conflict", code=CODES[state], message=message, recoverable=True, recommendation=advice)
    return Landing(state=state, error=error, **more)


def _landed(onto: str, rebased: RebaseResult, proof: Proof, count: int) -> Landing:
    accepted = f"accepted by {', '.join(f'`{one}`' for one in proof.commands)}" if proof.commands else "no acceptance command was run"
    together = f", together with {count - 1} more" if proof.commands and count > 1 else ""
    summary = f"Merged into {onto} as {rebased.tip[:9]}, rebased on {rebased.onto[:9]}; {accepted}{together}."
    return Landing(state=LANDED, commit=rebased.tip, notes=proof.notes, summary=summary)


def _failed(error: Exception) -> Landing:
    message = error.message if isinstance(error, RemitError) else str(error)
    return _not_landed(WAITS, f"The work could not be merged: {message}", getattr(error, "advice", ""))
