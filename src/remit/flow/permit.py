"""Asking the policy: what an action is made of, and what its answer means (S5.10). For delegations, and for `ctx.permit`.

The rules themselves are evaluated by `House.policy`; a person is asked by `House.approver`, never longer than the delegation has left.
"""

from collections.abc import Mapping
from typing import Any

from remit.core.agents import AgentSpec
from remit.core.errors import Refused
from remit.core.policy import Asked, Decision, Verdict
from remit.flow.house import House
from remit.flow.perform import Work


def asked_by(work: Work, action: str, facts: Mapping[str, Any]) -> Asked:
    """What an agent that runs asks for: in its own name, at its own depth."""
    lineage, spec = work.delegation.lineage, work.agent.spec
    return Asked(
        caller=work.delegation.agent,
        action=action or spec.name,
        depth=lineage.depth,
        path=lineage.path,
        effects=effects_of(spec),
        facts=facts,
        timeout_seconds=work.remaining(),
        session_id=lineage.session_id,
        root_id=lineage.root_id,
    )


def effects_of(spec: AgentSpec) -> tuple[str, ...]:
    return tuple(map(str, spec.effects))


async def permit(work: Work, house: House, action: str, facts: Mapping[str, Any]) -> None:
    """Raises `Refused` (POLICY_DENIED) unless the policy, or the person it says to ask, allows it."""
    asked = asked_by(work, action, facts)
    decision = house.policy.decide(asked)
    if decision.verdict is not Verdict.ALLOW:
        raise refusal(asked, decision)


def refusal(asked: Asked, decision: Decision) -> Refused:
    return Refused(decision.because or f"The policy does not allow {asked.action}.", code="POLICY_DENIED", advice=decision.advice)
