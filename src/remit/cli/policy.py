"""`remit policy` and `remit audit`: the rules of the project, and the log of their decisions."""

from collections import Counter, deque
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from remit.cli.arguments import Session
from remit.cli.exits import Exit
from remit.cli.project import Project, find_session
from remit.cli.render import console, cut, harmless, say, say_aside, table
from remit.core.errors import Misused
from remit.core.policy import Verdict
from remit.policy.audit import entries
from remit.policy.rule_check import check_rules, known_actions, known_facts, schema_text
from remit.policy.rules import FILE, FileSource, Rules, default_text, project_file
from remit.system.files import make_folder
from remit.system.liveness import below
from remit.system.trust import create_approved

_ALIKE = 2
"""Similar decisions shown per delegation: a search asks for each file it opens."""
COLOURS = {"allow": "green", "deny": "red", "ask": "yellow"}


def _rules(project: Project, *, in_force: bool = True) -> "Rules":
    """The rules in force, or those of the project's file, approved or not. Raises their faults."""
    return _usable(project_file(project.folder, project.trust if in_force else None).read())


def _usable(rules: "Rules") -> "Rules":
    if rules.fault is not None:
        raise rules.fault
    return rules


def policy(
    project: Project,
    schema: Annotated[bool, Option("--schema", help="The actions and facts that rules may name.")] = False,
) -> Exit:
    """Show the rules in force; `remit policy check`, `explain` and `init` check, explain and create them."""
    if schema:
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
    file: Annotated[Path | None, Argument(metavar="FILE", help="Default: the project's.")] = None,
) -> Exit:
    """Find mistakes in the rules: exit 0 or 1."""
    rules = _rules(project, in_force=False) if file is None else _usable(FileSource(file, str(file), may_be_missing=False).read())
    problems = check_rules(rules.text, project.directory.specs())
    is_right = not any(problem.is_error for problem in problems)
    listed = [{"line": one.line, "error": one.is_error, "message": one.what} for one in problems]
    lines = [*(f"{rules.name}, {problem}" for problem in problems), *([f"{rules.name} is correct."] if is_right else [])]
    document = {"valid": is_right, "source": rules.name, "problems": listed}
    return project.answer(document, "\n".join(lines), Exit.OK if is_right else Exit.FAILED)


def explain(project: Project, session: Session) -> Exit:
    """Explain from the audit log which rule decided, for a delegation and everything below it."""
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
    agent: Annotated[str | None, Option(metavar="NAME", help="Only requests by or for this agent, or by token:NAME.")] = None,
    verdict: Annotated[str | None, Option(help="Only allow, ask or deny; `strict`: what the strict mode would refuse.")] = None,
    session: Annotated[str | None, Option(metavar="SESSION", help="Only about this delegation.")] = None,
    limit: Annotated[int, Option(metavar="N", min=1, help="At most this many, the latest.")] = 50,
) -> Exit:
    """List the decisions of the policy."""
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
