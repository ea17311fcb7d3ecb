"""Promises of every `Engine` about trees and returns: refusals, errors of children, budgets, repair, retries, evidence."""

import asyncio
import json
from pathlib import Path
from typing import Any

from remit import Context, Evidence, Remit, State, Status, StopReason, Unavailable, agent, call
from remit.testing import Scripted, answer, fail, hang
from support.engine_samples import OpenRemit, code_of, promise, until
from support.pace import allowed


async def _ledger(remit: Remit) -> str:
    """The ledger as text; it is written shortly after the return."""
    path = remit.folder / "errors.json"
    await until(path.exists)
    return path.read_text()


# ---- refusals


@promise
async def a_refusal_runs_nothing_is_recorded_and_stands_in_the_ledger(open_remit: OpenRemit, root: Path) -> None:
    async with open_remit(root, [Scripted("worker")]) as remit:
        result = await remit.delegate("wroker")
        assert (result.status, result.stop_reason, code_of(result)) == (Status.FAILED, StopReason.REFUSED, "INVALID_TARGET")
        assert not result.errors[0].recoverable
        assert "worker" in result.errors[0].recommendation
        record = await remit.describe(result.session_id)
        assert (record.state, record.started_at) == (State.REFUSED, None)
        assert "INVALID_TARGET" in await _ledger(remit)


@promise
async def the_depth_is_limited(open_remit: OpenRemit, root: Path) -> None:
    @agent("a")
    async def a(ctx: Context) -> Any:
        return (await ctx.delegate("b")).data

    @agent("b")
    async def b(ctx: Context) -> Any:
        return (await ctx.delegate("c")).data

    @agent("c")
    async def c(ctx: Context) -> Any:
        return [ctx.depth, list(ctx.path), code_of(await ctx.delegate("d"))]

    async with open_remit(root, [a, b, c, Scripted("d")]) as remit:
        assert (await remit.delegate("a")).data == [3, ["orchestrator", "a", "b", "c"], "MAX_DEPTH_EXCEEDED"]


@promise
async def cycles_are_refused_however_long_they_are(open_remit: OpenRemit, root: Path) -> None:
    @agent("itself")
    async def itself(ctx: Context) -> str:
        return code_of(await ctx.delegate("itself"))

    @agent("ping")
    async def ping(ctx: Context) -> Any:
        return (await ctx.delegate("pong")).data

    @agent("pong")
    async def pong(ctx: Context) -> Any:
        refused = await ctx.delegate("ping")
        return [code_of(refused), refused.errors[0].message]

    async with open_remit(root, [itself, ping, pong]) as remit:
        assert (await remit.delegate("itself")).data == "CYCLE_DETECTED"
        code, message = (await remit.delegate("ping")).data
        assert code == "CYCLE_DETECTED"
        assert "ping → pong → ping" in message


@promise
async def the_same_refused_call_is_answered_from_memory_and_then_plainly(open_remit: OpenRemit, root: Path) -> None:
    @agent("storm")
    async def storm(ctx: Context) -> list[Any]:
        results = [await ctx.delegate("storm", n=1) for _ in range(6)]
        other = await ctx.delegate("storm", n=2)
        return [[r.session_id for r in results], [len(r.warnings) for r in results], [results[-1].summary, other.session_id]]

    async with open_remit(root, [storm]) as remit:
        result = await remit.delegate("storm", parameters={})
        # `storm` takes no n: the cycle is checked first
        ids, warned, (summary, other) = result.data
        assert len(set(ids)) == 1
        assert other not in ids
        assert warned[:3] == [0, 0, 0]
        assert all(warned[3:])
        assert "already refused" in summary
        assert len(await remit.children(result.session_id)) == 2


@promise
async def wrong_requests_are_refused_with_advice(open_remit: OpenRemit, root: Path) -> None:
    @agent("reader")
    async def reader(path: str, limit: int = 3) -> str:
        return path * limit

    wrong: list[dict[str, Any]] = [
        {},
        {"pth": "x"},
        {"path": "x", "limit": "many"},
        {"path": "x", "timeout": 1e9},
        {"path": "x", "timeout": -1},
        {"path": "x", "timeout": "soon"},
        {"path": "x", "priority": "utmost"},
        {"path": "x", "budget": {"sweets": 1}},
        {"path": "x", "accept": "pytest"},
        {"path": "x", "idle": 0},
        {"path": object()},
    ]
    async with open_remit(root, [reader]) as remit:
        for asked in wrong:
            result = await remit.delegate("reader", **asked)
            assert (result.stop_reason, code_of(result)) == (StopReason.REFUSED, "INVALID_PARAMETERS"), asked
            assert result.errors[0].recommendation, asked
        assert (await remit.delegate("reader", path="x")).data == "xxx"


# ---- children


@promise
async def errors_of_children_travel_up(open_remit: OpenRemit, root: Path) -> None:
    @agent("caller")
    async def caller(ctx: Context, goes_on: bool) -> str:
        child = await ctx.delegate("child")
        assert not child.ok
        if goes_on:
            return "I managed without."
        raise RuntimeError("could not go on")

    async with open_remit(root, [caller, Scripted("child", fail("disk on fire"))]) as remit:
        result = await remit.delegate("caller", goes_on=True)
        assert result.ok
        assert any("disk on fire" in warning for warning in result.warnings)
        result = await remit.delegate("caller", goes_on=False)
        assert result.status is Status.FAILED
        messages = " ".join(error.message for error in result.errors)
        assert "could not go on" in messages
        assert "disk on fire" in messages


@promise
async def gather_keeps_the_order_of_the_calls_and_loses_nothing_to_a_failure(open_remit: OpenRemit, root: Path) -> None:
    @agent("child")
    async def child(n: int) -> int:
        await asyncio.sleep(0.01 * (3 - n))
        if n == 1:
            raise ValueError("not this one")
        return n

    @agent("caller")
    async def caller(ctx: Context) -> list[Any]:
        requests = [call("child", n=0), call("child", n=1), call("nobody"), call("child", n=2)]
        return [[r.status, r.data] for r in await ctx.gather(*requests)]

    async with open_remit(root, [caller, child]) as remit:
        result = await remit.delegate("caller")
        assert result.data == [["completed", 0], ["failed", None], ["failed", None], ["completed", 2]]


@promise
async def no_child_outlives_its_caller(open_remit: OpenRemit, root: Path) -> None:
    child = Scripted("child", hang())

    @agent("leaves")
    async def leaves(ctx: Context) -> str:
        handle = await ctx.start("child")
        await child.called.wait()
        return handle.session_id

    async with open_remit(root, [leaves, child]) as remit:
        result = await remit.delegate("leaves")
        record = await remit.describe(result.data)
        assert record.state is State.CANCELLED
        assert record.result is not None
        assert "leaves" in record.result.errors[0].message
        assert remit.export_state()["active"] == 0


# ---- budgets


@promise
async def delegations_in_all_and_alive_at_once_are_limited(open_remit: OpenRemit, root: Path) -> None:
    @agent("caller")
    async def caller(ctx: Context, at_once: bool) -> list[str]:
        if at_once:
            results = await asyncio.gather(*(ctx.delegate("child") for _ in range(4)))
        else:
            results = [await ctx.delegate("child") for _ in range(4)]
        return [code_of(r) if r.errors else "ok" for r in results]

    @agent("child")
    async def child() -> None:
        await asyncio.sleep(0.02)

    async with open_remit(root, [caller, child]) as remit:
        full = "BUDGET_EXCEEDED"
        result = await remit.delegate("caller", at_once=False, budget={"delegations": 3})
        assert result.data == ["ok", "ok", full, full], "its caller is one of the three"
        result = await remit.delegate("caller", at_once=True, budget={"alive": 3})
        assert sorted(result.data) == [full, full, "ok", "ok"]
        result = await remit.delegate("caller", at_once=False, budget={"alive": 3})
        assert result.data == ["ok"] * 4


@promise
async def tokens_and_money_are_limited_for_the_tree(open_remit: OpenRemit, root: Path) -> None:
    @agent("spender")
    async def spender(ctx: Context, tokens: int = 0, cost: float = 0.0) -> str:
        ctx.spend(tokens=tokens, cost=cost)
        await asyncio.sleep(0.01)
        return "spent"

    @agent("caller")
    async def caller(ctx: Context, **each: Any) -> list[str]:
        return [code_of(r) if r.errors else "ok" for r in [await ctx.delegate("spender", **each) for _ in range(3)]]

    async with open_remit(root, [spender, caller]) as remit:
        for limits, each in (({"tokens": 10}, {"tokens": 6}), ({"cost": 1.0}, {"cost": 0.6})):
            assert (await remit.delegate("spender", budget=limits, **each)).ok
            result = await remit.delegate("caller", budget=limits, **each)
            assert result.data == ["ok", "BUDGET_EXCEEDED", "BUDGET_EXCEEDED"]
            children = await remit.children(result.session_id)
            assert [r.result.stop_reason for r in children if r.result] == [StopReason.FINISHED, StopReason.BUDGET, StopReason.REFUSED]
            assert (children[1].tokens, children[1].cost) == (each.get("tokens", 0), each.get("cost", 0.0))


@promise
async def the_wall_clock_of_a_budget_ends_what_runs(open_remit: OpenRemit, root: Path) -> None:
    async with open_remit(root, [Scripted("sleeper", hang())]) as remit:
        began = asyncio.get_running_loop().time()
        result = await remit.delegate("sleeper", timeout=30, budget={"seconds": 0.2})
        assert asyncio.get_running_loop().time() - began < allowed(1.5)
        assert result.status is Status.PARTIAL


@promise
async def a_child_can_narrow_its_budget_but_not_refill_it(open_remit: OpenRemit, root: Path) -> None:
    @agent("caller")
    async def caller(ctx: Context) -> list[Any]:
        wide = await ctx.delegate("child", budget={"delegations": 1000, "tokens": 1000})
        narrow = await ctx.delegate("child", budget={"delegations": 1})
        return [wide.data, narrow.data, ctx.budget.delegations]

    @agent("child")
    async def child(ctx: Context) -> list[Any]:
        left = ctx.budget.delegations
        return [left, [(await ctx.delegate("leaf")).ok for _ in range(2)]]

    async with open_remit(root, [caller, child, Scripted("leaf", answer(1))]) as remit:
        result = await remit.delegate("caller", budget={"delegations": 6})
        # one for the caller, then: child and its two leaves; a second child, whose own scope does not allow a leaf
        assert result.data == [[4, [True, True]], [0, [False, False]], 1]


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


@promise
async def a_value_becomes_a_completed_return_and_an_exception_a_failed_one(open_remit: OpenRemit, root: Path) -> None:
    answers = (answer({"n": [1, None]}), answer("A sentence. And another."), fail(KeyError("colour")))
    async with open_remit(root, [Scripted("worker", *answers)]) as remit:
        result = await remit.delegate("worker")
        assert (result.status, result.data, result.stop_reason) == (Status.COMPLETED, {"n": [1, None]}, StopReason.FINISHED)
        assert result.metadata.agent_type == "worker"
        assert result.metadata.delegation_path == ("orchestrator", "worker")
        assert (await remit.delegate("worker")).summary == "A sentence. And another."
        failed = await remit.delegate("worker")
        assert (failed.status, code_of(failed)) == (Status.FAILED, "AGENT_RAISED")
        assert "KeyError" in failed.errors[0].message


@promise
async def a_result_that_cannot_be_stored_is_an_invalid_return(open_remit: OpenRemit, root: Path) -> None:
    async with open_remit(root, [Scripted("worker", answer(object()), answer(iter(int, 1)), answer("ok"))]) as remit:
        for _ in range(2):
            result = await remit.delegate("worker")
            assert (result.status, result.stop_reason, code_of(result)) == (Status.FAILED, StopReason.INVALID_RETURN, "VALIDATION_FAILED")
        assert (await remit.delegate("worker")).data == "ok"


@promise
async def an_agent_that_leaves_the_program_ends_only_itself(open_remit: OpenRemit, root: Path) -> None:
    @agent("leaver")
    async def leaver() -> None:
        raise SystemExit(3)

    async with open_remit(root, [leaver, Scripted("worker", answer(1))]) as remit:
        result = await remit.delegate("leaver")
        assert (result.stop_reason, code_of(result)) == (StopReason.CRASHED, "AGENT_CRASHED")
        assert (await remit.delegate("worker")).data == 1


# ---- repair and retries


@promise
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


@promise
async def another_session_id_is_invalid(open_remit: OpenRemit, root: Path) -> None:
    @agent("forger", answers="return")
    async def forger(ctx: Context) -> str:
        return _return_text(ctx).replace(ctx.session_id, "sess_1766700000_abcdef")

    async with open_remit(root, [forger]) as remit:
        result = await remit.delegate("forger")
        assert (result.status, code_of(result)) == (Status.FAILED, "VALIDATION_FAILED")
        assert "session_id" in result.errors[0].message


@promise
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


@promise
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


@promise
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
