"""Promises of every `Engine` about groups: choice, learning, failover and hedging."""

import asyncio
from pathlib import Path
from typing import Any

from remit import Context, Effect, Remit, State, StopReason, best, call, sequence
from remit.agents.definition import definition_of
from remit.testing import Scripted, answer, fail, hang, wait
from support.engine_samples import OpenRemit, code_of, promise, until

READS: dict[str, Any] = {"effects": (Effect.READ,)}


def _declare(remit: Remit, **table: Any) -> None:
    remit.directory.define(definition_of("team", table, source="a test"))


@promise
async def a_group_adds_no_depth_and_no_name_and_its_choice_is_on_record(open_remit: OpenRemit, root: Path) -> None:
    async with open_remit(root, [Scripted("a", answer(1)), Scripted("b", answer(2))]) as remit:
        _declare(remit, group=["a", "b"], by="order")
        done = await remit.delegate("team", n=1)
        assert (done.data, done.warnings) == (1, ())
        assert done.metadata.extra["route"]["chosen"] == "a"
        group, member = await remit.tree(done.session_id)
        assert (group.agent, member.agent, member.depth, member.path) == ("team", "a", 1, ("orchestrator", "a"))
        assert member.parameters == {"n": 1}
        assert any("a by order" in str(event.body) for event in await remit.events(done.session_id))


@promise
async def the_member_that_succeeds_is_chosen_again_for_each_language(open_remit: OpenRemit, root: Path) -> None:
    def succeeds_in(language: str) -> Any:
        async def turn(ctx: Context, _arguments: dict[str, Any]) -> str:
            if ctx.task is None or ctx.task.language != language:
                raise RuntimeError("not mine")
            return language

        return turn

    members = [Scripted("a", succeeds_in("python")), Scripted("b", succeeds_in("lean"))]
    async with open_remit(root, members) as remit:
        _declare(remit, group=["a", "b"], by="success")
        for language, member in (("lean", "b"), ("python", "a")):
            chosen = [await remit.delegate("team", task={"language": language}) for _ in range(6)]
            assert [one.metadata.extra["route"]["chosen"] for one in chosen[2:]] == [member] * 4
            assert all(one.ok for one in chosen[2:])


@promise
async def a_failure_is_followed_by_the_next_member_only_if_that_is_safe(open_remit: OpenRemit, root: Path) -> None:
    for declared, chosen in (({}, "a"), (READS, "b"), ({"retries": 1}, "b")):
        async with open_remit(root, [Scripted("a", fail("no"), **declared), Scripted("b", answer("done"))]) as remit:
            _declare(remit, group=["a", "b"], by="order")
            done = await remit.delegate("team")
            assert (done.metadata.extra["route"]["chosen"], done.ok) == (chosen, chosen == "b"), declared


@promise
async def the_least_loaded_and_the_cheapest_are_chosen(open_remit: OpenRemit, root: Path) -> None:
    async def spends(ctx: Context, arguments: dict[str, Any]) -> None:
        ctx.spend(cost=arguments["cost"])

    go = asyncio.Event()
    members = [Scripted("a", wait(go)), Scripted("b", wait(go)), Scripted("dear", spends), Scripted("cheap", spends)]
    async with open_remit(root, members) as remit:
        _declare(remit, group=["a", "b"], by="load")
        handles = [await remit.start("team")]
        await until(lambda: len(members[0].calls) == 1)
        handles.append(await remit.start("team"))
        await until(lambda: len(members[1].calls) == 1)
        go.set()
        assert [(await one.result()).metadata.extra["route"]["chosen"] for one in handles] == ["a", "b"]
        remit.directory.define(definition_of("thrifty", {"group": ["dear", "cheap"], "by": "cost"}, source="a test"))
        costs = iter((5.0, 1.0, 1.0, 1.0))
        chosen = [(await remit.delegate("thrifty", cost=next(costs))).metadata.extra["route"]["chosen"] for _ in range(4)]
        assert chosen == ["dear", "cheap", "cheap", "cheap"]


@promise
async def a_slow_run_is_hedged_and_the_loser_is_stopped(open_remit: OpenRemit, root: Path) -> None:
    quick = [answer("quick")] * 20
    member = Scripted("a", *quick, hang(), answer("second"), answer("quick"), hang(), **READS)
    async with open_remit(root, [member]) as remit:
        _declare(remit, group=["a"], hedge={"after": "p90", "extra": 0.1})
        for _ in range(20):
            await remit.delegate("a")
        done = await remit.delegate("team")
        assert done.data == "second"
        tree = await remit.tree(done.session_id)
        assert sorted(record.state for record in tree) == [State.CANCELLED, State.COMPLETED, State.COMPLETED]
        assert (await remit.delegate("team", timeout=20)).data == "quick"
        slow = await remit.delegate("team", timeout=0.3)
        assert slow.stop_reason is StopReason.DEADLINE, "extra starts stay within the limit"
        assert len(await remit.tree(slow.session_id)) == 2


@promise
async def a_group_without_members_is_refused(open_remit: OpenRemit, root: Path) -> None:
    async with open_remit(root, [Scripted("a")]) as remit:
        _declare(remit, group=["x", "y"])
        refused = await remit.delegate("team")
        assert refused.errors[0].code == "INVALID_TARGET"
        remit.directory.define(definition_of("other", {"group": ["x", "a"]}, source="a test"))
        assert (await remit.delegate("other")).ok


@promise
async def the_best_of_several_candidates_is_taken_by_vote_or_by_a_judge(open_remit: OpenRemit, root: Path) -> None:
    guesser = Scripted("guesser", *(answer(one) for one in "abbcba"), **READS)
    judge = Scripted("judge", answer("A is short, B is right"), answer("B is the best"))
    async with open_remit(root, [guesser, judge]) as remit:
        done = await remit.delegate(best(3, call("guesser"), by="vote"))
        assert done.data == "b"
        tree = await remit.tree(done.session_id)
        assert [(record.agent, record.depth) for record in tree[1:]] == [("guesser", 1)] * 3
        unclear = await remit.delegate(best(2, call("guesser"), by="judge"))
        assert any("named none of the candidates" in warning for warning in unclear.warnings)
        assert (await remit.delegate(sequence("guesser", best(2, call("guesser", hint={"$": "0"}), by="judge")))).ok
        assert len(judge.calls) == 2
        assert '{"hint":"a"}' in str(judge.calls[1]), "a judge sees the input of the candidates"
        assert code_of(await remit.delegate(best(2, call("nobody"), by="vote"))) == "INVALID_TARGET"
