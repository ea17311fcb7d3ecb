"""Authorization: requests to the policy, its decisions, and approvals by a person.

Used for a delegation before it runs (`accept`), and for actions of a running agent (`ctx.permit`)."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from remit.core.agents import AgentSpec
from remit.core.delegation import ROOT_CALLER, Delegation, Lineage, on_behalf_of
from remit.core.errors import ErrorInfo, Misused, Refused
from remit.core.policy import Decision, Effect, Fact, PendingApproval, PolicyRequest, Verdict
from remit.core.protected_paths import Protection, session_of
from remit.core.result import Return
from remit.runtime import reply
from remit.runtime.deps import RuntimeDeps, Submission, TreeFacts, sends_data
from remit.runtime.policy_facts import as_declared, facts_of, path_facts, real_path_facts, reported_facts, url_facts

if TYPE_CHECKING:
    from remit.runtime.local_context import LocalRun


_AT_ONCE = 200
_STRICTNESS = {Verdict.ALLOW: 0, Verdict.ASK: 1, Verdict.DENY: 2}


class Principals(NamedTuple):
    caller: str
    """The caller of this action."""
    on_behalf: str
    """The caller of the whole tree."""


def asker_of(caller: "LocalRun | None") -> Delegation | None:
    """The delegation that is responsible for calls of `caller`: the nearest that does not act for its own caller; None: a root caller."""
    if caller is None:
        return None
    return caller.acts_for.asker if caller.agent.spec.acts_for_caller else caller.delegation


def delegation_requests(
    spec: AgentSpec,
    parameters: Mapping[str, Any],
    lineage: Lineage,
    asks: Principals,
    workspace: Path,
    timeout_seconds: float,
    left: tuple[int | None, float | None],
) -> list[PolicyRequest]:
    """The requests of a delegation, one for each resource it acts on. `left`: tokens and money."""
    tokens, cost = left
    return [
        PolicyRequest(
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


def with_tree_facts(
    requests: list[PolicyRequest],
    tree: TreeFacts,
    spec: AgentSpec,
    parameters: Mapping[str, Any],
    caller: "LocalRun | None",
    deps: RuntimeDeps,
) -> list[PolicyRequest]:
    """The requests with facts about what the tree has read and, for URLs, whether the URL or the sent data may reveal it."""
    more: dict[str, bool] = {}
    parameters = as_declared(spec, parameters)
    urls = [one for name, kind in spec.acts_on.items() if kind is Fact.URL for one in _each(parameters.get(name))]
    if urls:
        asked = parameters if caller is None else caller.ancestors()[-1].parameters
        found = [tree.describe_request(str(url), url_facts(url, deps.root)["host"], asked, deps.named_addresses()) for url in urls]
        more = {name: all(one[name] for one in found) for name in found[0]} | {"sends_data": sends_data(parameters)}
    files, untrusted = tree.has_read_files, tree.has_read_untrusted
    return [one._replace(facts={**one.facts, **more}, has_read_files=files, has_read_untrusted=untrusted) for one in requests]


def _each(value: Any) -> Sequence[Any]:
    return () if value is None else value if isinstance(value, list | tuple) else (value,)


def step_requests(work: "LocalRun", action: str, facts: Mapping[str, Any]) -> list[PolicyRequest]:
    """The requests of a running agent, at its own depth; one for each resource it names."""
    lineage, spec = work.delegation.lineage, work.agent.spec
    said = dict(facts)
    effects = said.pop("effects", None)  # effects of the action, if they differ from the agent's
    return [
        PolicyRequest(
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
            on_behalf=on_behalf_of(work.delegation.caller_info),
            has_read_files=work.submission.tree.has_read_files,
            has_read_untrusted=work.submission.tree.has_read_untrusted,
        )
        for one in reported_facts(said, work.root if work.own_workspace is None else work.own_workspace.folder)
    ]


def effects_of(spec: AgentSpec) -> tuple[str, ...]:
    return _effect_names(tuple(spec.effects))  # an executor from a package may declare a list


@lru_cache(maxsize=64)
def _effect_names(effects: tuple[Effect, ...]) -> tuple[str, ...]:
    return tuple(map(str, effects))


def decide_path(deps: RuntimeDeps, asked: PolicyRequest, workspace: Path, asker: Delegation | None) -> Decision:
    """The decisions on the named path and on its real path; the stricter one applies."""
    decision = deps.policy.decide(_with_owner(deps, asked, asker))
    follows = asked.effects != (Effect.DELETE,)
    led = real_path_facts(dict(asked.facts), workspace, follows=follows) if "path" in asked.facts else None
    if led is None or decision.verdict is Verdict.DENY:
        return decision
    other = deps.policy.decide(_with_owner(deps, asked._replace(facts=led), asker))
    return other if _STRICTNESS[other.verdict] > _STRICTNESS[decision.verdict] else decision


def _with_owner(deps: RuntimeDeps, asked: PolicyRequest, asker: Delegation | None) -> PolicyRequest:
    """For a path in a scratch folder, add whether it belongs to the caller (the project owner may read all); for a board file, whether the
    board assigned it to this agent."""
    protection, more = asked.facts.get("protected"), {}
    if protection == Protection.SCRATCH:
        more["own_scratch"] = asked.on_behalf in (ROOT_CALLER, deps.principal_of(session_of(asked.facts["path"])))
    elif protection == Protection.BOARD:
        more["assigned"] = asker is not None and _is_assigned(asker, asked.facts["path"])
    return asked._replace(facts={**asked.facts, **more}) if more else asked


def _is_assigned(asker: Delegation, path: str) -> bool:
    """Whether a board command run by the owner assigned this file."""
    is_of_board = asker.lineage.depth == 1 and asker.caller_info is None and asker.task is not None and asker.task.task_number is not None
    return is_of_board and asker.parameters.get("write_to") == path


def decide_all(
    deps: RuntimeDeps, asked: Sequence[PolicyRequest], workspace: Path, asker: Delegation | None
) -> tuple[PolicyRequest, Decision]:
    """The strictest decision and its request. `asker`: the delegation of the calling agent."""
    about, strictest = asked[0], decide_path(deps, asked[0], workspace, asker)
    for one in asked[1:]:
        if strictest.verdict is Verdict.DENY:
            break
        decision = decide_path(deps, one, workspace, asker)
        if _STRICTNESS[decision.verdict] > _STRICTNESS[strictest.verdict]:
            about, strictest = one, decision
    return about, strictest


def pending_after_restart(submission: Submission, caller: "LocalRun | None", deps: RuntimeDeps) -> PendingApproval | None:
    """Approval for a delegation that runs again after a crash: rules may have changed, and a pending approval was never given."""
    assert submission.agent is not None
    delegation = submission.delegation
    workspace = deps.root if caller is None else caller.workspace
    on_behalf = on_behalf_of(delegation.caller_info)
    asker = asker_of(caller)
    above = on_behalf if delegation.lineage.parent_id is None else delegation.lineage.path[-2]  # a caller may run in another process
    asks = Principals(above if asker is None else asker.agent, on_behalf)
    left = submission.budget.spendable()
    seconds = delegation.deadline.timeout_seconds
    asked = delegation_requests(submission.agent.spec, delegation.parameters, delegation.lineage, asks, workspace, seconds, left)
    asked = with_tree_facts(asked, submission.tree, submission.agent.spec, delegation.parameters, caller, deps)
    about, decision = decide_all(deps, asked, workspace, asker)
    return None if decision.verdict is Verdict.ALLOW else PendingApproval(asked=about, decision=decision)


async def permit(work: "LocalRun", deps: RuntimeDeps, action: str, facts: Mapping[str, Any]) -> None:
    """Raise `Refused` (POLICY_DENIED) unless the policy, or a person if it asks, allows the action."""
    workspace = work.root if work.own_workspace is None else work.own_workspace.folder
    asked, decision = decide_all(deps, step_requests(work, action, facts), workspace, work.delegation)
    if decision.verdict is Verdict.ASK:
        no = await ask_approval(work, deps, asked, decision)
        if no is not None:
            raise no
    elif decision.verdict is Verdict.DENY:
        raise refusal(asked, decision)


async def filter_permitted(work: "LocalRun", deps: RuntimeDeps, paths: Sequence[str]) -> list[str]:
    """Filter many paths by the agent's permission, for agents that walk a tree and follow no links."""
    if not all(isinstance(path, str) for path in paths):
        raise Misused("Pass paths as strings.")
    (alike,) = step_requests(work, "", {})
    workspace = work.root if work.own_workspace is None else work.own_workspace.folder
    requests = (alike._replace(facts=path_facts(path, workspace)) for path in paths)
    return [path for path, is_allowed in zip(paths, await filter_allowed(deps, requests, work.delegation), strict=True) if is_allowed]


async def filter_allowed(deps: RuntimeDeps, requests: Iterable[PolicyRequest], asker: Delegation) -> list[bool]:
    """Which of many similar requests are allowed. Asks no person and does not block the loop."""
    allowed: list[bool] = []
    rest = iter(requests)
    while some := list(islice(rest, _AT_ONCE)):
        allowed += deps.policy.filter_allowed([_with_owner(deps, one, asker) for one in some])
        await asyncio.sleep(0)  # let other tasks run
    return allowed


def refusal(asked: PolicyRequest, decision: Decision) -> Refused:
    return refused(decision, f"The policy does not allow {asked.action}.")


NOBODY = "no person can be asked here"
LATE_SECONDS = 0.25
"""Extra time for an approver to notice its timeout."""


async def await_admission(work: "LocalRun", pending: PendingApproval) -> Return | None:
    """None if the person approved; else the refusal as the delegation's return: nothing ran."""
    deps = work.deps
    asked = pending.asked._replace(session_id=work.delegation.session_id, root_id=work.delegation.lineage.root_id)
    is_asked = pending.decision.verdict is Verdict.ASK
    no = await ask_approval(work, deps, asked, pending.decision) if is_asked else refused(pending.decision, "The policy does not allow it.")
    if no is None:
        return None
    walk = " → ".join(work.delegation.lineage.path)
    error = ErrorInfo(
        type="permission", message=f"{no.message} ({walk})", code="POLICY_DENIED", recoverable=False, recommendation=no.advice
    )
    return replace(reply.refused_return(work.delegation, error), warnings=work.warnings)


async def ask_approval(work: "LocalRun", deps: RuntimeDeps, asked: PolicyRequest, decision: Decision) -> Refused | None:
    """None if approved; else the reason."""
    seconds = min(deps.settings.approval_seconds, max(0.0, work.remaining()))
    if deps.approver is None:
        deps.policy.settled(asked, decision, Verdict.DENY, NOBODY)
        return _no(decision, NOBODY, "Run it at a terminal (`remit delegate`), or change the rule that asks in .remit/policy.cedar.")
    work.notice(f"Waiting for a person's approval: {decision.question or decision.because}")
    try:
        async with asyncio.timeout(seconds + LATE_SECONDS):
            said = await deps.approver.approve(asked, decision, seconds)
    except TimeoutError:
        said = (False, f"no answer within {seconds:g} s")
    except asyncio.CancelledError:
        deps.policy.settled(asked, decision, Verdict.DENY, "it was stopped while it waited")
        raise
    is_yes, by = said
    deps.policy.settled(asked, decision, Verdict.ALLOW if is_yes else Verdict.DENY, by)
    if is_yes and "host" in asked.facts:
        work.submission.tree.approve(asked.facts["host"])
    work.notice(f"{'Approved' if is_yes else 'Not approved'}: {by}.")
    return None if is_yes else _no(decision, by, "Ask again when a person can approve it, or do it another way.")


def refused(decision: Decision, otherwise: str) -> Refused:
    advice = decision.advice or "Ask for something else, or change the rule: `remit policy explain` names it."
    return Refused(decision.because or otherwise, code="POLICY_DENIED", advice=advice)


def _no(decision: Decision, by: str, advice: str) -> Refused:
    what = decision.question or decision.because or "This needs a person's approval."
    return Refused(
        f"A person's approval is needed and was not given ({by}): {what}", code="POLICY_DENIED", advice=decision.advice or advice
    )
