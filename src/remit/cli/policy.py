"""`remit policy` and `remit audit`: the rules of the project, and the log of their decisions."""

import difflib
from collections import Counter, deque
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remit.cli.arguments import pairs
from remit.cli.exits import Exit
from remit.cli.project import Project, find_session
from remit.cli.render import console, cut, harmless, say, say_aside, table
from remit.core.delegation import ROOT_CALLER
from remit.core.errors import Misused
from remit.core.policy import Effect, PolicyRequest, Verdict
from remit.system.liveness import below

if TYPE_CHECKING:
    from remit.policy.rules import Rules


_STRICTNESS = ("allow", "ask", "deny")
_ALIKE = 2
"""Similar decisions shown per delegation: a search asks for each file it opens."""
COLOURS = {"allow": "green", "deny": "red", "ask": "yellow"}


def _rules(project: Project, *, in_force: bool = True) -> "Rules":
    """The rules in force, or those of the project's file, approved or not. Raises their faults."""
    from remit.policy.rules import project_file

    return _usable(project_file(project.folder, project.trust if in_force else None).read())


def _usable(rules: "Rules") -> "Rules":
    if rules.fault is not None:
        raise rules.fault
    return rules


def policy(
    project: Project,
    schema: Annotated[bool, typer.Option("--schema", help="The actions and facts that rules may name.")] = False,
) -> Exit:
    """Show the rules in force; `remit policy check`, `explain` and `init` check, explain and create them."""
    if schema:
        from remit.policy.rule_check import known_actions, known_facts, schema_text

        specs = project.directory.specs()
        actions, facts = known_actions(specs), known_facts(specs)
        text = schema_text(actions, facts)
        return project.answer({"actions": actions, "facts": facts}, lambda: print(harmless(text), end="", flush=True))
    rules, mode = _rules(project), project.settings.policy_mode

    def shown() -> None:
        print(harmless(rules.text), end="" if rules.text.endswith("\n") else "\n", flush=True)
        say_aside(f"Mode {mode}. These are the rules of {rules.name}.")

    return project.answer({"mode": mode, "source": rules.name, "sha256": rules.sha256, "text": rules.text}, shown)


def init(project: Project) -> Exit:
    """Write the default rules to .remit/policy.cedar; never overwrites."""
    from remit.policy.rules import FILE, default_text
    from remit.system.files import make_folder
    from remit.system.trust import create_approved

    make_folder(project.folder)
    path = project.folder / FILE
    try:
        create_approved(project.root, path, default_text().encode())
    except FileExistsError:
        raise Misused(f"{path} exists already.", advice="Edit it, then run `remit policy check`.") from None
    return project.answer(
        {"written": str(path)}, f"Wrote {path}. These rules now replace the default: edit them, then run `remit policy check`."
    )


def check(
    project: Project,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="Default: the project's.", show_default=False)] = None,
) -> Exit:
    """Find mistakes in the rules: exit 0 or 1."""
    from remit.policy.rule_check import check_rules
    from remit.policy.rules import FileSource

    rules = _rules(project, in_force=False) if file is None else _usable(FileSource(file, str(file), may_be_missing=False).read())
    problems = check_rules(rules.text, project.directory.specs())
    is_right = not any(problem.is_error for problem in problems)
    listed = [{"line": one.line, "error": one.is_error, "message": one.what} for one in problems]
    lines = [*(f"{rules.name}, {problem}" for problem in problems), *([f"{rules.name} is correct."] if is_right else [])]
    document = {"valid": is_right, "source": rules.name, "problems": listed}
    return project.answer(document, "\n".join(lines), Exit.OK if is_right else Exit.FAILED)


def explain(
    project: Project,
    given: Annotated[
        list[str] | None,
        typer.Argument(metavar="SESSION|NAME=VALUE", help="A session; or with --for the facts.", show_default=False),
    ] = None,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="ACTION", help="Explain what would be decided on this action.", show_default=False)
    ] = None,
    caller: Annotated[str, typer.Option(metavar="AGENT", help="With --for: who asks.")] = "orchestrator",
    depth: Annotated[int, typer.Option(metavar="N", min=1, help="With --for: at which depth.")] = 1,
) -> Exit:
    """Explain from the audit log which rule decided, for a delegation and everything below it; with --for what would be decided."""
    words = given or []
    if for_ is not None:
        return _would(project, for_, words, caller, depth)
    if len(words) != 1:
        raise Misused("Explain what?", advice="Name a session (`remit policy explain last`), or --for ACTION NAME=VALUE…")
    return _explain(project, words[0])


def _would(project: Project, action: str, words: list[str], caller: str, depth: int) -> Exit:
    """Print the decision of the rules; nothing is logged."""
    from remit.policy.engine import PolicyEvaluator, explain_decision

    rules = _rules(project)
    judge = PolicyEvaluator(rules.text)
    judged = [(one, judge.judge(one)) for one in _asked(project, action, words, caller, depth)]
    asked, outcome = max(judged, key=lambda pair: _STRICTNESS.index(pair[1].verdict))
    because, advice = ("", "") if outcome.verdict is Verdict.ALLOW else explain_decision(asked, outcome, outcome.fault, rules.name)
    document: dict[str, Any] = {
        "verdict": str(outcome.verdict),
        "rules": [rule.name for rule in outcome.rules],
        "because": because,
        "advice": advice,
    }
    document |= {"caller": caller, "action": asked.action, "facts": dict(asked.facts), "source": rules.name}

    def shown() -> None:
        _note_unknown(project, asked.action)
        say(f"{outcome.verdict}: {caller} → {asked.action}" + "".join(f" {name}={value}" for name, value in asked.facts.items()))
        places = [f"{'permit' if rule.is_permit else 'forbid'} {rule.name} ({rules.name}, line {rule.line})" for rule in outcome.rules]
        for line in (because, advice, *places):
            if line:
                say(f"  {line}")

    return project.answer(document, shown)


def _note_unknown(project: Project, action: str) -> None:
    """Warn about an unknown name: the answer would be misleading."""
    from remit.policy.rule_check import known_actions
    from remit.policy.rules import action_id

    actions = known_actions(project.directory.specs())
    if action_id(action) in actions:
        return
    close = difflib.get_close_matches(action, list(actions), n=1, cutoff=0.75)
    meant = f" Did you mean {close[0]}?" if close else ""
    say_aside(f"Note: there is no agent {action!r} here; only an agent can ask for it, with ctx.permit.{meant}")


def _asked(project: Project, action: str, words: list[str], caller: str, depth: int) -> list[PolicyRequest]:
    """One request for each named resource and each link target, as the runtime would ask."""
    from remit.policy.engine import kind_of_principal
    from remit.policy.rules import CALLER
    from remit.runtime.deps import sends_data
    from remit.runtime.policy_facts import as_declared, facts_of, real_path_facts, reported_facts

    known = project.directory.find(action)
    given: dict[str, Any] = pairs(words, known.spec.parameters_schema if known else None)
    effects = given.pop("effects", ())
    on_behalf = caller if kind_of_principal(caller) == CALLER else str(given.pop("on_behalf", ROOT_CALLER))
    read: dict[str, Any] = {name: given.pop(name, False) is True for name in ("has_read_files", "has_read_untrusted")}
    met = {name: given.pop(name, False) is True for name in ("known_url", "approved_host")} | {
        "sends_data": sends_data(given if known is None else as_declared(known.spec, given))
    }
    if known is None:
        facts = reported_facts(given, project.root)
        effects = tuple(map(str, effects if isinstance(effects, list | tuple) else [effects]))
    else:
        stated = {name: value for name, value in given.items() if name not in known.spec.parameters_schema.get("properties", {})}
        facts = [one | reported_facts(stated, project.root)[0] for one in facts_of(known.spec, given, project.root)]
        effects = tuple(map(str, known.spec.effects))
    facts = [one | met if "url" in one else one for one in facts]
    led = [real_path_facts(one, project.root, follows=effects != (Effect.DELETE,)) for one in facts if "path" in one]
    common: dict[str, Any] = {"caller": caller, "action": action, "depth": depth, "path": (on_behalf,), "effects": effects}
    return [
        PolicyRequest(**common, **read, facts=one, is_delegation=known is not None, on_behalf=on_behalf)
        for one in (*facts, *(one for one in led if one is not None))
    ]


def _explain(project: Project, session: str) -> Exit:
    from remit.policy.audit import entries

    with project.store() as store:
        root = find_session(store, session)
        agents = {one.session_id: one.agent for one in below(store.tree(root.root_id), root.session_id) or [root]}
    found = [entry for entry in entries(project.folder) if not agents.keys().isdisjoint(entry.get("sessions", ()))]
    if project.as_json or not found:
        none = f"The audit log has no line about {root.session_id}: it was refused before the policy was asked, or the policy was disabled."
        return project.answer({"session": root.session_id, "entries": found}, none, Exit.OK if found else Exit.FAILED)
    seen: Counter[tuple[str, ...]] = Counter()
    for entry in found:
        about = next(one for one in entry["sessions"] if one in agents)
        by, verdict = rules_of(entry) or "no rule at all", verdict_of(entry)
        if verdict == str(Verdict.ALLOW):
            alike = (about, verdict, str(entry.get("action")), who_of(entry), by)
            seen[alike] += 1
            if seen[alike] > _ALIKE:
                continue
        say(f"{about} {verdict}: {who_of(entry)} → {what_of(entry)}, by {by} (audit line {entry['number']})")
        if entry.get("because") and entry.get("event") == "decided":
            say(f"    {entry['because']}")
    if left := sum(max(0, number - _ALIKE) for number in seen.values()):
        say_aside(f"{left} more were allowed, each like those shown of its delegation: --json and `remit audit` show all.")
    return Exit.OK


# ---- the audit log


def audit(
    project: Project,
    removed: Annotated[str | None, typer.Argument(hidden=True, metavar="")] = None,
    agent: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only requests by or for this agent, or by token:NAME.", show_default=False),
    ] = None,
    verdict: Annotated[
        str | None, typer.Option(help="Only allow, ask or deny; `strict`: what the strict mode would refuse.", show_default=False)
    ] = None,
    session: Annotated[str | None, typer.Option(metavar="SESSION", help="Only about this delegation.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most this many, the latest.")] = 50,
) -> Exit:
    """List the decisions of the policy."""
    from remit.policy.audit import entries

    if removed is not None:
        advice = "Copy .remit/audit*.jsonl elsewhere if it must be proof against its own user. `remit audit --help` lists the filters."
        raise Misused(f"`remit audit {removed}` does not exist: the lines of the log are not chained.", advice=advice)
    if verdict not in (None, "allow", "ask", "deny", "strict"):
        raise Misused(f"Unknown verdict {verdict!r}.", advice="Use allow, ask, deny or strict.")
    found = deque((entry for entry in entries(project.folder) if _matches(entry, agent, verdict, session)), maxlen=limit)
    if project.as_json or not found:
        none = "No entry of the audit log matches." if project.folder.exists() else "Nothing has been decided here yet."
        return project.answer({"entries": list(found)}, none)
    shown = table("no.", "at", "verdict", "who", "what", "rule", shrinking=("what", "rule"))
    for entry in found:
        said = verdict_of(entry)
        at = _clock(entry)
        shown.add_row(str(entry["number"]), at, cut(said, COLOURS.get(said, "")), who_of(entry), cut(what_of(entry)), cut(rules_of(entry)))
    console().print(shown)
    return Exit.OK


def _matches(entry: dict[str, Any], agent: str | None, verdict: str | None, session: str | None) -> bool:
    if agent is not None and agent == entry.get("principal"):
        return verdict is None and session is None
    if entry.get("event") not in ("decided", "asked"):
        return agent is None and verdict is None and session is None
    action = str(entry.get("action"))
    if agent is not None and agent not in (entry.get("caller"), entry.get("on_behalf"), action, action.partition(".")[0]):
        return False
    if verdict is not None and ("strict" not in entry if verdict == "strict" else entry.get("verdict") != verdict):
        return False
    sessions = [one for one in entry.get("sessions", ()) if isinstance(one, str)]
    return session is None or any(one.startswith(session) or one.endswith(session) for one in sessions)


def verdict_of(entry: dict[str, Any]) -> str:
    if entry.get("event") not in ("decided", "asked"):
        return str(entry.get("event"))
    strict = f" (strict: {entry['strict']})" if "strict" in entry else ""
    return f"{entry.get('verdict')}{strict}"


def who_of(entry: dict[str, Any]) -> str:
    """The caller, and the API principal on whose behalf it acted."""
    who = str(entry.get("caller") or entry.get("principal") or "")
    return f"{who} for {entry['on_behalf']}" if "on_behalf" in entry else who


def what_of(entry: dict[str, Any]) -> str:
    """The action and its resource, with the number of delegations it was decided for."""
    event, facts = entry.get("event"), entry.get("facts")
    if event == "rules":
        fault = f", which cannot be used: {entry['fault']}" if "fault" in entry else ""
        return f"{entry.get('mode')}, {entry.get('source')}{fault}"
    if event in ("turned_away", "token_made", "token_revoked"):
        where = [f"{entry[name]}" for name in ("door", "peer", "token_id", "by") if entry.get(name)]
        more = [f"and {entry['more']} more before"] if "more" in entry else []
        return ", ".join([*([str(entry["because"])] if "because" in entry else []), *where, *more])
    if event not in ("decided", "asked"):
        return ", ".join(f"{name} {entry[name]}" for name in ("owner", "session") if name in entry)
    facts = facts if isinstance(facts, dict) else {}
    on = next((f" {facts[name]}" for name in ("path", "url", "host", "command", "language") if facts.get(name)), "")
    times = len(entry.get("sessions", ()))
    said = f", {entry['by']}" if "by" in entry else ""
    return f"{entry.get('action')}{on}{f' (×{times})' if times > 1 else ''}{said}"


def rules_of(entry: dict[str, Any]) -> str:
    rules = entry.get("rules")
    return ", ".join(map(str, rules)) if isinstance(rules, list) else ""


def _clock(entry: dict[str, Any]) -> str:
    try:
        return datetime.fromisoformat(str(entry.get("at"))).astimezone().strftime("%m-%d %H:%M:%S")
    except ValueError:
        return "?"
