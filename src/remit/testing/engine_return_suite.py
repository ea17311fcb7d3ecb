"""The promises of every `Engine` about returns (S3): one repair, retries only where declared, phantom work refused, acceptance run here."""

import json
from pathlib import Path
from typing import Any

from remit.agents.function import agent
from remit.core.errors import Unavailable
from remit.core.result import Evidence, Status, StopReason
from remit.runtime.context import Context
from remit.testing.engine_samples import Check, OpenRemit, code_of
from remit.testing.scripted import Scripted, answer, fail

RETURN_CHECKS: list[Check] = []


def _promise(check: Check) -> Check:
    RETURN_CHECKS.append(check)
    return check


def _return_text(ctx: Context, **fields: Any) -> str:
    metadata = {
        "session_id": ctx.session_id,
        "agent_type": ctx.path[-1],
        "delegation_depth": ctx.depth,
        "delegation_path": list(ctx.path),
    }
    return json.dumps(
        {"status": "completed", "summary": "It is done. All is well.", "artifacts": [], "errors": [], "metadata": metadata, **fields}
    )


# ---- answers


@_promise
async def a_value_becomes_a_completed_return(open_remit: OpenRemit, root: Path) -> None:
    async with open_remit(root, [Scripted("worker", answer({"n": [1, None]}), answer("A sentence. And another."))]) as remit:
        result = await remit.delegate("worker")
        assert (result.status, result.data, result.stop_reason) == (Status.COMPLETED, {"n": [1, None]}, StopReason.FINISHED)
        assert result.metadata.agent_type == "worker"
        assert result.metadata.delegation_path == ("orchestrator", "worker")
        assert (await remit.delegate("worker")).summary == "A sentence. And another."


@_promise
async def an_exception_becomes_a_failed_return(open_remit: OpenRemit, root: Path) -> None:
    async with open_remit(root, [Scripted("worker", fail(KeyError("colour")))]) as remit:
        result = await remit.delegate("worker")
        assert (result.status, code_of(result)) == (Status.FAILED, "UNKNOWN_ERROR")
        assert "KeyError" in result.errors[0].message


@_promise
async def what_cannot_be_kept_is_an_invalid_return(open_remit: OpenRemit, root: Path) -> None:
    async with open_remit(root, [Scripted("worker", answer(object()), answer(iter(int, 1)), answer("ok"))]) as remit:
        for _ in range(2):
            result = await remit.delegate("worker")
            assert (result.status, result.stop_reason, code_of(result)) == (Status.FAILED, StopReason.INVALID_RETURN, "VALIDATION_FAILED")
        assert (await remit.delegate("worker")).data == "ok"


@_promise
async def an_agent_that_leaves_the_program_ends_only_itself(open_remit: OpenRemit, root: Path) -> None:
    @agent("leaver")
    async def leaver() -> None:
        raise SystemExit(3)

    async with open_remit(root, [leaver, Scripted("worker", answer(1))]) as remit:
        result = await remit.delegate("leaver")
        assert (result.stop_reason, code_of(result)) == (StopReason.CRASHED, "AGENT_CRASHED")
        assert (await remit.delegate("worker")).data == 1


# ---- repair and retries


@_promise
async def a_faulty_return_is_repaired_once(open_remit: OpenRemit, root: Path) -> None:
    seen: list[Any] = []

    @agent("model", answers="return")
    async def model(ctx: Context, learns: bool) -> str:
        seen.append(ctx.repair)
        if ctx.repair is None or not learns:
            return "All done, trust me."
        return f"Here it is:\n```json\n{_return_text(ctx, data=7)}\n```"

    async with open_remit(root, [model]) as remit:
        result = await remit.delegate("model", learns=True)
        assert (result.status, result.data) == (Status.COMPLETED, 7)
        assert any("repaired" in warning for warning in result.warnings)
        assert seen[0] is None
        assert seen[1].original == "All done, trust me."
        assert seen[1].faults
        seen.clear()
        result = await remit.delegate("model", learns=False)
        assert len(seen) == 2
        assert (result.status, result.stop_reason) == (Status.FAILED, StopReason.INVALID_RETURN)
        assert result.errors[0].message.startswith("Return is not valid JSON")
        kept = root / result.artifacts[0].path
        assert result.errors[0].recommendation.startswith("Fix model subagent return format. Its answer is kept in")
        assert result.artifacts[0].path in result.errors[0].recommendation
        assert f"resume={result.session_id}" in result.next_steps
        assert kept.read_text() == "All done, trust me."


@_promise
async def another_session_id_is_invalid(open_remit: OpenRemit, root: Path) -> None:
    @agent("forger", answers="return")
    async def forger(ctx: Context) -> str:
        return _return_text(ctx).replace(ctx.session_id, "sess_1766700000_abcdef")

    async with open_remit(root, [forger]) as remit:
        result = await remit.delegate("forger")
        assert (result.status, code_of(result)) == (Status.FAILED, "VALIDATION_FAILED")
        assert "session_id" in result.errors[0].message


@_promise
async def only_what_declared_itself_safe_is_tried_again(open_remit: OpenRemit, root: Path) -> None:
    once = Scripted("once", fail(Unavailable("gone")), answer(1))
    twice = Scripted("twice", fail(Unavailable("gone")), fail("again"), answer(1), retries=2)
    never = Scripted("never", fail("no"), retries=1)
    async with open_remit(root, [once, twice, never]) as remit:
        assert (await remit.delegate("once")).status is Status.FAILED
        assert (await remit.delegate("twice")).ok
        assert (await remit.delegate("never")).status is Status.FAILED
    assert (len(once.calls), len(twice.calls), len(never.calls)) == (1, 3, 2)


# ---- evidence


@_promise
async def artifacts_are_checked_and_phantom_work_is_refused(open_remit: OpenRemit, root: Path) -> None:
    (root / "old.md").write_text("written long before")

    @agent("writer", requires_artifacts=True)
    async def writer(ctx: Context, path: str, writes: bool) -> str:
        if writes:
            (ctx.root / path).write_text("new work")
        if path:
            ctx.artifact(path)
        return "Done."

    async with open_remit(root, [writer]) as remit:
        result = await remit.delegate("writer", path="new.md", writes=True)
        assert result.status is Status.COMPLETED
        assert result.artifacts[0].sha256
        assert result.artifacts[0].evidence is Evidence.CHECKED
        for phantom in ("", "missing.md"):
            result = await remit.delegate("writer", path=phantom, writes=False)
            assert (result.status, code_of(result)) == (Status.FAILED, "VALIDATION_FAILED"), phantom


@_promise
async def acceptance_commands_decide(open_remit: OpenRemit, root: Path) -> None:
    @agent("builder")
    async def builder(ctx: Context) -> str:
        (ctx.root / "built.txt").write_text("it is built")
        ctx.artifact("built.txt", "implementation")
        return "Built."

    async with open_remit(root, [builder]) as remit:
        result = await remit.delegate("builder", accept=["test -s built.txt", "grep -q built built.txt"])
        assert (result.status, result.evidence) == (Status.COMPLETED, Evidence.VERIFIED)
        assert result.artifacts[0].evidence is Evidence.VERIFIED
        result = await remit.delegate("builder", accept=["true", "echo not good enough >&2; exit 3"])
        assert result.status is Status.PARTIAL
        assert result.evidence is not Evidence.VERIFIED
        assert "not good enough" in " ".join(error.message for error in result.errors)
        assert f"resume={result.session_id}" in result.next_steps
