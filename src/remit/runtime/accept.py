"""A request becomes a submission that an engine can run, or a refusal. Nothing runs here."""

import difflib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from remit.core.agents import BUILTIN_TARGETS, ROLES, ROLES_GROUP
from remit.core.budget import Budget, Limits
from remit.core.context import level_of
from remit.core.deadline import LONGEST_SECONDS, Deadline, allowed_timeout, effective_deadline
from remit.core.delegation import ROOT_CALLER, CallerInfo, Delegation, Lineage, Origin, TaskContext
from remit.core.errors import ErrorInfo, Failed, Misused, Refused, RemitError
from remit.core.events import NOT_REACHED, STEPS
from remit.core.ids import is_session_id, new_session_id, redact_token_bytes
from remit.core.jsonable import check_size, clean_text
from remit.core.policy import ALLOW_ALL, PendingApproval, Policy, Verdict
from remit.core.ports import AgentPort
from remit.core.redaction import SecretValues, redact_key, redact_parameters, redact_value, register_secrets
from remit.core.request import Request
from remit.core.result import Return
from remit.core.routing import check_route, language_of, route
from remit.core.states import Priority, priority_of
from remit.runtime import reply
from remit.runtime.authorize import Principals, decide_all, delegation_requests, effects_of, refusal, with_tree_facts
from remit.runtime.deps import ROOT_LINEAGE, Caller, RuntimeDeps, Submission
from remit.runtime.tree_facts import TreeFacts


@dataclass(slots=True)
class GuardInput:
    """Everything the guards look at; plain facts, gathered by `accept` for one look and not kept (so not frozen: it is made often)."""

    target: str
    now: float
    caller_path: tuple[str, ...]
    caller_depth: int
    """0 for a root caller."""
    caller_hard_at: float | None
    """The caller's hard deadline (monotonic); None for a root caller."""
    max_depth: int
    budget: Budget
    lineage: Lineage = ROOT_LINEAGE
    """The caller's."""
    tree: TreeFacts = field(default_factory=TreeFacts)
    principal: str = ROOT_CALLER
    """The caller's name for the policy."""
    caller_info: CallerInfo | None = None
    closing: str | None = None
    """Why the caller's tree takes no new delegations (it is being cancelled), or None."""
    ancestor_tasks: Sequence[tuple[str, str]] | None = None
    """With cycles = "task": (agent, normalised task) of each ancestor; None: cycles by agent."""
    task: str = ""
    """The normalised task of this delegation, with cycles = "task"."""
    known: bool = True
    """Whether the directory has the target."""
    directory: Callable[[], Sequence[str]] = tuple
    """The names that exist: only asked for when the target is unknown."""
    fault: RemitError | None = None
    """What was wrong with the parameters or options."""


def _final(type_: str, message: str, code: str, recommendation: str) -> ErrorInfo:
    return ErrorInfo(type=type_, message=message, code=code, recoverable=False, recommendation=recommendation)


def _walk(case: GuardInput) -> str:
    return f"{' → '.join(case.caller_path)} → {case.target}"


def expired(case: GuardInput) -> ErrorInfo | None:
    if case.closing is not None:
        return _final(
            "cancelled",
            f"Its caller's tree takes no new work: {case.closing}.",
            "CANCELLED",
            "Stop delegating and hand in what there is.",
        )
    if case.caller_hard_at is None or case.now < case.caller_hard_at:
        return None
    return _final(
        "expired",
        f"The caller's own deadline has passed ({_walk(case)}).",
        "TIMEOUT",
        "Delegate earlier, or give the root more time.",
    )


def too_deep(case: GuardInput) -> ErrorInfo | None:
    depth = case.caller_depth + 1
    if depth <= case.max_depth:
        return None
    return _final(
        "max_depth_exceeded",
        f"Depth {depth} exceeds the maximum of {case.max_depth} ({_walk(case)}).",
        "MAX_DEPTH_EXCEEDED",
        "Do this part yourself instead of delegating it, or raise max_depth in remit.toml.",
    )


def cycle(case: GuardInput) -> ErrorInfo | None:
    by_agent = case.ancestor_tasks is None
    met = case.target in case.caller_path if by_agent else (case.target, case.task) in (case.ancestor_tasks or ())
    if not met:
        return None
    return _final(
        "delegation_cycle",
        f"{case.target} is already at work in this path: {_walk(case)}.",
        "CYCLE_DETECTED",
        f"Hand the work to another agent than {', '.join(case.caller_path)}, or do it yourself.",
    )


def budget(case: GuardInput) -> ErrorInfo | None:
    lack = case.budget.lacks(case.now)
    if lack is None:
        return None
    return _final(
        "budget",
        f"The budget of this tree is used up: {lack} ({_walk(case)}).",
        "BUDGET_EXCEEDED",
        "Go on without this delegation, or start the root again with a larger budget.",
    )


def unknown_agent(case: GuardInput) -> ErrorInfo | None:
    if case.known:
        return None
    names = sorted(case.directory(), key=lambda name: (name in ROLES, name))  # those that anybody delegates to by name go first
    close = difflib.get_close_matches(case.target, names, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(close)}?" if close else f"Known: {', '.join(names[:12])}."
    advice = f"{hint} `remit agents` lists all." if names else "Put one into .remit/agents/: `remit agents` shows how."
    advice = disabled_agent_hint(case.target, names) or advice
    return _final("invalid_target", f"There is no agent named {case.target!r}.", "INVALID_TARGET", advice)


def disabled_agent_hint(target: str, names: Iterable[str]) -> str:
    """What to do where it would come with remit, had the project not left it out; empty where that is not so."""
    first = target.partition(".")[0]
    is_role = target in ROLES
    known = {name if is_role else name.partition(".")[0] for name in names}
    if first in known or not (is_role or first in BUILTIN_TARGETS):
        return ""
    missing = ROLES_GROUP if is_role else first
    return (
        f"{first} comes with remit, but the setting builtin_agents leaves it out: add {missing!r} there. `remit config` shows the settings."
    )


def bad_parameters(case: GuardInput) -> ErrorInfo | None:
    fault = case.fault
    if fault is None:
        return None
    return _final("invalid_parameters", fault.message, fault.code, fault.advice or f"`remit agents {case.target}` shows what it takes.")


def not_permitted(case: GuardInput, no: Refused) -> ErrorInfo:
    """The last rung: `accept` asks the policy when nothing else is in the way, so that its log holds what it was asked in earnest."""
    return _final("permission", f"{no.message} ({_walk(case)})", "POLICY_DENIED", no.advice)


def first_refusal(case: GuardInput) -> ErrorInfo | None:
    """The reason why this delegation may not run, or None. Total: never raises, never waits."""
    return expired(case) or too_deep(case) or cycle(case) or budget(case) or unknown_agent(case) or bad_parameters(case)


log = logging.getLogger("remit.flow")

_BLANK_STEPS: list[float | None] = [NOT_REACHED] * len(STEPS)
_ALLOW = Verdict.ALLOW
_LET_IN = (None, None)
_REDRAWN_CODES = frozenset({"BUDGET_EXCEEDED"})
"""Refusals that are looked at anew each time: `alive at once` may have room again."""


class _Terms:
    """What the request says, read and checked; the first thing wrong with it in `fault`. Most requests set few of these."""

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

    def __init__(self, target: str) -> None:
        self.target = target
        self.parameters: Mapping[str, Any] = {}


def guard_input(terms: _Terms, caller: Caller | None, deps: RuntimeDeps, now: float, origin: Origin | None) -> GuardInput:
    """What the caller is and allows, and what `terms` ask for."""
    rules, target = deps.rules, terms.target
    if caller is None:
        budget = Budget(rules.budget, now, None if origin is None else origin.budget)
        case = GuardInput(target, now, ROOT_LINEAGE.path, 0, None, rules.max_depth, budget)
    else:
        delegation = caller.delegation
        lineage, info, max_depth = delegation.lineage, delegation.caller_info, rules.max_depth
        if info is not None and info.max_depth is not None:  # a limit of the tree's caller
            max_depth = min(max_depth, info.max_depth)
        case = GuardInput(target, now, lineage.path, lineage.depth, delegation.deadline.hard_at, max_depth, caller.budget)
        case.lineage, case.tree, case.principal, case.caller_info = lineage, caller.tree, delegation.agent, info
        case.closing = caller.closing
    if origin is not None:
        _narrow(case, origin, caller is None, deps.clock.wall())
    if terms.limits is not None:
        case.budget = case.budget.narrowed(terms.limits, now)
    if terms.command is not None:
        case.caller_path = (*case.caller_path, terms.command)
    if rules.cycles_by_task:
        case.ancestor_tasks, case.task = _ancestor_tasks(caller), normalised_task(terms.parameters)
    if terms.agent is None:
        case.known, case.directory = False, deps.agents.names
    case.fault = terms.fault
    return case


def _narrow(case: GuardInput, origin: Origin, is_root: bool, wall: float) -> None:
    """`origin`: who asks from outside. The limits of a caller here only get narrower by it."""
    if is_root:
        case.lineage, case.caller_info = Lineage("", "", None, origin.depth, origin.path), origin.caller_info
        case.caller_path, case.caller_depth, case.principal = origin.path, origin.depth, origin.caller_info.principal
    elif origin.budget is not None and any(one is case.budget for one in origin.budget.scopes()):
        case.budget = origin.budget  # a scope inside the caller's own
    info = case.caller_info or CallerInfo(ROOT_CALLER)
    if origin.limits is not None:
        case.budget = case.budget.narrowed(origin.limits, case.now)
        case.caller_info = info = info._replace(limits=origin.limits)
    if origin.max_depth is not None:
        case.max_depth = min(case.max_depth, origin.max_depth)
        case.caller_info = info._replace(max_depth=case.max_depth)
    if origin.deadline_at is not None:
        theirs = case.now + origin.deadline_at - wall
        case.caller_hard_at = theirs if case.caller_hard_at is None else min(case.caller_hard_at, theirs)


def accept(request: Request, caller: Caller | None, deps: RuntimeDeps, origin: Origin | None = None) -> Submission:
    """The submission for `request`, with its refusal when a guard said no. `origin`: who asks from outside."""
    wall = deps.clock.wall
    steps = _BLANK_STEPS.copy()
    terms = _Terms(request.agent)
    if caller is None:
        steps[0] = steps[1] = steps[2] = steps[3] = wall()
        if request.task is not None or terms.target.startswith("/"):
            _read_route(request, terms, deps, steps)
    terms.agent = deps.agents.find(terms.target)
    try:
        _read_terms(request, terms, deps)
    except RemitError as fault:
        terms.fault = terms.fault or fault
    except Exception as error:  # noqa: BLE001 - the boundary to the validators of agents' parameters, which are users' code
        terms.fault = terms.fault or Misused(f"The parameters could not be checked: {type(error).__name__}: {error}.")
    if terms.task is None and caller is not None:
        terms.task = caller.delegation.task  # a child works on its caller's task
    submission = _submission(request, terms, caller, deps, steps, origin)
    steps[4] = wall()
    return submission


def _read_route(request: Request, terms: _Terms, deps: RuntimeDeps, steps: list[float | None]) -> None:
    """The first four steps: only a root caller's request is routed."""
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
            chosen = route(terms.command, language, has_plan, deps.rules.routing, task_number=_task_number(terms.task))
            check_route(chosen, language, has_plan, deps.rules.routing)
            if chosen.agent is None:
                raise Misused(f"/{terms.command} delegates nothing.", code="INVALID_TARGET", advice="Name an agent instead.")
            terms.target = chosen.agent
            task = terms.task or TaskContext()
            mode = {"mode": chosen.mode} if chosen.mode else {}
            terms.task = replace(task, extra={**task.extra, **mode, "route": chosen.log_line})
            log.info(chosen.log_line)
    except RemitError as fault:
        terms.fault = fault
    steps[3] = wall()


def _task_number(task: TaskContext | None) -> int | None:
    return task.task_number if task is not None else None


def _read_terms(request: Request, terms: _Terms, deps: RuntimeDeps) -> None:
    agent = terms.agent
    if agent is None:
        return
    spec = agent.spec
    if request.parameters:
        terms.parameters = _plain(request.parameters)
        terms.secrets = register_secrets(terms.parameters)
    terms.arguments = agent.check(dict(request.parameters))
    limits = deps.rules.limits_for(terms.command or terms.target)
    if request.timeout is None and spec.timeout_seconds is not None:
        terms.timeout_seconds = min(spec.timeout_seconds, limits.maximum_seconds)
    else:
        terms.timeout_seconds = allowed_timeout(request.timeout, limits)
    if request.priority is not None:
        terms.priority = priority_of(request.priority)
    terms.idle_seconds = spec.idle_seconds if request.idle is None else _positive("idle", request.idle)
    if request.accept:
        terms.accept = commands_of(request.accept)
    if request.budget is not None:
        terms.limits = limits_of(request.budget)
    if request.task is not None and terms.task is None:
        terms.task = task_of(request.task)
    if request.key is not None and (not isinstance(request.key, str) or not request.key):
        raise Misused(f"key must be a non-empty string, not {request.key!r}.")
    if request.resume is not None and not is_session_id(request.resume):
        raise Misused(f"resume must be the id of a session, not {request.resume!r}.", advice="`remit history` lists them.")


def _submission(
    request: Request, terms: _Terms, caller: Caller | None, deps: RuntimeDeps, steps: list[float | None], origin: Origin | None
) -> Submission:
    now = deps.clock.monotonic()
    created_at = deps.clock.wall()
    case = guard_input(terms, caller, deps, now, origin)
    above = case.lineage
    lineage = _lineage(case, caller is None, created_at)
    error, pending = first_refusal(case), None
    if error is None:
        error, pending = _authorized(case, terms, caller, deps, lineage)
    delegation = Delegation(
        lineage,
        terms.target,
        terms.parameters,
        above.path[-1] if terms.command is None else terms.command,
        terms.priority,
        _deadline(terms, now, case.caller_hard_at, case.budget),
        created_at,
        terms.idle_seconds,
        redact_key(request.key) if isinstance(request.key, str) else None,
        terms.accept,
        terms.limits,
        terms.command,
        terms.task,
        None if request.resume is None or not is_session_id(request.resume) else request.resume,
        case.caller_info,
    )
    submission = Submission(delegation, terms.agent, terms.arguments, case.tree, case.budget, caller, steps, terms.warnings)
    if pending is not None:
        submission.pending = pending
    if terms.secrets is not None:
        submission.secrets = terms.secrets
    if error is not None:
        submission.refusal = _remembered_refusal(submission, error.code, reply.refused_return(delegation, error))
    return submission


def _authorized(
    case: GuardInput, terms: _Terms, caller: Caller | None, deps: RuntimeDeps, lineage: Lineage
) -> tuple[ErrorInfo | None, PendingApproval | None]:
    """The policy's refusal, or the approval that is still needed; neither, when it is allowed."""
    assert terms.agent is not None
    spec = terms.agent.spec
    effects = effects_of(spec) if spec.effects else ()
    known, principal = None, case.principal
    on_behalf = ROOT_CALLER if case.caller_info is None else case.caller_info.principal
    if not spec.acts_on and on_behalf in (ROOT_CALLER, principal):  # else the log says on whose behalf
        known = deps.policy.cached_decision(principal, spec.name, lineage.depth, effects, lineage.session_id)
    if known is not None and known.verdict is _ALLOW:
        return _LET_IN
    workspace = deps.root if caller is None else caller.workspace
    who, left = Principals(principal, on_behalf), case.budget.spendable()
    try:
        asked = delegation_requests(spec, terms.parameters, lineage, who, workspace, terms.timeout_seconds, left)
    except Misused as fault:
        return bad_parameters(replace(case, fault=fault)), None
    asked = with_tree_facts(asked, case.tree, spec, terms.parameters, caller, deps)
    asker = None if caller is None else caller.delegation
    about, decision = decide_all(deps, asked, workspace, asker) if known is None else (asked[0], known)
    if decision.verdict is Verdict.ASK:
        return None, PendingApproval(asked=about, decision=decision)
    return (not_permitted(case, refusal(about, decision)) if decision.verdict is Verdict.DENY else None), None


def _lineage(case: GuardInput, is_root: bool, created_at: float) -> Lineage:
    session_id, above = new_session_id(created_at), case.lineage
    root_id, parent_id = (session_id, None) if is_root else (above.root_id, above.session_id)
    return Lineage(session_id, root_id, parent_id, above.depth + 1, (*(case.caller_path if is_root else above.path), case.target))


def redraw_session_id(submission: Submission, policy: Policy = ALLOW_ALL) -> None:
    """A clash with an id that is taken: the submission gets another one. Nothing has run under the old; the audit log is told."""
    delegation = submission.delegation
    old = delegation.lineage
    session_id = new_session_id(delegation.created_at)
    lineage = old._replace(session_id=session_id, root_id=session_id if old.parent_id is None else old.root_id)
    submission.delegation = delegation._replace(lineage=lineage)
    policy.renamed(old.session_id, session_id)


def _deadline(terms: _Terms, now: float, caller_hard_at: float | None, budget: Budget) -> Deadline:
    """The caller's end and the end of the budget's wall clock both shrink it."""
    ends_at = budget.ends_at()
    if ends_at is not None:
        caller_hard_at = ends_at if caller_hard_at is None else min(caller_hard_at, ends_at)
    return effective_deadline(terms.timeout_seconds, now, caller_hard_at)


def _remembered_refusal(submission: Submission, code: str, refusal: Return) -> Return:
    """An identical refused call in one tree is answered from memory: no retry storm."""
    if submission.caller is None or code in _REDRAWN_CODES:
        return refusal
    fault = refusal.errors[0].message if code == "INVALID_PARAMETERS" else ""  # another one is another call: it has its own advice
    call = f"{submission.delegation.agent}\n{normalised_task(submission.delegation.parameters)}\n{code}\n{fault}"
    earlier, times = submission.tree.refusals.get(call, (refusal, 0))
    submission.tree.refusals[call] = (earlier, times + 1)
    return reply.repeated_refusal(earlier, times + 1)


def _ancestor_tasks(caller: Caller | None) -> Sequence[tuple[str, str]]:
    return [] if caller is None else [(d.agent, normalised_task(d.parameters)) for d in caller.ancestors()]


def normalised_task(parameters: Mapping[str, Any]) -> str:
    """The same task however it is spelt: keys sorted, letter case and white space of texts folded."""

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
    """The same agent with the same parameters, to the letter, as they are recorded: how a resumed caller's call is recognised."""
    held = register_secrets(parameters)  # redacted from their own parameters too, as when they were recorded
    call = f"{agent}\n{json.dumps(redact_value(redact_parameters(_plain(parameters))), sort_keys=True)}"
    del held
    return call


def _plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON holds them: what is recorded, and what crosses to another process."""
    try:
        check_size(parameters)
        plain = from_json(redact_token_bytes(to_json(dict(parameters), inf_nan_mode="constants")))
    except (Failed, PydanticSerializationError, ValueError, RecursionError, UnicodeError) as error:
        raise Misused(
            f"Parameters must be what JSON can hold: {error}",
            advice="Pass text, numbers, lists and mappings; leave files and objects to paths and names.",
        ) from None
    assert isinstance(plain, dict)
    return plain


def _positive(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < LONGEST_SECONDS:
        raise Misused(f"{name} must be a positive number of seconds, not {value!r}.")
    return float(value)


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
