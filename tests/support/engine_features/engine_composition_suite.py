"""Promises of every `Engine` about delegations on behalf of a caller, and about composition."""

import asyncio
from pathlib import Path
from typing import Any

from remit import Composition, Context, State, Status, StopReason, Unavailable, agent, call, each, first, parallel, sequence
from remit.core.composition import Step
from remit.testing import Scripted, answer, fail, hang, wait
from support.engine_samples import OpenRemit, code_of, durable, promise, until


async def _hand_on(ctx: Context, arguments: dict[str, Any]) -> Any:
    done = await ctx.delegate(arguments["to"], **arguments.get("with", {}))
    return done.data if done.ok else code_of(done)


# ---- on behalf of a caller


@promise
async def an_agent_that_acts_for_its_caller_adds_no_depth_and_no_name(open_remit: OpenRemit, root: Path) -> None:
    @agent("place")
    async def place(ctx: Context) -> list[Any]:
        return [ctx.depth, ctx.caller, *ctx.path]

    @agent("deep")
    async def deep(ctx: Context) -> Any:
        return (await ctx.delegate("outer", to="inner", **{"with": {"to": "place"}})).data

    passing = [Scripted(name, _hand_on, acts_for_caller=True) for name in ("outer", "inner")]
    async with open_remit(root, [place, deep, *passing], max_depth=2) as remit:
        done = await remit.delegate("outer", to="inner", **{"with": {"to": "place"}})
        assert done.data == [1, "orchestrator", "orchestrator", "place"]
        assert (await remit.delegate("deep")).data == [2, "deep", "orchestrator", "deep", "place"]
        tree = await remit.tree(done.session_id)
        assert [one.parent_id for one in tree] == [None, tree[0].session_id, tree[1].session_id]


@promise
async def the_limits_of_depth_and_cycles_hold_beneath_who_acts_for_its_caller(open_remit: OpenRemit, root: Path) -> None:
    @agent("caller")
    async def caller(ctx: Context, to: str) -> Any:
        return (await ctx.delegate("passing", to=to)).data

    passing = Scripted("passing", _hand_on, acts_for_caller=True)
    async with open_remit(root, [caller, passing, Scripted("leaf")], max_depth=1) as remit:
        refused = await remit.delegate("caller", to="leaf")
        assert "exceeds the maximum of 1" in str(refused.warnings)
    async with open_remit(root, [caller, passing]) as remit:
        assert (await remit.delegate("caller", to="caller")).data == "CYCLE_DETECTED"


# ---- composition


async def _echo(_ctx: Context, arguments: dict[str, Any]) -> Any:
    return arguments


def _ref(step: str) -> dict[str, str]:
    return {"$": step}


@promise
async def a_sequence_hands_results_on_by_reference(open_remit: OpenRemit, root: Path) -> None:
    files = Scripted("files", answer({"files": ["a.py", "b.py"], "n": {"x/y": 2}}))
    async with open_remit(root, [files, Scripted("echo", _echo)]) as remit:
        flow = sequence(
            files=call("files"),
            two=call("echo", whole=_ref("0"), path=_ref("files#/files/1"), n=_ref("files#/n/x~1y"), as_it_is={"$$": _ref("0")}),
            last=sequence(call("echo", before=_ref("two#/path")), call("echo", inner=_ref("0#/before"))),
        )
        done = await remit.delegate(flow)
        assert done.ok, done
        whole = {"files": ["a.py", "b.py"], "n": {"x/y": 2}}
        assert done.data == [
            whole,
            {"whole": whole, "path": "b.py", "n": 2, "as_it_is": {"$": "0"}},
            [{"before": "b.py"}, {"inner": "b.py"}],
        ]
        assert [(one["step"], one["agent"], one["status"]) for one in done.extra["steps"]] == [
            ("0", "files", "completed"),
            ("1", "echo", "completed"),
            ("2.0", "echo", "completed"),
            ("2.1", "echo", "completed"),
        ]
        chosen = await remit.delegate(sequence(call("files"), call("echo", n=1), result="0#/files/0"))
        assert chosen.data == "a.py"
        children = await remit.children(done.session_id)
        assert [(one.agent, one.depth, one.path) for one in children[:2]] == [
            ("files", 1, ("orchestrator", "files")),
            ("echo", 1, ("orchestrator", "echo")),
        ]


@promise
async def a_sequence_stops_at_the_first_step_that_is_not_completed(open_remit: OpenRemit, root: Path) -> None:
    late = Scripted("late")
    blocked = Scripted("blocked", fail(Unavailable("There is no compiler.", code="TOOL_UNAVAILABLE", advice="Install one.")))
    async with open_remit(root, [Scripted("one", answer(1)), Scripted("broken", fail("no luck")), blocked, late]) as remit:
        done = await remit.delegate(sequence("one", "broken", "late"))
        assert (done.status, done.data, late.calls) == (Status.FAILED, [1, None], [])
        assert "no luck" in done.errors[0].message
        assert "Step 1, broken, did not complete" in done.summary
        assert (await remit.delegate(sequence("one", "blocked", "late"))).status is Status.BLOCKED
        assert [one["status"] for one in done.extra["steps"]] == ["completed", "failed"]


@promise
async def parallel_steps_keep_their_order_and_lose_nothing_to_a_failure(open_remit: OpenRemit, root: Path) -> None:
    slow = asyncio.Event()

    async def last(_ctx: Context, _arguments: dict[str, Any]) -> str:
        slow.set()
        return "last"

    agents = [Scripted("first", wait(slow, answer("first"))), Scripted("broken", fail("no luck")), Scripted("last", last)]
    async with open_remit(root, agents) as remit:
        for need, status in (("all", Status.PARTIAL), (2, Status.COMPLETED), ("any", Status.COMPLETED)):
            done = await remit.delegate(parallel("first", "broken", "last", need=need))
            assert (done.status, done.data) == (status, ["first", None, "last"])
            assert "no luck" in str(done.errors if need == "all" else done.warnings)
        nothing = await remit.delegate(parallel("broken", "broken", need="any"))
        assert (nothing.status, nothing.data) == (Status.FAILED, [None, None])


@promise
async def each_runs_once_for_every_item_within_its_limit(open_remit: OpenRemit, root: Path) -> None:
    now = most = 0

    @agent("typed")
    async def typed(letter: str) -> str:
        return letter.upper()

    async def busy(_ctx: Context, arguments: dict[str, Any]) -> Any:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        return arguments["path"]

    agents = [
        Scripted("files", answer({"files": list("abcdef"), "none": [], "text": "abc"})),
        Scripted("busy", busy),
        Scripted("echo", _echo),
        typed,
    ]
    async with open_remit(root, agents) as remit:
        done = await remit.delegate(sequence("files", each("busy", over="0#/files", into="path", limit=2)))
        assert (done.data[1], most) == (list("abcdef"), 2)
        body = sequence(name=call("echo", of=_ref("item#/k")), out=call("echo", of=_ref("name#/of"), whole=_ref("item")))
        done = await remit.delegate(each(body, over=[{"k": 1}, {"k": 2}]))
        assert [one[1] for one in done.data] == [{"of": 1, "whole": {"k": 1}}, {"of": 2, "whole": {"k": 2}}]
        empty = await remit.delegate(sequence("files", each("busy", over="0#/none", into="path")))
        assert (empty.status, empty.data[1]) == (Status.COMPLETED, [])
        typed_done = await remit.delegate(sequence("files", each("typed", over="0#/files", into="letter")))
        assert typed_done.data[1] == list("ABCDEF")
        for pointer in ("/text", "", "/nowhere"):
            refused = await remit.delegate(sequence("files", each("busy", over=f"0#{pointer}", into="path")))
            assert (refused.status, code_of(refused)) == (Status.FAILED, "INVALID_PARAMETERS")
            assert refused.errors[0].message.startswith("Step 1: ")
            assert refused.data[0]["text"] == "abc"


@promise
async def the_first_that_completes_ends_the_others(open_remit: OpenRemit, root: Path) -> None:
    ended: list[str] = []
    losing = asyncio.Event()

    async def loser(_ctx: Context, _arguments: dict[str, Any]) -> None:
        losing.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("loser")

    async def then(_ctx: Context, _arguments: dict[str, Any]) -> list[str]:
        return list(ended)

    agents = [
        Scripted("loser", loser),
        Scripted("broken", fail("no luck")),
        Scripted("winner", wait(losing, answer("won"))),
        Scripted("then", then),
    ]
    async with open_remit(root, agents) as remit:
        done = await remit.delegate(sequence(first(sequence("then", "loser"), "broken", "winner"), "then"))
        assert (done.ok, done.data) == (True, ["won", ["loser"]]), done
        ended.clear()
        losing.clear()
        inside = await remit.delegate(sequence(first(first("loser", "broken"), "winner"), "then"))
        assert (inside.ok, inside.data) == (True, ["won", ["loser"]]), "the inner `first` has ended too"
        states = {one.agent: one.state for one in await remit.children(done.session_id)}
        assert (states["loser"], states["broken"], states["winner"]) == (State.CANCELLED, State.FAILED, State.COMPLETED)
        assert "cancelled" not in str(done.warnings)
        none = await remit.delegate(first("broken", "broken"))
        assert (none.status, code_of(none)) == (Status.FAILED, "AGENT_RAISED")


@promise
async def a_composition_that_cannot_run_is_refused_before_anything_runs(open_remit: OpenRemit, root: Path) -> None:
    @agent("typed")
    async def typed(n: int) -> int:
        return n

    one = Scripted("one")
    wrong: list[tuple[str, str, Composition]] = [
        ("INVALID_TARGET", "Step 1: there is no agent 'oen'", sequence("one", "oen")),
        ("INVALID_PARAMETERS", "Step 1: it refers to step 4", sequence("one", call("one", x=_ref("4")))),
        ("INVALID_PARAMETERS", "Step 1: Parameters of typed: n must be a valid integer", sequence("one", call("typed", n="many"))),
        ("INVALID_PARAMETERS", "Step 1: timeout 1e+06 s is above the maximum", sequence("one", call("one", timeout=1e6))),
        ("INVALID_PARAMETERS", "Step 1: Unknown budget", sequence("one", call("one", budget={"apples": 3}))),
        ("INVALID_PARAMETERS", "Step 1: Parameters of typed: m: there is no", sequence("one", call("typed", n=_ref("0"), m=1))),
        ("INVALID_PARAMETERS", "at most 1000 steps", parallel(*["one"] * 1000)),
        ("CYCLE_DETECTED", "Step 1: a composition cannot call compose.run", sequence("one", call("compose.run", sequence=["one"]))),
    ]
    async with open_remit(root, [one, typed]) as remit:
        for code, message, flow in wrong:
            done = await remit.delegate(flow)
            assert (done.stop_reason, code_of(done)) == (StopReason.REFUSED, code), done
            assert message in done.errors[0].message
            assert not await remit.children(done.session_id)
    assert one.calls == []


@promise
async def results_that_are_too_large_together_are_named_instead_of_lost(open_remit: OpenRemit, root: Path) -> None:
    many = Scripted("many", answer(list(range(130_000))))
    async with open_remit(root, [many]) as remit:
        done = await remit.delegate(parallel("many", "many"))
        assert (done.status, done.data) == (Status.PARTIAL, None)
        assert "too large" in done.errors[0].message
        assert [one["status"] for one in done.extra["steps"]] == ["completed", "completed"]
        assert (await remit.delegate(sequence("many", "many", result="1#/7"))).data == 7


@promise
async def a_composition_stays_within_the_limits_of_its_tree(open_remit: OpenRemit, root: Path) -> None:
    @agent("deep")
    async def deep(ctx: Context) -> Any:
        done = await ctx.delegate(sequence("place", each("echo", over=[1], into="n")))
        return [done.data, (await ctx.gather(parallel("place"), call("place")))[0].data]

    @agent("place")
    async def place(ctx: Context) -> list[Any]:
        return [ctx.depth, *ctx.path]

    async with open_remit(root, [deep, place, Scripted("echo", _echo)], max_depth=2) as remit:
        where = [2, "orchestrator", "deep", "place"]
        assert (await remit.delegate("deep")).data == [[where, [{"n": 1}]], [where]]
        few = await remit.delegate(parallel(*["place"] * 5), budget={"delegations": 4})
        assert (few.status, code_of(few)) == (Status.PARTIAL, "BUDGET_EXCEEDED")
        assert [one is not None for one in few.data] == [True, True, True, False, False]
        narrow = await remit.delegate(parallel(*["place"] * 9), budget={"alive": 3})
        assert narrow.ok, narrow


@promise
async def a_composition_that_is_stopped_hands_back_what_came_before(open_remit: OpenRemit, root: Path) -> None:
    stuck = Scripted("stuck", hang())
    async with open_remit(root, [Scripted("one", answer(1)), stuck]) as remit:
        done = await remit.delegate(sequence("one", "stuck"), timeout=0.3)
        assert (done.status, done.stop_reason) == (Status.PARTIAL, StopReason.DEADLINE)
        assert done.data["late_answer"][:1] == [1]
        handle = await remit.start(sequence("one", parallel(sequence("one", "stuck"), first("stuck"))))
        await until(lambda: len(stuck.calls) == 3)
        await handle.cancel("enough")
        stopped = await handle.result()
        assert (stopped.stop_reason, stopped.data["late_answer"]) == (StopReason.CANCELLED, [1, [[1, None], None]])
        assert not await remit.live()


@promise
async def sessions_of_the_same_principal_can_be_referred_to(open_remit: OpenRemit, root: Path) -> None:
    async with open_remit(root, [Scripted("one", answer({"n": [7]})), Scripted("broken", fail("no")), Scripted("echo", _echo)]) as remit:
        known = (await remit.delegate("one")).session_id
        assert (await remit.delegate(sequence(call("echo", x=_ref(f"{known}#/n/0"))))).data == [{"x": 7}]
        failed = (await remit.delegate("broken")).session_id
        for session, why in ((failed, "not completed"), ("sess_20251226_abc123", "There is no session")):
            done = await remit.delegate(sequence("one", call("echo", x=_ref(session))))
            assert done.status is Status.FAILED
            assert done.errors[0].message.startswith("Step 1: ")
            assert why in done.errors[0].message
            assert not await remit.children(done.session_id)


@promise
@durable
async def secrets_that_are_not_on_record_are_never_handed_on(open_remit: OpenRemit, root: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    leak, echo = Scripted("leak", answer({"token": token, "n": 1})), Scripted("echo", _echo)
    flow = sequence("leak", call("flaky"), call("echo", x=_ref("0#/token")), result="2")
    async with open_remit(root, [leak, Scripted("flaky", fail("not yet")), echo]) as remit:
        stopped = await remit.delegate(flow)
        assert stopped.status is Status.FAILED
        known = (await remit.children(stopped.session_id))[0].session_id
    async with open_remit(root, [leak, Scripted("flaky", answer(2)), echo]) as remit:
        resumed = await remit.delegate(flow, resume=stopped.session_id)
        named = await remit.delegate(sequence(call("echo", x=_ref(f"{known}#/token"))))
        for done in (resumed, named):
            assert done.status is Status.FAILED
            assert "leads to secrets, which are not on record" in done.errors[0].message
        assert echo.calls == []
        assert (await remit.delegate(sequence(call("echo", n=_ref(f"{known}#/n")), result="0#/n"))).data == 1
        assert (await remit.delegate(sequence("leak", call("echo", x=_ref("0#/token")), result="1#/x"))).data == token


@promise
async def programs_gather_returns_in_the_order_of_the_calls(open_remit: OpenRemit, root: Path) -> None:
    agents = [Scripted("echo", _echo), Scripted("broken", fail("no luck"))]
    async with open_remit(root, agents) as remit:
        done = await remit.gather(call("echo", n=1), call("broken"), sequence("echo"), call("nobody"), limit=2)
        assert [one.status for one in done] == [Status.COMPLETED, Status.FAILED, Status.COMPLETED, Status.FAILED]
        assert (done[0].data, done[2].data, code_of(done[3])) == ({"n": 1}, [{}], "INVALID_TARGET")


@promise
@durable
async def a_resumed_composition_repeats_no_completed_step(open_remit: OpenRemit, root: Path) -> None:
    one, flaky = Scripted("one", answer(1)), Scripted("flaky", fail("not yet"), answer(2))
    slow = Scripted("slow", hang())
    flow: Step = sequence(first("slow", "one"), call("one", n=2), call("flaky", of=_ref("0")))
    async with open_remit(root, [one, flaky, slow]) as remit:
        stopped = await remit.delegate(flow)
        assert (stopped.status, len(one.calls), len(slow.calls)) == (Status.FAILED, 2, 1)
    async with open_remit(root, [one, flaky, slow]) as remit:
        done = await remit.delegate(flow, resume=stopped.session_id)
        assert (done.data, len(one.calls), len(flaky.calls), len(slow.calls)) == ([1, 1, 2], 2, 2, 1)


@promise
@durable
async def a_changed_composition_can_be_resumed(open_remit: OpenRemit, root: Path) -> None:
    agents = [Scripted("one", answer(1)), Scripted("two", answer(2)), Scripted("broken", fail("no luck"))]
    async with open_remit(root, agents) as remit:
        stopped = await remit.delegate(sequence(first("broken", "one"), "broken"))
        assert stopped.data == [1, None]
        for changed, data in ((first("two"), [2, 2]), (first("two", "broken"), [2, 2]), (first("broken", "one"), [1, 2])):
            done = await remit.delegate(sequence(changed, "two"), resume=stopped.session_id)
            assert (done.status, done.data) == (Status.COMPLETED, data)


@promise
async def references_lead_into_returns_too(open_remit: OpenRemit, root: Path) -> None:
    said = {"status": "completed", "summary": "Wrote it. All of it.", "artifacts": [{"type": "report", "path": "report.md"}], "data": [5]}
    (root / "report.md").write_text("All of it.")
    async with open_remit(root, [Scripted("one", answer(said)), Scripted("broken", fail("no luck")), Scripted("echo", _echo)]) as remit:
        path, summary = {"$return": "0#/artifacts/0/path"}, {"$return": "0#/summary"}
        done = await remit.delegate(sequence("one", call("echo", path=path, summary=summary)))
        assert done.data[1] == {"path": "report.md", "summary": "Wrote it. All of it."}
        assert [artifact.path for artifact in done.artifacts] == ["report.md"]
        whole = await remit.delegate(sequence("one", "echo", result={"$return": "0"}))
        assert (whole.summary, whole.data) == ("Wrote it. All of it.", [5])
        flow = sequence(parallel(x=call("broken"), y=call("one"), need=1), call("echo", status={"$return": "x#/status"}))
        assert (await remit.delegate(flow)).data[1] == {"status": "failed"}
        refused = await remit.delegate(each("echo", over=[1], into="n"), timeout=5)
        assert refused.ok
        wrong = await remit.delegate(each(call("echo", x={"$return": "item"}), over=[1]))
        assert wrong.stop_reason is StopReason.REFUSED


@promise
async def the_agents_that_a_route_names_follow_one_another(open_remit: OpenRemit, root: Path) -> None:
    @agent("strict")
    async def strict(n: int) -> int:
        return n + 1

    checker, last = Scripted("checker", _echo), Scripted("last", _echo)
    routing = {
        "study": [{"agent": "strict", "then": ["checker", "strict"]}],
        "stops": [{"agent": "broken", "then": ["last"]}],
        "lost": [{"agent": "strict", "then": ["nobody"]}],
    }
    async with open_remit(root, [strict, checker, last, Scripted("broken", fail("no luck"))], routing=routing) as remit:
        done = await remit.delegate("/study", n=4)
        assert (done.ok, done.data, done.summary) == (True, 5, "strict finished."), done
        (asked,) = checker.calls
        assert (asked["n"], asked["previous"]["status"], asked["previous"]["data"]) == (4, "completed", 5)
        children = await remit.children(done.session_id)
        assert [(one.agent, one.depth, one.path) for one in children] == [
            (name, 1, ("orchestrator", "study", name)) for name in ("strict", "checker", "strict")
        ]
        stopped = await remit.delegate("/stops")
        assert (stopped.status, last.calls) == (Status.FAILED, [])
        assert "no luck" in stopped.errors[0].message
        assert code_of(await remit.delegate("/lost", n=1)) == "INVALID_TARGET"
