"""`remit policy` and `remit audit`: the rules of the project, and the log of their decisions."""

from collections import deque
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from remit.cli.arguments import Session
from remit.cli.exits import Exit
from remit.cli.project import Project, find_session
from remit.cli.render import harmless, moment, say_aside, say_table
from remit.core.errors import Misused
from remit.policy.audit import entries
from remit.policy.rule_check import check_rules, known_actions, known_facts, schema_text
from remit.policy.rules import FILE, FileSource, Rules, default_text, project_file
from remit.system.files import make_folder
from remit.system.liveness import below
from remit.system.trust import create_approved


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
    none = f"The audit log has no line about {root.session_id}: it was refused before the policy was asked, or the policy was disabled."
    rows = [_row(entry) for entry in found]
    lines = [f"{one['verdict']}: {one['who']} → {one['what']}, by {one['rule'] or 'no rule'}. {one['because']}" for one in rows]
    document = {"session": root.session_id, "entries": found}
    return project.answer(document, "\n".join(lines) or none, Exit.OK if found else Exit.FAILED)


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
    return project.answer({"entries": list(found)}, (lambda: _print(found)) if found else "No entry of the audit log matches.")


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


def _print(found: Iterable[dict[str, Any]]) -> None:
    say_table([_row(entry) for entry in found], shrinking=("what", "rule", "because"))


def _row(entry: dict[str, Any]) -> dict[str, str]:
    """An entry as a row. Entries that are not decisions (a token, new rules, a refused caller) have their fields as text."""
    who, on_behalf = entry.get("caller") or entry.get("principal") or "", entry.get("on_behalf")
    facts = found if isinstance(found := entry.get("facts"), dict) else {}
    on = next((f" {facts[name]}" for name in ("path", "url", "host", "command", "language") if facts.get(name)), "")
    other = [f"{name} {value}" for name, value in entry.items() if name not in ("number", "at", "event", "principal", "because", "sha256")]
    strict = f" (strict: {entry['strict']})" if "strict" in entry else ""
    is_decision = entry.get("event") in ("decided", "asked")
    rules = entry.get("rules")
    return {
        "no.": str(entry["number"]),
        "at": _local(str(entry.get("at"))),
        "verdict": f"{entry.get('verdict')}{strict}" if is_decision else str(entry.get("event")),
        "who": f"{who} for {on_behalf}" if on_behalf else str(who),
        "what": f"{entry.get('action')}{on}" if is_decision else ", ".join(other),
        "rule": ", ".join(map(str, rules)) if isinstance(rules, list) else "",
        "because": str(entry.get("because", "")),
    }


def _local(at: str) -> str:
    """Local time, like every listing; the log itself is in UTC."""
    try:
        return moment(datetime.fromisoformat(at).timestamp())
    except ValueError:
        return at
