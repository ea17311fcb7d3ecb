"""A person's approval, where the policy says `ask`: waited for by the performer's half, so it is on record, can be seen and cancelled.

Never longer than the setting and what the delegation has left. Who asks is `House.approver`; where nobody can be asked, the answer is no.
"""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from remit.core.errors import ErrorInfo, Refused
from remit.core.policy import Asked, Decision, Pending, Verdict
from remit.core.result import Return
from remit.flow import reply
from remit.flow.house import House

if TYPE_CHECKING:
    from remit.flow.perform import Work

NOBODY = "nobody could be asked here"
LATE_SECONDS = 0.25
"""How long an approver may take to notice that its time is up."""


async def admitted(work: "Work", pending: Pending) -> Return | None:
    """None when the person said yes; else the refusal that is the delegation's return: nothing ran."""
    house = work.house
    asked = replace(pending.asked, session_id=work.delegation.session_id, root_id=work.delegation.lineage.root_id)
    is_asked = pending.decision.verdict is Verdict.ASK
    no = await approved(work, house, asked, pending.decision) if is_asked else refused(pending.decision, "The policy does not allow it.")
    if no is None:
        return None
    walk = " → ".join(work.delegation.lineage.path)
    error = ErrorInfo(
        type="permission", message=f"{no.message} ({walk})", code="POLICY_DENIED", recoverable=False, recommendation=no.advice
    )
    return replace(reply.refused(work.delegation, error), warnings=work.warnings)


async def approved(work: "Work", house: House, asked: Asked, decision: Decision) -> Refused | None:
    """None for yes; else why not."""
    seconds = min(house.approval_seconds, max(0.0, work.remaining()))
    if house.approver is None:
        house.policy.settled(asked, decision, Verdict.DENY, NOBODY)
        return _no(decision, NOBODY, "Run it at a terminal (`remit delegate`), or change the rule that asks in .remit/policy.cedar.")
    work.notice(f"Waiting for a person's approval: {decision.question or decision.because}")
    try:
        async with asyncio.timeout(seconds + LATE_SECONDS):
            said = await house.approver.approve(asked, decision, seconds)
    except TimeoutError:
        said = (False, f"nobody answered within {seconds:g} s")
    except asyncio.CancelledError:
        house.policy.settled(asked, decision, Verdict.DENY, "it was stopped while it waited")
        raise
    is_yes, by = said
    house.policy.settled(asked, decision, Verdict.ALLOW if is_yes else Verdict.DENY, by)
    work.notice(f"{'Approved' if is_yes else 'Not approved'}: {by}.")
    return None if is_yes else _no(decision, by, "Ask again when somebody is there to say yes, or do it another way.")


def refused(decision: Decision, otherwise: str) -> Refused:
    advice = decision.advice or "Ask for something else, or have the rule changed: `remit policy explain` says which one decided."
    return Refused(decision.because or otherwise, code="POLICY_DENIED", advice=advice)


def _no(decision: Decision, by: str, advice: str) -> Refused:
    what = decision.question or decision.because or "This needs a person's approval."
    return Refused(
        f"A person's approval is needed and was not given ({by}): {what}", code="POLICY_DENIED", advice=decision.advice or advice
    )
