"""Turns a request into a submission that an engine can run, or into a refusal. Runs nothing."""

import difflib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from remit.core.adaptive import LearnedLimits
from remit.core.agents import ROLES, AgentSpec, is_helper
from remit.core.budget import Budget, Limits, effective_deadline
from remit.core.cache import CACHE_KEYS, CacheTerms, cache_terms
from remit.core.context import level_of
from remit.core.deadline import LONGEST_SECONDS, TimeLimits, allowed_timeout
from remit.core.delegation import ROOT_CALLER, CallerInfo, Delegation, Lineage, Origin, TaskContext, on_behalf_of
from remit.core.errors import ErrorInfo, Misused, RemitError
from remit.core.events import NOT_REACHED, STEPS
from remit.core.ids import is_session_id, new_session_id
from remit.core.jsonable import clean_text, plain_parameters
from remit.core.policy import ALLOW_ALL, PendingApproval, Policy, Verdict
from remit.core.ports import AgentPort
from remit.core.redaction import SecretValues, receive_parameters, redact_key, redact_parameters, redact_value, register_secrets
from remit.core.references import has_references
from remit.core.request import COMPOSE, Request
from remit.core.result import Return
from remit.core.routing import check_language, check_route, language_of, route
from remit.core.states import Priority, priority_of
from remit.runtime import reply
from remit.runtime.authorize import (
    Principals,
    decide_all,
    delegation_requests,
    effects_of,
    refusal,
    with_tree_facts,
)
from remit.runtime.deps import ROOT_LINEAGE, RuntimeDeps, Submission, TreeFacts

if TYPE_CHECKING:
    from remit.core.composition import GroupStep
    from remit.runtime.local_context import LocalRun


@dataclass(slots=True)
class GuardInput:
    """Facts that the guards check, collected by `accept` (not frozen: it is created often)."""

    target: str
    now: float
    caller_path: tuple[str, ...]
    caller_depth: int
    """0 for a root caller."""
    caller_hard_at: float | None
    """The caller's hard deadline (monotonic); None for a root caller."""
    max_depth: int
    budget: Budget
    closing: str | None = None
    """Why the caller's tree takes no new delegations (it is being cancelled), or None."""
    ancestor_tasks: Sequence[tuple[str, str]] | None = None
    """With cycles = "task": (agent, normalised task) of each ancestor; None: cycles by agent."""
    task: str = ""
    """The normalised task of this delegation, with cycles = "task"."""
    known: bool = True
    """Whether the directory has the target."""
    directory: Callable[[], Sequence[str]] = tuple
    """Existing names; called only if the target is unknown."""
    fault: RemitError | None = None
    """The fault of the parameters or options."""


def _final(type_: str, message: str, code: str, recommendation: str) -> ErrorInfo:
    return ErrorInfo(type=type_, message=message, code=code, recoverable=False, recommendation=recommendation)


def _walk(case: GuardInput) -> str:
    return f"{' → '.join(case.caller_path)} → {case.target}"


def tree_budget(walk: str, lack: str) -> ErrorInfo:
    advice = "Continue without this delegation, or start the root again with a larger budget."
    return _final("budget", f"The budget of this tree is used up: {lack} ({walk}).", "BUDGET_EXCEEDED", advice)


def recorded_budget(delegation: Delegation, lack: str, *, is_of_tree: bool) -> ErrorInfo:
    """Found when it was recorded: other processes draw from the budget of its tree or its principal, too."""
    if is_of_tree:
        return tree_budget(" → ".join(delegation.lineage.path), lack)
    principal = delegation.caller_info.principal if delegation.caller_info is not None else delegation.caller
    message = f"The budget of {principal} is used up: {lack} ({' → '.join(delegation.lineage.path)})."
    return _final("budget", message, "BUDGET_EXCEEDED", "Continue without this delegation, or ask for a larger budget.")


def queue_full(waiting: int, slots: int) -> ErrorInfo:
    return ErrorInfo(
        type="queue_full",
        message=f"The queue is full: {waiting} delegations wait for {slots} slots.",
        code="QUEUE_FULL",
        recoverable=True,
        recommendation="Try again later, delegate less at once (ctx.gather has limit=), or raise queue_limit or slots_total.",
    )


def unknown_agent(case: GuardInput) -> ErrorInfo:
    if case.target.startswith("/") and case.fault is not None:  # an unrouted command: the fault gives the reason
        return bad_parameters(case, case.fault)
    names = sorted(case.directory(), key=lambda name: (name in ROLES, name))  # agents that callers use by name come first
    close = difflib.get_close_matches(case.target, names, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(close)}?" if close else f"Known: {', '.join(names[:12])}."
    advice = f"{hint} `remit agents` lists all." if names else "Put one into .remit/agents/: `remit agents` shows how."
    return _final("invalid_target", f"There is no agent named {case.target!r}.", "INVALID_TARGET", advice)


def bad_parameters(case: GuardInput, fault: RemitError) -> ErrorInfo:
    return _final("invalid_parameters", fault.message, fault.code, fault.advice or f"`remit agents {case.target}` shows what it takes.")


def first_refusal(case: GuardInput) -> ErrorInfo | None:
    """Why this delegation may not run, or None. Never raises and never waits."""
    if case.closing is not None:
        message = f"Its caller's tree takes no new work: {case.closing}."
        return _final("cancelled", message, "CANCELLED", "Stop delegating and return the result so far.")
    if case.caller_hard_at is not None and case.now >= case.caller_hard_at:
        message = f"The caller's own deadline has passed ({_walk(case)})."
        return _final("expired", message, "TIMEOUT", "Delegate earlier, or give the root more time.")
    if case.caller_depth >= case.max_depth:
        message = f"Depth {case.caller_depth + 1} exceeds the maximum of {case.max_depth} ({_walk(case)})."
        advice = "Do this part yourself instead of delegating it, or raise max_depth in remit.toml."
        return _final("max_depth_exceeded", message, "MAX_DEPTH_EXCEEDED", advice)
    tasks = case.ancestor_tasks
    if case.target in case.caller_path if tasks is None else (case.target, case.task) in tasks:
        message = f"{case.target} is already at work in this path: {_walk(case)}."
        advice = f"Hand the work to another agent than {', '.join(case.caller_path)}, or do it yourself."
        return _final("delegation_cycle", message, "CYCLE_DETECTED", advice)
    if (lack := case.budget.lacks(case.now)) is not None:
        return tree_budget(_walk(case), lack)
    if not case.known:
        return unknown_agent(case)
    return None if case.fault is None else bad_parameters(case, case.fault)


log = logging.getLogger("remit.flow")
PREVIOUS = "previous"
"""The parameter that passes the previous agent's return to the next agent of a route."""

_BLANK_STEPS: list[float | None] = [NOT_REACHED] * len(STEPS)
_ALLOW = Verdict.ALLOW
_new = tuple.__new__
"""Creates named tuples three times faster than their Python constructor; every delegation does."""
_LET_IN = (None, None)
_REDRAWN_CODES = frozenset({"BUDGET_EXCEEDED"})
"""Refusals that are evaluated again each time: fewer delegations may be alive later."""


class _Terms:
    """The parsed request, with its first fault in `fault`. Most requests set few fields."""

    agent: AgentPort | None = None
    command: str | None = None
    arguments: Any = None
    timeout_seconds: float = 0.0
    priority: Priority = Priority.NORMAL
    idle_seconds: float | None = None
    accept: tuple[str, ...] = ()
    limits: Limits | None = None
    task: TaskContext | None = None
    fault: RemitError | None = None
    secrets: SecretValues | None = None
    warnings: tuple[str, ...] = ()
    # The caller:
    above: Lineage = ROOT_LINEAGE
    principal: str = ROOT_CALLER
    """Its name for the policy."""
    caller_info: CallerInfo | None = None
    asker: Delegation | None = None
    """The delegation whose agent calls; None: a root caller."""
    cache: CacheTerms | None = None
    limits_reason: str | None = None

    def __init__(self, target: str) -> None:
        self.target = target
        self.parameters: Mapping[str, Any] = {}


def guard_input(
    terms: _Terms, caller: "LocalRun | None", deps: RuntimeDeps, now: float, origin: Origin | None, session_id: str
) -> GuardInput:
    """Facts about the caller and the request. `session_id`: of the new delegation."""
    rules, target = deps.rules, terms.target
    if caller is None:
        budget = Budget(rules.budget, now, None if origin is None else origin.budget, session_id=session_id)
        case = GuardInput(target, now, ROOT_LINEAGE.path, 0, None, rules.max_depth, budget)
    else:
        delegation = caller.delegation
        lineage, info, max_depth = delegation.lineage, delegation.caller_info, rules.max_depth
        if info is not None and info.max_depth is not None:  # a limit set by the tree's caller
            max_depth = min(max_depth, info.max_depth)
        hard_at, budget = delegation.deadline.hard_at, caller.budget
        case = GuardInput(target, now, lineage.path, lineage.depth, hard_at, max_depth, budget, caller.closing)
        terms.above, terms.principal, terms.caller_info, terms.asker = lineage, delegation.agent, info, delegation
        if caller.agent.spec.acts_for_caller:  # its children take its place; pass-through agents cannot form a cycle
            terms.above, terms.asker, case.caller_path = caller.acts_for
            case.caller_depth = terms.above.depth
            terms.principal = on_behalf_of(terms.caller_info) if terms.asker is None else terms.asker.agent
        elif terms.agent is not None and is_helper(caller.agent.spec, terms.agent.spec):
            terms.above, case.caller_depth = lineage._replace(depth=lineage.depth - 1), lineage.depth - 1
    if origin is not None:
        _narrow(case, terms, origin, caller is None, deps.clock.wall(), session_id)
    if terms.limits is not None:
        case.budget = case.budget.narrowed(terms.limits, now, session_id)
    if terms.command is not None:
        case.caller_path = (*case.caller_path, terms.command)
    if rules.cycles_by_task:
        above = () if caller is None else caller.ancestors()
        case.ancestor_tasks, case.task = [(one.agent, normalised_task(one.parameters)) for one in above], normalised_task(terms.parameters)
    if terms.agent is None:
        case.known, case.directory = False, deps.agents.names
    if terms.fault is not None:
        case.fault = terms.fault
    return case


def _narrow(case: GuardInput, terms: _Terms, origin: Origin, is_root: bool, wall: float, session_id: str) -> None:
    """Apply the limits of the external caller `origin`, which only narrow those of a local caller."""
    if is_root:
        terms.above, terms.caller_info = Lineage("", "", None, origin.depth, origin.path), origin.caller_info
        case.caller_path, case.caller_depth, terms.principal = origin.path, origin.depth, origin.caller_info.principal
    elif origin.budget is not None and any(one is case.budget for one in origin.budget.scopes()):
        case.budget = origin.budget  # a scope inside the caller's own
    info = terms.caller_info or CallerInfo(ROOT_CALLER)
    if origin.limits is not None:
        case.budget = case.budget.narrowed(origin.limits, case.now, session_id)
        terms.caller_info = info = info._replace(limits=origin.limits)
    if origin.max_depth is not None:
        case.max_depth = min(case.max_depth, origin.max_depth)
        terms.caller_info = info._replace(max_depth=case.max_depth)
    if origin.deadline_at is not None:
        theirs = case.now + origin.deadline_at - wall
        case.caller_hard_at = theirs if case.caller_hard_at is None else min(case.caller_hard_at, theirs)


def accept(request: Request, caller: "LocalRun | None", deps: RuntimeDeps, origin: Origin | None = None) -> Submission:
    """The submission for `request`, with a refusal if a guard refused. `origin`: the external caller."""
    wall = deps.clock.wall
    steps = _BLANK_STEPS.copy()
    terms = _Terms(request.agent)
    if caller is None:
        steps[0] = steps[1] = steps[2] = steps[3] = wall()
        if request.task is not None or terms.target.startswith("/"):
            request = _read_route(request, terms, deps, steps)
    terms.agent = deps.agents.find(terms.target)
    try:
        _read_terms(request, terms, deps)
    except RemitError as fault:
        terms.fault = terms.fault or fault
    except Exception as error:  # noqa: BLE001 - parameter validators of agents are user code
        terms.fault = terms.fault or Misused(f"The parameters could not be checked: {type(error).__name__}: {error}.")
    if terms.task is None and caller is not None:
        terms.task = caller.delegation.task  # a child works on its caller's task
    submission = _submission(request, terms, caller, deps, steps, origin)
    steps[4] = wall()
    return submission


def _read_route(request: Request, terms: _Terms, deps: RuntimeDeps, steps: list[float | None]) -> Request:
    """The first four steps. Only a root caller's command is routed. Returns the request for the agent, or for the sequence of agents."""
    wall = deps.clock.wall
    try:
        if request.task is not None:
            terms.task = task_of(request.task)
            level_of(terms.task.complexity)
        steps[1] = wall()
        language, warning = language_of(terms.task) if terms.task is not None else ("general", None)
        if warning:
            terms.warnings = (warning,)
        steps[2] = wall()
        if terms.target.startswith("/"):
            terms.command = terms.target[1:]
            has_plan = terms.task is not None and terms.task.has_plan
            chosen = route(
                terms.command, language, has_plan, deps.rules.routing, task_number=None if terms.task is None else terms.task.task_number
            )
            check_route(chosen, language, has_plan, deps.rules.routing)
            if chosen.agent is None:
                raise Misused(f"/{terms.command} delegates nothing.", code="INVALID_TARGET", advice="Name an agent instead.")
            terms.target = chosen.agent
            if warning is None and deps.rules.languages:
                check_language(language, deps.rules.languages, deps.rules.routing)
            task = terms.task or TaskContext()
            mode = {"mode": chosen.mode} if chosen.mode else {}
            terms.task = replace(task, extra={**task.extra, **mode, "route": chosen.log_line})
            log.info(chosen.log_line)
            if then := task.extra.get("then", chosen.then):  # a command that runs them itself marks it in its task
                chain = route_chain((chosen.agent, *then), request.parameters, deps.agents.find)
                request, terms.target = replace(request, agent=COMPOSE, parameters=chain.to_dict()), COMPOSE
    except RemitError as fault:
        terms.fault = fault
    steps[3] = wall()
    return request


def route_chain(agents: Sequence[str], parameters: Mapping[str, Any], find: Callable[[str], AgentPort | None]) -> "GroupStep":
    """The agents of a route as a sequence: each gets the parameters it accepts, and `previous`, the preceding return."""
    from remit.core.composition import sequence  # only if a route has several agents

    literal = {name: {"$$": value} if has_references(value) else value for name, value in parameters.items()}
    calls = []
    for number, name in enumerate(agents):
        found = find(name)
        given = {**literal, PREVIOUS: {"$return": str(number - 1)}} if number else literal
        schema = found.spec.parameters_schema if found is not None else {}
        if number and schema.get("additionalProperties", True) is False:
            given = {key: value for key, value in given.items() if key in schema.get("properties", {})}
        calls.append(Request(name, given))
    return sequence(*calls, result={"$return": str(len(agents) - 1)})


def _read_terms(request: Request, terms: _Terms, deps: RuntimeDeps) -> None:
    agent = terms.agent
    if agent is None:
        return
    spec = agent.spec
    if request.checked is not None and request.checked[0] is agent:
        terms.parameters, terms.arguments = request.parameters, request.checked[1]
        request.checked = None  # used once: an agent may change what it is given
    else:
        if request.parameters:
            terms.parameters, terms.secrets = receive_parameters(request.parameters)
        # steps of a composition need not receive theirs again
        terms.arguments = agent.check(terms.parameters if terms.target == COMPOSE else dict(request.parameters))  # type: ignore[arg-type]
    _read_options(request, terms, spec, deps.rules.limits_for(terms.command or terms.target))
    learner = deps.rules.learner
    if learner is not None and (learned := learner.limits(terms.target, terms.command)) is not None:
        _adapt(request, terms, spec, learned, is_used=learner.is_used)


def check_options(request: Request, spec: AgentSpec, limits: TimeLimits) -> None:
    """Raises `Misused` for an option that a delegation to this agent is refused for."""
    _read_options(request, _Terms(request.agent), spec, limits)


def _read_options(request: Request, terms: _Terms, spec: AgentSpec, limits: TimeLimits) -> None:
    if request.timeout is None:
        usual = limits.default_seconds if spec.timeout_seconds is None else spec.timeout_seconds
        terms.timeout_seconds = min(usual, limits.maximum_seconds)
    else:
        terms.timeout_seconds = allowed_timeout(request.timeout, limits)
    if request.priority is not None:
        terms.priority = priority_of(request.priority)
    terms.idle_seconds = spec.idle_seconds
    if (idle := request.idle) is not None:
        if isinstance(idle, bool) or not isinstance(idle, int | float) or not 0 < idle < LONGEST_SECONDS:
            raise Misused(f"idle must be a positive number of seconds, not {idle!r}.")
        terms.idle_seconds = float(idle)
    if request.accept:
        terms.accept = commands_of(request.accept)
    if request.budget is not None:
        terms.limits = limits_of(request.budget)
    if request.task is not None and terms.task is None:
        terms.task = task_of(request.task)
    if request.key is not None and (not isinstance(request.key, str) or not request.key or request.key.startswith(CACHE_KEYS)):
        raise Misused(f"key must be a non-empty string that does not begin with {CACHE_KEYS!r}, not {request.key!r}.")
    if spec.cache_seconds is not None or request.cache is not None:
        terms.cache = cache_terms(spec, request.cache)
    if request.resume is not None and not is_session_id(request.resume):
        raise Misused(f"resume must be the id of a session, not {request.resume!r}.", advice="`remit history` lists them.")


def _adapt(request: Request, terms: _Terms, spec: AgentSpec, learned: LearnedLimits, *, is_used: bool) -> None:
    """Apply learned limits, unless the caller or the agent sets its own."""
    changes = {}
    if learned.timeout_seconds is not None and request.timeout is None and spec.timeout_seconds is None:
        changes["timeout"] = learned.timeout_seconds
    if learned.idle_seconds is not None and terms.idle_seconds is None and not spec.acts_for_caller:  # it is as silent as what it calls
        changes["idle"] = learned.idle_seconds
    if not changes:
        return
    words = " and ".join(f"{name} {seconds:.0f} s" for name, seconds in changes.items())
    if is_used:
        terms.timeout_seconds = changes.get("timeout", terms.timeout_seconds)
        terms.idle_seconds = changes.get("idle", terms.idle_seconds)
    terms.limits_reason = f"{words}: {learned.reason}" if is_used else f"{words} with adaptive_limits on: {learned.reason}"


def _submission(
    request: Request, terms: _Terms, caller: "LocalRun | None", deps: RuntimeDeps, steps: list[float | None], origin: Origin | None
) -> Submission:
    now = deps.clock.monotonic()
    created_at = deps.clock.wall()
    session_id = new_session_id(created_at)
    case = guard_input(terms, caller, deps, now, origin, session_id)
    above, tree = terms.above, TreeFacts() if caller is None else caller.tree
    if caller is None:
        lineage = _new(Lineage, (session_id, session_id, None, above.depth + 1, (*case.caller_path, terms.target)))
    else:
        lineage = _new(Lineage, (session_id, above.root_id, above.session_id, above.depth + 1, (*above.path, terms.target)))
    error, pending = first_refusal(case), None
    if error is None:
        error, pending = _authorized(case, terms, tree, caller, deps, lineage)
    ends_at = case.budget.ends_at
    if ends_at is None or (case.caller_hard_at is not None and case.caller_hard_at < ends_at):
        ends_at = case.caller_hard_at
    fields = (
        lineage,
        terms.target,
        terms.parameters,
        above.path[-1] if terms.command is None else terms.command,
        terms.priority,
        effective_deadline(terms.timeout_seconds, now, ends_at),
        created_at,
        terms.idle_seconds,
        redact_key(request.key) if isinstance(request.key, str) else None,
        terms.accept,
        terms.limits,
        terms.command,
        terms.task,
        None if request.resume is None or not is_session_id(request.resume) else request.resume,
        terms.caller_info,
        terms.limits_reason,
    )
    delegation = _new(Delegation, fields)
    submission = Submission(delegation, terms.agent, terms.arguments, tree, case.budget, caller, steps, terms.warnings)
    if pending is not None:
        submission.pending = pending
    if terms.secrets is not None:
        submission.secrets = terms.secrets
    if terms.cache is not None and error is None and pending is None and _may_be_cached(request, terms):
        submission.cache = terms.cache
    if request.spread:
        submission.spread = True
    if error is not None:
        submission.refusal = _remembered_refusal(submission, error.code, reply.refused_return(delegation, error))
    return submission


def _may_be_cached(request: Request, terms: _Terms) -> bool:
    """False with an idempotency key, `resume`, acceptance commands or secret parameters."""
    if request.key is not None or request.resume is not None or terms.accept or terms.secrets is not None:
        return False
    return bool(redact_value(redact_parameters(terms.parameters)) == terms.parameters)


def _authorized(
    case: GuardInput, terms: _Terms, tree: TreeFacts, caller: "LocalRun | None", deps: RuntimeDeps, lineage: Lineage
) -> tuple[ErrorInfo | None, PendingApproval | None]:
    """The policy's refusal, or the approval still required; neither if it is allowed."""
    assert terms.agent is not None
    spec = terms.agent.spec
    effects = effects_of(spec) if spec.effects else ()
    known, principal = None, terms.principal
    on_behalf = ROOT_CALLER if terms.caller_info is None else terms.caller_info.principal
    if not spec.acts_on and on_behalf in (ROOT_CALLER, principal):  # otherwise the log names the principal
        known = deps.policy.cached_decision(principal, spec.name, lineage.depth, effects, lineage.session_id)
    if known is not None and known.verdict is _ALLOW:
        return _LET_IN
    workspace = deps.root if caller is None else caller.workspace
    who, left = Principals(principal, on_behalf), case.budget.spendable()
    try:
        asked = delegation_requests(spec, terms.parameters, lineage, who, workspace, terms.timeout_seconds, left)
    except Misused as fault:
        return bad_parameters(case, fault), None
    asked = with_tree_facts(asked, tree, spec, terms.parameters, caller, deps)
    about, decision = decide_all(deps, asked, workspace, terms.asker) if known is None else (asked[0], known)
    if decision.verdict is Verdict.ASK:
        return None, PendingApproval(asked=about, decision=decision)
    if decision.verdict is not Verdict.DENY:
        return _LET_IN
    no = refusal(about, decision)
    return _final("permission", f"{no.message} ({_walk(case)})", "POLICY_DENIED", no.advice), None


def redraw_session_id(submission: Submission, policy: Policy = ALLOW_ALL) -> None:
    """Give the submission another session id after a clash. Nothing has run under the old id; the audit log is updated."""
    delegation = submission.delegation
    old = delegation.lineage
    session_id = new_session_id(delegation.created_at)
    lineage = old._replace(session_id=session_id, root_id=session_id if old.parent_id is None else old.root_id)
    submission.delegation = delegation._replace(lineage=lineage)
    submission.budget.rename_scopes(session_id, old.session_id)
    policy.renamed(old.session_id, session_id)


def _remembered_refusal(submission: Submission, code: str, refusal: Return) -> Return:
    """Answer an identical refused call of the same tree from memory, to prevent retry storms."""
    if submission.caller is None or code in _REDRAWN_CODES:
        return refusal
    fault = refusal.errors[0].message if code == "INVALID_PARAMETERS" else ""  # a different key is a different call with its own advice
    call = f"{submission.delegation.agent}\n{normalised_task(submission.delegation.parameters)}\n{code}\n{fault}"
    return reply.repeated_refusal(*submission.tree.note_refusal(call, refusal))


def normalised_task(parameters: Mapping[str, Any]) -> str:
    """A canonical form of the task: sorted keys, folded case and white space."""

    def fold(value: Any) -> Any:
        if isinstance(value, str):
            return " ".join(value.split()).casefold()
        if isinstance(value, Mapping):
            return {str(k): fold(value[k]) for k in sorted(value, key=str)}
        if isinstance(value, list | tuple):
            return [fold(v) for v in value]
        return value

    return to_json(fold(parameters)).decode()


def normalised_call(agent: str, parameters: Mapping[str, Any]) -> str:
    """Identifies a call by agent and exact parameters as recorded; used to match the calls of a resumed caller."""
    held = register_secrets(parameters)  # redacted from their own parameters too, as in the record
    call = f"{agent}\n{json.dumps(redact_value(redact_parameters(plain_parameters(parameters)[0])), sort_keys=True)}"
    del held
    return call


def commands_of(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(c, str) and c.strip() for c in value):
        raise Misused(f"accept must be a list of commands, not {value!r}.", advice='Pass e.g. accept=["pytest -q"].')
    return tuple(clean_text(command) for command in value)


def limits_of(value: Limits | Mapping[str, Any]) -> Limits:
    if isinstance(value, Limits):
        return value
    known = set(Limits.__dataclass_fields__)
    if not isinstance(value, Mapping) or set(value) - known:
        raise Misused(f"Unknown budget {value!r}.", advice=f"A budget has {', '.join(sorted(known))}.")
    return Limits(**value)


def task_of(value: TaskContext | Mapping[str, Any]) -> TaskContext:
    if isinstance(value, TaskContext):
        return value
    if not isinstance(value, Mapping):
        raise Misused(f"task must be a mapping, not {value!r}.", advice='Pass e.g. task={"task_number": 12, "language": "python"}.')
    known = set(TaskContext.__dataclass_fields__) - {"extra"}
    fields = {k: v for k, v in value.items() if k in known}
    return TaskContext(**fields, extra={k: v for k, v in value.items() if k not in known})
