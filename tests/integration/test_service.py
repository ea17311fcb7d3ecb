"""The service behind every API: ownership of tasks, cancelled calls, and the grants and budget of a principal."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remit import Budget, Context, DelegateError, HistoryQuery, Limits, Misused, Refused, Remit, Return, StopReason, TaskState, agent
from support.server import OWNER, Call, Grants, Permission, Principal, Service

GO: dict[str, asyncio.Event] = {}


@agent("waits", isolation="inline", timeout=30)
async def waits(ctx: Context, name: str = "go") -> str:
    await GO.setdefault(name, asyncio.Event()).wait()
    return "waited"


@agent("quick", isolation="inline", timeout=30)
async def quick(ctx: Context, text: str = "") -> dict[str, Any]:
    return {"text": text, "depth": ctx.depth, "path": list(ctx.path), "deadline": ctx.deadline}


@agent("nests", isolation="inline", timeout=30)
async def nests(ctx: Context, inner: str = "quick") -> dict[str, Any]:
    child = await ctx.delegate(inner)
    return {"child": child.session_id, "codes": [error.code for error in child.errors], "data": child.data}


@agent("twice", isolation="inline", timeout=30)
async def twice(ctx: Context) -> dict[str, Any]:
    child = await ctx.delegate("nests")
    return {"child": child.session_id, "data": child.data}


@agent("images.resize", isolation="inline")
async def resize(ctx: Context) -> str:
    return "images"


@agent("pictures.resize", isolation="inline")
async def also_resize(ctx: Context) -> str:
    await GO.setdefault("resize", asyncio.Event()).wait()
    return "pictures"


@agent("spends", isolation="inline", timeout=30)
async def spends(ctx: Context, tokens: int = 10) -> str:
    ctx.spend(tokens=tokens)
    return "spent"


@pytest.fixture
async def remit(tmp_path: Path) -> AsyncIterator[Remit]:
    GO.clear()
    agents = [waits, quick, nests, twice, resize, also_resize, spends]
    async with Remit.open(tmp_path, agents=agents) as opened:
        yield opened


def principal(name: str = "token:a", **grants: Any) -> Principal:
    return Principal(name=name, grants=Grants(**grants))


def call(who: Principal | None = None, **more: Any) -> Call:
    return Call(principal=who or principal(), api="grpc", **more)


async def done(service: Service, by: Call, target: str, **parameters: Any) -> Return:
    handle = await service.begin(by, {"target": target, "parameters": parameters})
    return await handle.result()


async def test_delegation_token_sees_its_children_and_cannot_cancel_itself(remit: Remit) -> None:
    """A call with the token of a delegation creates a child of it."""
    service = Service(remit)
    parent = await service.begin(call(), {"target": "waits"})
    other = await service.begin(call(), {"target": "waits"})
    inside = call(Principal(name=f"delegation:{parent.session_id}", parent=parent.session_id))
    returned = await done(service, inside, "nests")
    child = await service.record(inside, returned.session_id)
    assert (child.parent_id, child.depth, child.path) == (parent.session_id, 2, ("token:a", "waits", "nests"))
    assert child.caller_info is not None
    assert child.caller_info.principal == "token:a", "the owner of the tree"
    grandchild = await service.record(inside, returned.data["child"])
    assert grandchild.depth == 3
    assert [one.agent for one in (await service.list(inside, HistoryQuery())).records] == ["quick", "nests"]
    assert await service.look(call(), grandchild.session_id), "the owner of the tree sees all of it"
    assert (await service.look(inside, parent.session_id)).task_state is TaskState.RUNNING
    with pytest.raises(Misused, match="There is no task"):
        await service.look(inside, other.session_id)
    with pytest.raises(Refused, match="to cancel"):
        await service.cancel(inside, parent.session_id)
    GO["go"].set()
    await parent.result()
    with pytest.raises(Refused, match="has ended"):
        await service.begin(inside, {"target": "quick"})


async def test_remote_principal_may_not_run_acceptance_commands(remit: Remit, tmp_path: Path) -> None:
    service = Service(remit)
    asked = {"target": "quick", "accept": [f"touch {tmp_path}/owned"]}
    for who in (principal(), principal(permissions=frozenset(Permission)), Principal(name="delegation:x", parent="x")):
        with pytest.raises(Refused, match="may not have commands run") as fault:
            await service.begin(call(who), asked)
        assert fault.value.code == "FORBIDDEN"
    assert not (tmp_path / "owned").exists()
    assert (await (await service.begin(call(OWNER), asked)).result()).ok
    assert (tmp_path / "owned").exists()


async def test_granted_depth_limits_the_tree(remit: Remit) -> None:
    service = Service(remit)
    assert (await done(service, call(), "twice")).data["data"]["codes"] == []
    bounded = await done(service, call(principal(max_depth=2)), "twice")
    assert bounded.data["data"]["codes"] == ["MAX_DEPTH_EXCEEDED"]


async def test_least_busy_permitted_agent_is_chosen_without_a_target(remit: Remit) -> None:
    service = Service(remit)
    busy = await service.begin(call(), {"target": "pictures.resize"})
    assert service.choose(call(), "resize") == "images.resize"
    assert service.choose(call(principal(agents=("pictures",))), "resize") == "pictures.resize"
    assert service.choose(call(), "images.resize") == "images.resize"
    assert service.choose(call(), "readFile") == "worker.read_file"
    for operation in ("nonsense", ""):
        with pytest.raises(DelegateError):
            service.choose(call(), operation)
    with pytest.raises(DelegateError, match="No agent has the operation"):
        service.choose(call(principal(agents=("quick",))), "resize")
    assert {spec.name for spec in service.agents(call(principal(agents=("images", "q*"))))} == {"images.resize", "quick"}
    with pytest.raises(Refused):
        service.agents(call(principal(permissions=frozenset({Permission.METRICS}))))
    GO["resize"].set()
    await busy.result()


async def test_all_trees_of_a_principal_share_its_budget(remit: Remit) -> None:
    """Children use the budget and cannot refill it; the refusal names the limit."""
    service = Service(remit)
    tree = await done(service, call(principal(tree=Limits(delegations=1))), "nests")
    assert tree.data["codes"] == ["BUDGET_EXCEEDED"]
    scope = Budget(Limits(delegations=3, tokens=25), opened_at=remit.loop.time())
    bounded = call(Principal(name="token:poor", budget=scope))
    assert (await done(service, bounded, "nests")).data["codes"] == []
    assert (await done(service, bounded, "spends", tokens=1)).ok
    over = await done(service, bounded, "quick")
    assert over.stop_reason is StopReason.REFUSED
    assert "3 delegations in all" in over.errors[0].message
    richer = call(Principal(name="token:poor", budget=Budget(Limits(tokens=25), opened_at=remit.loop.time())))
    spent = await done(service, richer, "spends", tokens=30)
    assert spent.stop_reason is StopReason.BUDGET
    assert (await done(service, richer, "quick")).stop_reason is StopReason.REFUSED
    assert (await done(service, call(principal("token:rich")), "quick")).ok


async def test_composition_is_limited_to_granted_agents(remit: Remit) -> None:
    service = Service(remit)
    caller = call(principal(agents=("quick", "compose")))
    for steps, is_granted in ((["quick"], True), (["quick", {"parallel": ["spends"]}], False)):
        request = {"target": "compose", "operation": "run", "parameters": {"sequence": steps}}
        if is_granted:
            assert (await (await service.begin(caller, request)).result()).ok
        else:
            with pytest.raises(Refused, match="may not use spends"):
                await service.begin(caller, request)
    judged = {"best": {"call": "worker.list_files", "parameters": {"path": "."}}, "of": 2, "by": "spends"}
    with pytest.raises(DelegateError, match=r"There is no target 'spends'\. Targets: compose, worker"):
        service.read(call(principal(agents=("worker", "compose"))), {"target": "compose", "operation": "run", "parameters": judged})
    with pytest.raises(Refused, match=r"may not use compose\.run"):
        service.read(call(principal(agents=("quick",))), {"target": "compose", "operation": "run", "parameters": {"first": ["quick"]}})
