"""The merge queue: candidates are merged one after the other, each rebased on the current branch, accepted on the merged tree, then
fast-forwarded.

One landing per repository at a time, also across processes. A failing candidate is tried once more, since tests can be flaky, and that is
recorded."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from remit.core.errors import ErrorInfo, RemitError, Unavailable
from remit.runtime.deps import AcceptanceRules, WorkspaceRules
from remit.runtime.landing import (
    RebaseResult,
    fresh_worktree,
    head_of,
    move_branch,
    only_board_changed,
    rebase,
    remember_candidate,
)
from remit.runtime.verify import Acceptance, AcceptanceSite, Check, run_acceptance
from remit.runtime.workspace_setup import run_setup, share_files
from remit.runtime.workspaces import Workspace
from remit.system.files import file_lock
from remit.system.threads import off_loop

QUEUE_LOCK = "remit-queue.lock"
TURN_LOCK = "remit-queue-next.lock"
"""Held by the process that is next in the queue, so that processes merge in turn."""
MOVES = 5
"""How often a candidate is rebased again because the branch moved."""
POLL_SECONDS = 0.2
DIRTY_SECONDS = 5.0
"""How long to wait for uncommitted work of the user to be committed."""
T = TypeVar("T")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Result of the acceptance commands on one commit."""

    failed: Check | None = None
    error: ErrorInfo | None = None
    commands: tuple[str, ...] = ()
    """That exited 0."""
    flaky: str = ""
    """How they had failed before."""

    @property
    def is_met(self) -> bool:
        return self.error is None

    @property
    def notes(self) -> tuple[str, ...]:
        return (self.flaky,) if self.flaky else ()


class MergeQueue:
    """The merge queue of one project in this process."""

    def __init__(self, root: Path, rules: WorkspaceRules, acceptance: AcceptanceRules, *, is_accepting: bool = True) -> None:
        """`is_accepting`: whether acceptance commands run on the merged tree; otherwise a candidate is merged if it can be rebased."""
        self._root = root
        self._rules = rules
        self._acceptance = acceptance
        self._is_accepting = is_accepting
        self._turn = asyncio.Lock()
        """One landing of this process at a time."""
        self._base = asyncio.Lock()
        self._base_proof: Proof | None = None

    async def land(self, candidate: Candidate, *, has_turn: bool = False) -> Landing:
        """Wait until it is merged or cannot be. `has_turn`: the caller is within `turn`."""
        try:
            async with contextlib.nullcontext() if has_turn else self.turn(candidate.workspace, candidate.stop_at):
                return await self._land(candidate)
        except (RemitError, OSError) as error:
            return _failed(error)

    @contextlib.asynccontextmanager
    async def turn(self, workspace: Workspace, stop_at: float) -> AsyncIterator[None]:
        """Nothing else lands meanwhile, in other processes neither. Raises `Unavailable` at `stop_at`."""
        with contextlib.ExitStack() as held:
            try:
                async with asyncio.timeout(max(0.0, stop_at - time.monotonic())):
                    await self._turn.acquire()
            except TimeoutError:
                raise Unavailable("Other work was landing until the time was up.") from None
            held.callback(self._turn.release)
            with contextlib.ExitStack() as next_one:  # released when the queue is held: processes merge in turn
                for name, stack in ((TURN_LOCK, next_one), (QUEUE_LOCK, held)):
                    await _lock_file(stack, workspace.common_dir / name, stop_at)
            yield

    async def base_proof(self, workspace: Workspace, stop_at: float) -> Proof:
        """The project's commands on its current branch: run once, since only accepted work is merged later."""
        if not self._rules.accept:
            return Proof()
        async with self._base:
            if self._base_proof is None or not self._base_proof.is_met:
                async with self.turn(workspace, stop_at):
                    head = await off_loop(head_of, workspace)
                    self._base_proof = await self._prove(workspace, head, (), stop_at)
            return self._base_proof

    async def _land(self, candidate: Candidate) -> Landing:
        workspace = candidate.workspace
        for _ in range(MOVES):
            head = await off_loop(head_of, workspace)
            rebased = await off_loop(rebase, workspace, candidate.tip, head)
            if not rebased.is_clean:
                return _conflict(rebased, workspace.onto)
            proof = Proof() if rebased.is_empty else await self._prove_twice(candidate, rebased.tip)
            if not proof.is_met:
                return _red(proof, rebased)
            if (landing := await self._move(candidate, rebased, proof)) is not None:
                return landing
        return _not_landed(WAITS, f"{workspace.onto} moved {MOVES} times while the work was accepted.")

    async def _prove_twice(self, candidate: Candidate, commit: str) -> Proof:
        """Acceptance may be flaky: a failure is repeated once."""
        proof = await self._prove(candidate.workspace, commit, candidate.accept, candidate.stop_at)
        if proof.error is None or time.monotonic() >= candidate.stop_at:
            return proof
        again = await self._prove(candidate.workspace, commit, candidate.accept, candidate.stop_at)
        return replace(again, flaky=f"Flaky: {proof.error.message} It exited 0 when it was run again.") if again.is_met else again

    async def _prove(self, workspace: Workspace, commit: str, commands: Sequence[str], stop_at: float) -> Proof:
        """Run the project's and the given commands in a temporary worktree of `commit`."""
        if not self._is_accepting or not (commands or self._rules.accept):
            return Proof()
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
        return Proof(commands=tuple(dict.fromkeys((*self._rules.accept, *commands))))

    async def _proofs(self, folder: Path, commands: Sequence[str], stop_at: float) -> AsyncIterator[Acceptance]:
        yield await run_setup(folder, self._root, self._rules, self._acceptance, seconds=stop_at - time.monotonic())
        for wanted, is_asked_here in ((self._rules.accept, True), (commands, False)):
            site = AcceptanceSite(folder=folder, root=self._root, rules=self._acceptance, is_asked_here=is_asked_here)
            yield await run_acceptance(wanted, site, seconds_left=stop_at - time.monotonic())

    async def _move(self, candidate: Candidate, rebased: RebaseResult, proof: Proof) -> Landing | None:
        """Move the branch to the accepted work; None: it moved meanwhile, so rebase and accept again."""
        workspace = candidate.workspace
        until = time.monotonic() + DIRTY_SECONDS
        while True:
            await off_loop(remember_candidate, workspace, rebased.tip)
            moved = await _to_end(off_loop(move_branch, workspace, rebased.onto, rebased.tip))
            if moved.is_done:
                return _landed(workspace.onto, rebased, proof)
            if moved.is_outdated:
                now = await off_loop(head_of, workspace)
                if not await off_loop(only_board_changed, workspace, rebased.onto, now):
                    return None
                rebased = await off_loop(rebase, workspace, candidate.tip, now)
                if not rebased.is_clean:
                    return None
            elif time.monotonic() >= until:
                files = f" ({', '.join(moved.files[:10])})" if moved.files else ""
                words = f"The work is accepted, but cannot be merged into {workspace.onto}: {moved.reason}{files}."
                return _not_landed(WAITS, words, notes=proof.notes)
            else:
                await asyncio.sleep(POLL_SECONDS)


async def _lock_file(held: contextlib.ExitStack, path: Path, stop_at: float) -> None:
    """Lock out other processes."""
    while True:
        try:
            await off_loop(held.enter_context, file_lock(path, timeout=POLL_SECONDS))
            return
        except Unavailable:
            if time.monotonic() >= stop_at:
                raise Unavailable("Another process was landing its work until the time was up.") from None


async def _to_end(work: "Coroutine[object, object, T]") -> T:
    """Wait for the branch to be moved, even if the waiter is cancelled."""
    moving = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(moving)
    except asyncio.CancelledError:
        await asyncio.wait({moving})
        raise


def _not_landed(state: str, message: str, advice: str = "", **more: Any) -> Landing:
    error = ErrorInfo(type="merge_conflict", code=CODES[state], message=message, recoverable=True, recommendation=advice)
    return Landing(state=state, error=error, **more)


def _landed(onto: str, rebased: RebaseResult, proof: Proof) -> Landing:
    accepted = f"accepted by {', '.join(f'`{one}`' for one in proof.commands)}" if proof.commands else "no acceptance command was run"
    summary = f"Merged into {onto} as {rebased.tip[:9]}, rebased on {rebased.onto[:9]}; {accepted}."
    return Landing(state=LANDED, commit=rebased.tip, notes=proof.notes, summary=summary)


def _red(proof: Proof, rebased: RebaseResult) -> Landing:
    assert proof.error is not None
    message = f"The work is not accepted on top of the project's branch. {proof.error.message}"
    output = proof.failed.output_tail if proof.failed is not None else ""
    return _not_landed(RED, message, proof.error.recommendation, rebased=rebased, output=output)


def _conflict(rebased: RebaseResult, onto: str) -> Landing:
    names = ", ".join(rebased.conflicts[:10])
    message = f"It cannot be rebased on {onto}: both sides changed the same lines ({names})."
    return _not_landed(CONFLICT, message, rebased=rebased)


def _failed(error: Exception) -> Landing:
    message = error.message if isinstance(error, RemitError) else str(error)
    return _not_landed(WAITS, f"The work could not be merged: {message}", getattr(error, "advice", ""))
