"""What is allowed: the facts that a rule may ask about, where a caller stands in its tree, the policy's verdict, and a person's approval.

Asked for a delegation before it runs (`accept`), and for a step of an agent that a tool takes in its name (`ctx.permit`)."""

import asyncio
import contextlib
import ipaddress
import os
import shlex
import socket
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from remit.core.agents import AgentSpec
from remit.core.budget import Budget, Limits
from remit.core.delegation import ROOT_CALLER, CallerInfo, Lineage, Origin
from remit.core.errors import ErrorInfo, Misused, Refused
from remit.core.languages import plain_name
from remit.core.parameters import own_name
from remit.core.policy import Decision, Effect, Fact, PendingApproval, Policy, PolicyRequest, Verdict
from remit.core.result import Return
from remit.runtime import reply
from remit.runtime.deps import ROOT_LINEAGE, Caller, RuntimeDeps, Submission, Tree

if TYPE_CHECKING:
    from remit.runtime.perform import Work


Standing = tuple[Lineage, Tree, Budget, float | None, int, str, CallerInfo | None]
"""The caller's lineage; the tree; the budget; when the caller itself ends (monotonic; None: it does not); the depth that is allowed; the
principal of the policy; who came in from outside. Taken apart at once, and made for every delegation: hence a plain one."""


def standing(caller: Caller | None, origin: Origin | None, limits: Limits | None, deps: RuntimeDeps, now: float) -> Standing:
    """`limits`: what the request asks for itself."""
    if caller is not None:
        return _of_child(caller, origin, limits, deps, now)
    if origin is not None:
        return _of_visitor(origin, limits, deps, now)
    budget = Budget(deps.rules.budget, opened_at=now)
    if limits is not None:
        budget = budget.narrowed(limits, now)
    return ROOT_LINEAGE, Tree(budget), budget, None, deps.rules.max_depth, ROOT_CALLER, None


def _of_child(caller: Caller, origin: Origin | None, limits: Limits | None, deps: RuntimeDeps, now: float) -> Standing:
    delegation = caller.delegation
    budget, caller_info, max_depth = caller.budget, delegation.caller_info, deps.rules.max_depth
    if caller_info is not None and caller_info.max_depth is not None:  # whoever began the tree may go no deeper, and nobody below
        max_depth = min(max_depth, caller_info.max_depth)
    hard_at: float | None = delegation.deadline.hard_at
    if origin is not None:  # a token of this delegation, which may have been narrowed on its way
        if origin.budget is not None and any(scope is budget for scope in origin.budget.scopes()):  # a scope inside of its own
            budget = origin.budget
        budget, hard_at, max_depth = _narrowed(origin, budget, hard_at, max_depth, deps, now)
        if origin.max_depth is not None or origin.limits is not None:
            caller_info = _kept(caller_info or CallerInfo(ROOT_CALLER), origin, max_depth)
    if limits is not None:
        budget = budget.narrowed(limits, now)
    return delegation.lineage, caller.tree, budget, hard_at, max_depth, delegation.agent, caller_info


def _of_visitor(origin: Origin, limits: Limits | None, deps: RuntimeDeps, now: float) -> Standing:
    budget = Budget(deps.rules.budget, opened_at=now, outer=origin.budget)
    narrowed, hard_at, max_depth = _narrowed(origin, budget, None, deps.rules.max_depth, deps, now)
    if limits is not None:
        narrowed = narrowed.narrowed(limits, now)
    above = Lineage("", "", None, origin.depth, origin.path)
    return above, Tree(narrowed), narrowed, hard_at, max_depth, origin.caller_info.principal, _kept(origin.caller_info, origin, max_depth)


def _kept(caller_info: CallerInfo, origin: Origin, max_depth: int) -> CallerInfo:
    """With what holds for everything below, also after a crash."""
    if origin.max_depth is not None:
        caller_info = caller_info._replace(max_depth=max_depth)
    return caller_info if origin.limits is None else caller_info._replace(limits=origin.limits)


def _narrowed(
    origin: Origin, budget: Budget, hard_at: float | None, max_depth: int, deps: RuntimeDeps, now: float
) -> tuple[Budget, float | None, int]:
    if origin.limits is not None:
        budget = budget.narrowed(origin.limits, now)
    if origin.deadline_at is not None:
        theirs = now + origin.deadline_at - deps.clock.wall()
        hard_at = theirs if hard_at is None else min(hard_at, theirs)
    return budget, hard_at, max_depth if origin.max_depth is None else min(max_depth, origin.max_depth)


LONGEST_TEXT = 2000
LONGEST_PATH = 4096
"""As long as the kernel takes them; what is longer leads nowhere."""
_LARGEST = 2**63 - 1
_PORTS = {"http": 80, "https": 443, "ftp": 21}
_METADATA = frozenset({"169.254.169.254", "169.254.170.2", "fd00:ec2::254", "100.100.100.200", "168.63.129.16"})
"""Where clouds tell a machine its own credentials."""
MOST = 1000
"""Things that one delegation may act on."""
OURS = frozenset(
    {"caller", "depth", "ancestors", "target", "operation", "delegation", "timeout_seconds", "tokens_left", "cents_left", "on_behalf"}
)
"""Facts about who asks: nobody else says them."""
COMPUTED = frozenset(
    OURS | {"path", "name", "parts", "inside", "url", "scheme", "host", "port", "address", "command", "program", "language"}
)
"""Names of facts that are ours to say: no parameter that happens to be called so takes their place."""

Facts = dict[str, Any]


def facts_of(spec: AgentSpec, parameters: Mapping[str, Any], workspace: Path) -> list[Facts]:
    """What rules may know of a delegation: what its parameters stand for, and those that are numbers, yes or no, or one of a few words.

    Several, where a parameter is a list of paths or addresses: each must be allowed.
    """
    common: Facts = {}
    known = {*spec.acts_on, *spec.parameters_schema.get("properties", ())}
    if not parameters.keys() <= known:  # a parameter has two spellings: the other one is no way around a rule
        parameters = {own_name(name, known): value for name, value in parameters.items()}
    for name, value in parameters.items():
        if name not in spec.acts_on and name not in COMPUTED and _is_telling(name, value, spec):
            common[name] = value
    found = [common]
    for name, kind in spec.acts_on.items():
        value = parameters.get(name)
        found = _joined(found, _each(kind, _default(spec, name) if value is None else value, workspace))
    return found


def _default(spec: AgentSpec, name: str) -> Any:
    """What a parameter is when it is not given: a rule speaks of that as well."""
    return spec.parameters_schema.get("properties", {}).get(name, {}).get("default")


def _joined(found: list[Facts], each: list[Facts]) -> list[Facts]:
    if len(found) * len(each) > MOST:
        raise Misused(f"It acts on more than {MOST} things at once.", advice="Ask for fewer of them at a time.")
    return [{**facts, **more} for facts in found for more in each]


def _each(kind: Fact, value: Any, workspace: Path) -> list[Facts]:
    """Of each thing that a parameter names; an operation on files that names none is one on all of them."""
    if value is None:
        return [path_facts(".", workspace)] if kind is Fact.PATH else [{}]
    several = value if isinstance(value, list | tuple) and kind is not Fact.COMMAND else [value]
    return [_TAKEN_APART[kind](one, workspace) for one in several[: MOST + 1]] or [{}]


def facts_said(said: Mapping[str, Any], workspace: Path) -> list[Facts]:
    """What an agent says of an action on its way, taken apart likewise. What it looked up itself (an address) it may add, not gainsay."""
    found: list[Facts] = [{}]
    for kind in _TAKEN_APART:
        if said.get(kind) is not None:
            found = _joined(found, _each(Fact(kind), said[kind], workspace))
    for facts in found:
        for name, value in said.items():
            if value is not None and name not in OURS:
                facts.setdefault(name, _simple(value))
    return found


def path_facts(value: Any, workspace: Path) -> Facts:
    given = text = str(value)
    root = str(workspace)
    if os.path.isabs(text):
        text = os.path.normpath(text)
        # Two slashes at the front are kept by POSIX; the kernel sees one.
        text = "/" + text.lstrip("/")
        text = os.path.relpath(text, root) if text == root or text.startswith(root.rstrip("/") + "/") else text
    path = os.path.normpath(text) if text else "."
    inside = not (os.path.isabs(path) or path == ".." or path.startswith("../") or "\0" in path or len(path) > LONGEST_PATH)
    parts = [part for part in path.split("/") if part]
    facts = {"path": path[:LONGEST_PATH], "name": parts[-1] if parts else "", "parts": sorted(set(parts)), "inside": inside}
    return facts if ".." not in given or not inside else _ambiguous(given, root, facts)


def _ambiguous(given: str, root: str, facts: Facts) -> Facts:
    """`link/../x` is one thing to whoever reads it and another to the kernel: where the two differ it is not held to be inside."""
    try:
        real = os.path.relpath(os.path.realpath(os.path.join(root, given)), os.path.realpath(root))
        read = os.path.relpath(os.path.realpath(os.path.join(root, facts["path"])), os.path.realpath(root))
    except (OSError, ValueError):
        return facts  # whoever opens it will be told
    return facts if real == read else {**facts, "parts": sorted({*facts["parts"], *real.split("/")}), "inside": False}


def real_path_facts(facts: Facts, workspace: Path, *, follows: bool = True) -> Facts | None:
    """The facts of where the path really leads, when a link leads elsewhere; None when it is what it says.

    `follows`: also a link at its very end, as everything does but deleting, which deletes the link.
    """
    if not facts.get("inside"):
        return None
    folder, name = (facts["path"], "") if follows else os.path.split(facts["path"])
    try:
        if not _has_link(str(workspace), folder):
            return None
        root = os.path.realpath(workspace)
        real = os.path.join(os.path.realpath(os.path.join(root, folder)), name)
    except (OSError, ValueError):
        return None  # whoever opens it will be told
    led = path_facts(real, Path(root))
    return None if led["path"] == facts["path"] else {**facts, **led}


def _has_link(root: str, path: str) -> bool:
    """Whether a link is anywhere on `path`, which leads down from `root`. Where none is, it leads where it says, wherever the root is."""
    here = root
    for part in path.split("/"):
        here = f"{here}/{part}"
        try:
            if stat.S_ISLNK(os.lstat(here).st_mode):
                return True
        except OSError:
            return False  # nothing is there, so nothing below it is
    return False


def url_facts(value: Any, _workspace: Path) -> Facts:
    """Without user, password, query and fragment: they hold secrets and decide nothing."""
    try:
        parts = urlsplit(str(value).strip())
        scheme, host, port = parts.scheme.lower(), parts.hostname or "", _port(parts)
    except ValueError:
        return {"url": "", "scheme": "", "host": "", "address": "unknown"}
    host = plain_host(host)
    facts: Facts = {"scheme": scheme, "host": host}
    if port is not None:
        facts["port"] = port
    shown = f"[{host}]" if ":" in host else host
    place = shown if port in (None, _PORTS.get(scheme)) else f"{shown}:{port}"
    facts["url"] = f"{scheme}://{place}{parts.path or '/'}"[:LONGEST_TEXT]
    kind = address_kind(host)
    if kind is not None:
        facts["address"] = kind
    return facts


def plain_host(host: str) -> str:
    """One spelling for one host: lower case, without the last dot, in ASCII; an address as its usual numbers."""
    host = host.rstrip(".").lower()
    with contextlib.suppress(UnicodeError):
        host = host.encode("idna").decode().rstrip(".") if not host.isascii() else host  # other scripts have dots of their own
    if host and host[0].isdigit():
        try:
            return socket.inet_ntoa(socket.inet_aton(host))  # also 127.1, 0x7f000001 and 2130706433, as the resolver reads them
        except (OSError, UnicodeError):
            return host
    return host


def address_kind(host: str) -> str | None:
    """Of an address in numbers, where it leads, in the words of the worker's own check; None for a name, which only that one looks up."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return "loopback" if host == "localhost" or host.endswith(".localhost") else None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if str(address) in _METADATA:
        return "metadata"
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link_local"
    if address.is_multicast or address.is_unspecified or address.is_reserved:
        return "reserved"
    return "public" if address.is_global else "private"


def command_facts(value: Any, _workspace: Path) -> Facts:
    text = shlex.join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    return {"command": text[:LONGEST_TEXT], "program": os.path.basename(words[0]) if words else ""}


def _language_facts(value: Any, _workspace: Path) -> Facts:
    return {"language": plain_name(str(value))[:100]}  # a rule on shell means bash as well


_TAKEN_APART: dict[str, Callable[[Any, Path], Facts]] = {
    Fact.PATH: path_facts,
    Fact.URL: url_facts,
    Fact.COMMAND: command_facts,
    Fact.LANGUAGE: _language_facts,
}


def _port(parts: SplitResult) -> int | None:
    return parts.port or _PORTS.get(parts.scheme.lower())


def _is_telling(name: str, value: Any, spec: AgentSpec) -> bool:
    """Numbers, yes or no, and words of a fixed list; free text is the work itself, no fact about it."""
    if isinstance(value, bool):
        return True
    if isinstance(value, int):
        return -_LARGEST <= value <= _LARGEST
    if not isinstance(value, str) or len(value) > 100:
        return False
    return name == "method" or is_listed(spec.parameters_schema.get("properties", {}).get(name, {}))


def is_listed(schema: Mapping[str, Any]) -> bool:
    """Whether a parameter takes one of a fixed list of words."""
    return "enum" in schema or "const" in schema or any(is_listed(one) for one in schema.get("anyOf", ()) if isinstance(one, Mapping))


def _simple(value: Any) -> Any:
    if isinstance(value, bool) or (isinstance(value, int) and -_LARGEST <= value <= _LARGEST):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [str(one)[:LONGEST_TEXT] for one in value][:1000]
    return str(value)[:LONGEST_TEXT]


_AT_ONCE = 200
_STRICTNESS = {Verdict.ALLOW: 0, Verdict.ASK: 1, Verdict.DENY: 2}


class Principals(NamedTuple):
    caller: str
    """Who asks for this."""
    on_behalf: str
    """Who asked for the whole tree."""


def on_behalf_of(caller_info: CallerInfo | None) -> str:
    return ROOT_CALLER if caller_info is None else caller_info.principal


def asked_for(
    spec: AgentSpec,
    parameters: Mapping[str, Any],
    lineage: Lineage,
    asks: Principals,
    workspace: Path,
    timeout_seconds: float,
    left: tuple[int | None, float | None],
) -> list[PolicyRequest]:
    """What a caller asks for by delegating; of each thing that it acts on, one. `left`: tokens and money."""
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


def asked_by(work: "Work", action: str, facts: Mapping[str, Any]) -> list[PolicyRequest]:
    """What an agent that runs asks for, in its own name, at its own depth; of each thing that it names, one."""
    lineage, spec = work.delegation.lineage, work.agent.spec
    said = dict(facts)
    effects = said.pop("effects", None)  # what the action does, where that is not what the agent does in general
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
        )
        for one in facts_said(said, work.root if work.own_workspace is None else work.own_workspace.folder)
    ]


def effects_of(spec: AgentSpec) -> tuple[str, ...]:
    return _in_words(tuple(spec.effects))  # whoever carries agents in its own way may declare a list


@lru_cache(maxsize=64)
def _in_words(effects: tuple[Effect, ...]) -> tuple[str, ...]:
    return tuple(map(str, effects))


def judged(policy: Policy, asked: PolicyRequest, workspace: Path) -> Decision:
    """The decision on the path as it is named, and on where it leads: the stricter of the two holds."""
    decision = policy.decide(asked)
    follows = asked.effects != (Effect.DELETE,)
    led = real_path_facts(dict(asked.facts), workspace, follows=follows) if "path" in asked.facts else None
    if led is None or decision.verdict is Verdict.DENY:
        return decision
    other = policy.decide(replace(asked, facts=led))
    return other if _STRICTNESS[other.verdict] > _STRICTNESS[decision.verdict] else decision


def judged_all(policy: Policy, asked: Sequence[PolicyRequest], workspace: Path) -> tuple[PolicyRequest, Decision]:
    """The strictest decision on any of them, and what it is about."""
    about, strictest = asked[0], judged(policy, asked[0], workspace)
    for one in asked[1:]:
        if strictest.verdict is Verdict.DENY:
            break
        decision = judged(policy, one, workspace)
        if _STRICTNESS[decision.verdict] > _STRICTNESS[strictest.verdict]:
            about, strictest = one, decision
    return about, strictest


def pending_again(submission: Submission, caller: Caller | None, deps: RuntimeDeps) -> PendingApproval | None:
    """A delegation that is run again after a crash: the rules may have changed, and a yes that was waited for was never given."""
    assert submission.agent is not None
    delegation = submission.delegation
    workspace = deps.root if caller is None else caller.workspace
    on_behalf = on_behalf_of(delegation.caller_info)
    asks = Principals(on_behalf if caller is None else caller.delegation.agent, on_behalf)
    left = submission.budget.spendable()
    seconds = delegation.deadline.timeout_seconds
    asked = asked_for(submission.agent.spec, delegation.parameters, delegation.lineage, asks, workspace, seconds, left)
    about, decision = judged_all(deps.policy, asked, workspace)
    return None if decision.verdict is Verdict.ALLOW else PendingApproval(asked=about, decision=decision)


async def permit(work: "Work", deps: RuntimeDeps, action: str, facts: Mapping[str, Any]) -> None:
    """Raises `Refused` (POLICY_DENIED) unless the policy, or the person it says to ask, allows it."""
    workspace = work.root if work.own_workspace is None else work.own_workspace.folder
    asked, decision = judged_all(deps.policy, asked_by(work, action, facts), workspace)
    if decision.verdict is Verdict.ASK:
        no = await approved(work, deps, asked, decision)
        if no is not None:
            raise no
    elif decision.verdict is Verdict.DENY:
        raise refusal(asked, decision)


async def permitted(work: "Work", deps: RuntimeDeps, paths: Sequence[str]) -> list[str]:
    """Those of many paths that this agent may do its operation on, for one that walks a tree and follows no link."""
    if not all(isinstance(path, str) for path in paths):
        raise Misused("Paths are texts.")
    allowed: list[str] = []
    (alike,) = asked_by(work, "", {})
    workspace = work.root if work.own_workspace is None else work.own_workspace.folder
    for start in range(0, len(paths), _AT_ONCE):
        some = paths[start : start + _AT_ONCE]
        says = deps.policy.filter_allowed([replace(alike, facts=path_facts(path, workspace)) for path in some])
        allowed += [path for path, is_allowed in zip(some, says, strict=True) if is_allowed]
        await asyncio.sleep(0)  # others have their turn
    return allowed


def refusal(asked: PolicyRequest, decision: Decision) -> Refused:
    return refused(decision, f"The policy does not allow {asked.action}.")


NOBODY = "nobody could be asked here"
LATE_SECONDS = 0.25
"""How long an approver may take to notice that its time is up."""


async def admitted(work: "Work", pending: PendingApproval) -> Return | None:
    """None when the person said yes; else the refusal that is the delegation's return: nothing ran."""
    deps = work.deps
    asked = replace(pending.asked, session_id=work.delegation.session_id, root_id=work.delegation.lineage.root_id)
    is_asked = pending.decision.verdict is Verdict.ASK
    no = await approved(work, deps, asked, pending.decision) if is_asked else refused(pending.decision, "The policy does not allow it.")
    if no is None:
        return None
    walk = " → ".join(work.delegation.lineage.path)
    error = ErrorInfo(
        type="permission", message=f"{no.message} ({walk})", code="POLICY_DENIED", recoverable=False, recommendation=no.advice
    )
    return replace(reply.refused_return(work.delegation, error), warnings=work.warnings)


async def approved(work: "Work", deps: RuntimeDeps, asked: PolicyRequest, decision: Decision) -> Refused | None:
    """None for yes; else why not."""
    seconds = min(deps.approval_seconds, max(0.0, work.remaining()))
    if deps.approver is None:
        deps.policy.settled(asked, decision, Verdict.DENY, NOBODY)
        return _no(decision, NOBODY, "Run it at a terminal (`remit delegate`), or change the rule that asks in .remit/policy.cedar.")
    work.notice(f"Waiting for a person's approval: {decision.question or decision.because}")
    try:
        async with asyncio.timeout(seconds + LATE_SECONDS):
            said = await deps.approver.approve(asked, decision, seconds)
    except TimeoutError:
        said = (False, f"nobody answered within {seconds:g} s")
    except asyncio.CancelledError:
        deps.policy.settled(asked, decision, Verdict.DENY, "it was stopped while it waited")
        raise
    is_yes, by = said
    deps.policy.settled(asked, decision, Verdict.ALLOW if is_yes else Verdict.DENY, by)
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
