"""Asking the policy: what an action is made of, and what its answer means (S5.10). For delegations, and for `ctx.permit`.

The rules themselves are evaluated by `House.policy`; a person is asked by `approve`, never longer than the delegation has left.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from remit.core.agents import AgentSpec
from remit.core.errors import Misused, Refused
from remit.core.lineage import ROOT_CALLER, Lineage
from remit.core.origin import Came
from remit.core.policy import Asked, Decision, Effect, Pending, Policy, Verdict
from remit.flow.approve import approved, refused
from remit.flow.facts import facts_of, facts_said, path_facts, real_path_facts
from remit.flow.house import Caller, House, Order
from remit.flow.perform import Work

_AT_ONCE = 200
_STRICTNESS = {Verdict.ALLOW: 0, Verdict.ASK: 1, Verdict.DENY: 2}


class Principals(NamedTuple):
    caller: str
    """Who asks for this."""
    on_behalf: str
    """Who asked for the whole tree."""


def on_behalf_of(came: Came | None) -> str:
    return ROOT_CALLER if came is None else came.principal


def asked_for(
    spec: AgentSpec,
    parameters: Mapping[str, Any],
    lineage: Lineage,
    asks: Principals,
    workspace: Path,
    timeout_seconds: float,
    left: tuple[int | None, float | None],
) -> list[Asked]:
    """What a caller asks for by delegating; of each thing that it acts on, one. `left`: tokens and money."""
    tokens, cost = left
    return [
        Asked(
            caller=asks.caller,
            action=spec.name,
            depth=lineage.depth,
            path=lineage.path[:-1],
            effects=effects_of(spec),
            facts=facts,
            timeout_seconds=timeout_seconds,
            tokens_left=tokens,
            cost_left=cost,
            session_id=lineage.session_id,
            root_id=lineage.root_id,
            on_behalf=asks.on_behalf,
        )
        for facts in facts_of(spec, parameters, workspace)
    ]


def asked_by(work: Work, action: str, facts: Mapping[str, Any]) -> list[Asked]:
    """What an agent that runs asks for, in its own name, at its own depth; of each thing that it names, one."""
    lineage, spec = work.delegation.lineage, work.agent.spec
    said = dict(facts)
    effects = said.pop("effects", None)  # what the action does, where that is not what the agent does in general
    return [
        Asked(
            caller=work.delegation.agent,
            action=action or spec.name,
            depth=lineage.depth,
            path=lineage.path,
            effects=effects_of(spec) if effects is None else tuple(map(str, effects)),
            facts=one,
            timeout_seconds=work.remaining(),
            session_id=lineage.session_id,
            root_id=lineage.root_id,
            is_delegation=False,
            on_behalf=on_behalf_of(work.delegation.came),
        )
        for one in facts_said(said, work.root if work.room is None else work.room.folder)
    ]


def effects_of(spec: AgentSpec) -> tuple[str, ...]:
    return _in_words(tuple(spec.effects))  # whoever carries agents in its own way may declare a list


@lru_cache(maxsize=64)
def _in_words(effects: tuple[Effect, ...]) -> tuple[str, ...]:
    return tuple(map(str, effects))


def judged(policy: Policy, asked: Asked, workspace: Path) -> Decision:
    """The decision on the path as it is named, and on where it leads: the stricter of the two holds."""
    decision = policy.decide(asked)
    follows = asked.effects != (Effect.DELETE,)
    led = real_path_facts(dict(asked.facts), workspace, follows=follows) if "path" in asked.facts else None
    if led is None or decision.verdict is Verdict.DENY:
        return decision
    other = policy.decide(replace(asked, facts=led))
    return other if _STRICTNESS[other.verdict] > _STRICTNESS[decision.verdict] else decision


def judged_all(policy: Policy, asked: Sequence[Asked], workspace: Path) -> tuple[Asked, Decision]:
    """The strictest decision on any of them, and what it is about."""
    about, strictest = asked[0], judged(policy, asked[0], workspace)
    for one in asked[1:]:
        if strictest.verdict is Verdict.DENY:
            break
        decision = judged(policy, one, workspace)
        if _STRICTNESS[decision.verdict] > _STRICTNESS[strictest.verdict]:
            about, strictest = one, decision
    return about, strictest


def pending_again(order: Order, caller: Caller | None, house: House) -> Pending | None:
    """A delegation that is run again after a crash: the rules may have changed, and a yes that was waited for was never given."""
    assert order.agent is not None
    delegation = order.delegation
    workspace = house.root if caller is None else caller.workspace
    on_behalf = on_behalf_of(delegation.came)
    asks = Principals(on_behalf if caller is None else caller.delegation.agent, on_behalf)
    left = order.budget.spendable()
    seconds = delegation.deadline.timeout_seconds
    asked = asked_for(order.agent.spec, delegation.parameters, delegation.lineage, asks, workspace, seconds, left)
    about, decision = judged_all(house.policy, asked, workspace)
    return None if decision.verdict is Verdict.ALLOW else Pending(asked=about, decision=decision)


async def permit(work: Work, house: House, action: str, facts: Mapping[str, Any]) -> None:
    """Raises `Refused` (POLICY_DENIED) unless the policy, or the person it says to ask, allows it."""
    workspace = work.root if work.room is None else work.room.folder
    asked, decision = judged_all(house.policy, asked_by(work, action, facts), workspace)
    if decision.verdict is Verdict.ASK:
        no = await approved(work, house, asked, decision)
        if no is not None:
            raise no
    elif decision.verdict is Verdict.DENY:
        raise refusal(asked, decision)


async def permitted(work: Work, house: House, paths: Sequence[str]) -> list[str]:
    """Those of many paths that this agent may do its operation on, for one that walks a tree and follows no link."""
    if not all(isinstance(path, str) for path in paths):
        raise Misused("Paths are texts.")
    allowed: list[str] = []
    (alike,) = asked_by(work, "", {})
    workspace = work.root if work.room is None else work.room.folder
    for start in range(0, len(paths), _AT_ONCE):
        some = paths[start : start + _AT_ONCE]
        says = house.policy.sift([replace(alike, facts=path_facts(path, workspace)) for path in some])
        allowed += [path for path, is_allowed in zip(some, says, strict=True) if is_allowed]
        await asyncio.sleep(0)  # others have their turn
    return allowed


def refusal(asked: Asked, decision: Decision) -> Refused:
    return refused(decision, f"The policy does not allow {asked.action}.")
