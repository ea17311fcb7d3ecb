"""`remit policy` and `remit audit`: the rules of the project, and the log of their decisions."""

import difflib
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remit.cli.arguments import Json, Root, pairs
from remit.cli.exits import Exit
from remit.cli.project import find_root, find_session, need_record, open_directory, open_record, project_folder
from remit.cli.render import console, count, cut, say, say_aside, say_json, table
from remit.core.delegation import ROOT_CALLER
from remit.core.errors import Misused
from remit.core.policy import Effect, PolicyRequest, Verdict
from remit.core.ports import Store
from remit.core.record import HistoryQuery, Record
from remit.core.states import State

if TYPE_CHECKING:
    from remit.policy.audit import AuditReport
    from remit.policy.rules import Rule


ACTIONS = ("show", "check", "explain", "init")
_STRICTNESS = ("allow", "ask", "deny")
_ALIKE = 2
"""How many are shown that one delegation was allowed by the same rule: a search asks for each file it looks into."""


def policy(
    action: Annotated[
        str, typer.Argument(metavar="[show|check|explain|init]", help="What to do; `show` prints the rules that hold.", show_default=False)
    ] = "show",
    given: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE|SESSION|NAME=VALUE]...", help="check takes a file, explain a session.", show_default=False),
    ] = None,
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="ACTION", help="With explain: what would be decided on this, with these facts.", show_default=False),
    ] = None,
    caller: Annotated[str, typer.Option(metavar="AGENT", help="With --for: who asks.")] = "orchestrator",
    depth: Annotated[int, typer.Option(metavar="N", min=1, help="With --for: at which depth.")] = 1,
    schema: Annotated[bool, typer.Option("--schema", help="With show: the actions and facts that rules may name.")] = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Show the rules that hold, check them, or explain which one decided."""
    folder, words = find_root(root), given or []
    if action == "show" and not words:
        return _schema(folder, as_json=as_json) if schema else _show(folder, as_json=as_json)
    if action == "check" and len(words) <= 1:
        return _check(folder, words, as_json=as_json)
    if action == "init" and not words:
        return _init(folder, as_json=as_json)
    if action == "explain" and for_ is not None:
        return _would(folder, for_, words, caller, depth, as_json=as_json)
    if action == "explain" and len(words) == 1:
        return _explain(folder, words[0], as_json=as_json)
    if action == "explain":
        raise Misused("Explain what?", advice="Name a session (`remit policy explain last`), or --for ACTION NAME=VALUE…")
    known = " or ".join(f"`remit policy {one}`" for one in ACTIONS)
    raise Misused(f"Unknown: remit policy {' '.join([action, *words])}.", advice=f"Use {known}.")


def _show(folder: Path, *, as_json: bool) -> Exit:
    from remit.policy.rules import project_file
    from remit.system.settings_files import load_settings

    rules, mode = project_file(project_folder(folder)).read(), load_settings(folder).policy_mode
    if rules.fault is not None:
        raise rules.fault
    if as_json:
        say_json({"mode": mode, "source": rules.name, "sha256": rules.sha256, "text": rules.text})
        return Exit.OK
    print(rules.text, end="" if rules.text.endswith("\n") else "\n", flush=True)
    say_aside(f"Mode {mode}. These are the rules of {rules.name}.")
    return Exit.OK


def _schema(folder: Path, *, as_json: bool) -> Exit:
    from remit.policy.rule_check import known_actions, known_facts, schema_text

    specs = open_directory(folder).specs()
    actions, facts = known_actions(specs), known_facts(specs)
    if as_json:
        say_json({"actions": actions, "facts": facts})
    else:
        print(schema_text(actions, facts), end="", flush=True)
    return Exit.OK


def _init(folder: Path, *, as_json: bool) -> Exit:
    from remit.policy.rules import FILE, default_text
    from remit.system.files import make_folder

    home = project_folder(folder)
    make_folder(home)
    path = home / FILE
    try:
        with path.open("x", encoding="utf-8") as opened:
            opened.write(default_text())
    except FileExistsError:
        raise Misused(f"{path} is there already.", advice="Change it there; `remit policy check` tells whether it is right.") from None
    if as_json:
        say_json({"written": str(path)})
    else:
        say(f"Wrote {path}. From now on it alone holds: change it, then `remit policy check`.")
    return Exit.OK


def _check(folder: Path, words: list[str], *, as_json: bool) -> Exit:
    from remit.policy.rule_check import check_rules
    from remit.policy.rules import File, project_file

    source = File(Path(words[0]), words[0], may_be_missing=False) if words else project_file(project_folder(folder))
    rules = source.read()
    if rules.fault is not None:
        raise rules.fault
    problems = check_rules(rules.text, open_directory(folder).specs())
    is_right = not any(problem.is_error for problem in problems)
    if as_json:
        told = [{"line": one.line, "error": one.is_error, "message": one.what} for one in problems]
        say_json({"valid": is_right, "source": rules.name, "problems": told})
        return Exit.OK if is_right else Exit.FAILED
    for problem in problems:
        say(f"{rules.name}, {problem}")
    if is_right:
        say(f"{rules.name} is right.")
    return Exit.OK if is_right else Exit.FAILED


def _would(folder: Path, action: str, words: list[str], caller: str, depth: int, *, as_json: bool) -> Exit:
    """What would be decided: asked of the rules alone, nothing is logged."""
    from remit.policy.engine import PolicyEvaluator, explain_decision
    from remit.policy.rules import project_file

    rules = project_file(project_folder(folder)).read()
    if rules.fault is not None:
        raise rules.fault
    judge = PolicyEvaluator(rules.text)
    judged = [(one, judge.judge(one)) for one in _asked(folder, action, words, caller, depth)]
    asked, outcome = max(judged, key=lambda pair: _STRICTNESS.index(pair[1].verdict))
    because, advice = ("", "") if outcome.verdict is Verdict.ALLOW else explain_decision(asked, outcome, outcome.fault, rules.name)
    if as_json:
        told = {"verdict": str(outcome.verdict), "rules": [rule.name for rule in outcome.rules], "because": because, "advice": advice}
        say_json({**told, "caller": caller, "action": asked.action, "facts": dict(asked.facts), "source": rules.name})
        return Exit.OK
    _note_unknown(folder, asked.action)
    say(f"{outcome.verdict}: {caller} → {asked.action}" + "".join(f" {name}={value}" for name, value in asked.facts.items()))
    for line in (because, advice):
        if line:
            say(f"  {line}")
    for rule in outcome.rules:
        say(f"  {_place(rule, rules.name)}")
    return Exit.OK


def _note_unknown(folder: Path, action: str) -> None:
    """An answer about a name that was only misspelt would mislead."""

    from remit.policy.rule_check import known_actions
    from remit.policy.rules import action_id

    actions = known_actions(open_directory(folder).specs())
    if action_id(action) in actions:
        return
    close = difflib.get_close_matches(action, list(actions), n=1, cutoff=0.75)
    meant = f" Did you mean {close[0]}?" if close else ""
    say_aside(f"Note: there is no agent {action!r} here; it can only be something that an agent asks for by ctx.permit.{meant}")


def _asked(folder: Path, action: str, words: list[str], caller: str, depth: int) -> "list[PolicyRequest]":
    """Each thing that is named, and where it leads, as it would be asked."""
    from remit.policy.engine import kind_of_principal
    from remit.policy.rules import CALLER
    from remit.runtime.authorize import facts_of, facts_said, real_path_facts

    known = open_directory(folder).find(action)
    given: dict[str, Any] = pairs(words, known.spec.parameters_schema if known else None)
    effects = given.pop("effects", ())
    on_behalf = caller if kind_of_principal(caller) == CALLER else str(given.pop("on_behalf", ROOT_CALLER))
    if known is None:
        facts = facts_said(given, folder)
        effects = tuple(map(str, effects if isinstance(effects, list | tuple) else [effects]))
    else:
        stated = {name: value for name, value in given.items() if name not in known.spec.parameters_schema.get("properties", {})}
        facts = [one | facts_said(stated, folder)[0] for one in facts_of(known.spec, given, folder)]
        effects = tuple(map(str, known.spec.effects))
    led = [real_path_facts(one, folder, follows=effects != (Effect.DELETE,)) for one in facts if "path" in one]
    return [
        PolicyRequest(
            caller=caller,
            action=action,
            depth=depth,
            path=(on_behalf,),
            effects=effects,
            facts=one,
            is_delegation=known is not None,
            on_behalf=on_behalf,
        )
        for one in (*facts, *(one for one in led if one is not None))
    ]


def _place(rule: "Rule", source: str) -> str:
    return f"{'permit' if rule.is_permit else 'forbid'} {rule.name} ({source}, line {rule.line})"


def _explain(folder: Path, session: str, *, as_json: bool) -> Exit:
    from remit.policy.audit import entries
    from remit.runtime.liveness import below

    with open_record(folder) as record:
        store = need_record(record)
        root = find_session(store, session)
        meant, agents = root.session_id, {one.session_id: one.agent for one in below(store.tree(root.root_id), root.session_id) or [root]}
    found = [entry for entry in entries(project_folder(folder)) if not agents.keys().isdisjoint(entry.get("sessions", ()))]
    if as_json:
        say_json({"session": meant, "entries": found})
        return Exit.OK if found else Exit.FAILED
    if not found:
        say(f"The audit log has no line about {meant}: it was refused before the policy was asked, or the policy was disabled.")
        return Exit.FAILED
    seen: dict[tuple[str, ...], int] = {}
    for entry in found:
        about = next(one for one in entry["sessions"] if one in agents)
        by = rules_of(entry) or "no rule at all"
        alike = (about, verdict_of(entry), str(entry.get("action")), who_of(entry), by) if verdict_of(entry) == str(Verdict.ALLOW) else ()
        seen[alike] = seen.get(alike, 0) + 1
        if alike and seen[alike] > _ALIKE:
            continue
        say(f"{about} {verdict_of(entry)}: {who_of(entry)} → {what_of(entry)}, by {by} (audit line {entry['number']})")
        if entry.get("because") and entry.get("event") == "decided":
            say(f"    {entry['because']}")
    left = sum(max(0, count - _ALIKE) for alike, count in seen.items() if alike)
    if left:
        say_aside(
            f"{left} more were allowed on the way, each like those shown of its delegation: --json and `remit audit` show everything."
        )
    return Exit.OK


PAGE = 500
SHOWN_FINDINGS = 20


def audit(
    action: Annotated[
        str, typer.Argument(metavar="[verify]", help="`verify` checks the whole log; nothing lists decisions.", show_default=False)
    ] = "list",
    head: Annotated[
        str | None, typer.Option(metavar="HASH", help="With verify: a hash that you kept, which the log must lead to.", show_default=False)
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only what this agent, or token:NAME, asked for, or was asked for.", show_default=False),
    ] = None,
    verdict: Annotated[
        str | None, typer.Option(help="Only allow, ask or deny; `strict` is what strict would refuse.", show_default=False)
    ] = None,
    session: Annotated[str | None, typer.Option(metavar="SESSION", help="Only about this delegation.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most so many, the latest.")] = 50,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """List what the policy decided, or verify that the audit log is as it was written: exit 0 or 1."""
    folder = project_folder(find_root(root))
    if action == "verify":
        return _verify(folder, head, as_json=as_json)
    if action != "list" or head is not None:
        raise Misused(f"Unknown: remit audit {action}.", advice="Use `remit audit`, or `remit audit verify [--head HASH]`.")
    if verdict not in (None, "allow", "ask", "deny", "strict"):
        raise Misused(f"Unknown verdict {verdict!r}.", advice="Use allow, ask, deny or strict.")
    return _list(folder, _Wanted(agent, verdict, session), limit, as_json=as_json)


class _Wanted:
    def __init__(self, agent: str | None, verdict: str | None, session: str | None) -> None:
        self.agent, self.verdict, self.session = agent, verdict, session

    def fits(self, entry: dict[str, Any]) -> bool:
        if self.agent is not None and self.agent == entry.get("principal"):
            return self.verdict is None and self.session is None
        if entry.get("event") not in ("decided", "asked"):
            return self.agent is None and self.verdict is None and self.session is None
        if self.agent is not None and self.agent not in (
            entry.get("caller"),
            entry.get("on_behalf"),
            entry.get("action"),
            str(entry.get("action")).partition(".")[0],
        ):
            return False
        if self.verdict == "strict":
            return "strict" in entry
        if self.verdict is not None and entry.get("verdict") != self.verdict:
            return False
        return self.session is None or any(_is_meant(self.session, one) for one in entry.get("sessions", ()))


def _is_meant(session: str, one: Any) -> bool:
    return isinstance(one, str) and (one == session or one.endswith(session) or one.startswith(session))


def _list(folder: "Path", wanted: _Wanted, limit: int, *, as_json: bool) -> Exit:
    from remit.policy.audit import entries

    found = deque((entry for entry in entries(folder) if wanted.fits(entry)), maxlen=limit)
    if as_json:
        say_json({"entries": list(found)})
        return Exit.OK
    if not found:
        say("Nothing like that is in the audit log." if folder.exists() else "Nothing has been decided here yet.")
        return Exit.OK
    shown = table("no.", "at", "verdict", "who", "what", "rule", shrinking=("what", "rule"))
    for entry in found:
        verdict = verdict_of(entry)
        what = cut(what_of(entry))
        shown.add_row(
            str(entry["number"]), _clock(entry), cut(verdict, COLOURS.get(verdict, "")), who_of(entry), what, cut(rules_of(entry))
        )
    console().print(shown)
    return Exit.OK


COLOURS = {"allow": "green", "deny": "red", "ask": "yellow"}


def verdict_of(entry: dict[str, Any]) -> str:
    if entry.get("event") not in ("decided", "asked"):
        return str(entry.get("event"))
    strict = f" (strict: {entry['strict']})" if "strict" in entry else ""
    return f"{entry.get('verdict')}{strict}"


def who_of(entry: dict[str, Any]) -> str:
    """Who asked; on whose behalf, where somebody from outside asked for the whole tree."""
    who = str(entry.get("caller") or entry.get("principal") or "")
    return f"{who} for {entry['on_behalf']}" if "on_behalf" in entry else who


def what_of(entry: dict[str, Any]) -> str:
    """The action and what it was on, with how many delegations it was said of."""
    event, facts = entry.get("event"), entry.get("facts")
    if event == "rules":
        fault = f", which cannot be used: {entry['fault']}" if "fault" in entry else ""
        return f"{entry.get('mode')}, {entry.get('source')}{fault}"
    if event in ("turned_away", "token_made", "token_revoked"):
        where = [f"{entry[name]}" for name in ("door", "peer", "token_id", "by") if entry.get(name)]
        more = [f"and {entry['more']} more before"] if "more" in entry else []
        return ", ".join([*([str(entry["because"])] if "because" in entry else []), *where, *more])
    if event not in ("decided", "asked"):
        return ", ".join(f"{name} {entry[name]}" for name in ("owner", "session", "torn_bytes") if name in entry)
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


def _verify(folder: "Path", head: str | None, *, as_json: bool) -> Exit:
    from remit.policy.audit import check_log

    with open_record(folder.parent) as store:
        checked = check_log(folder, head)
        missing, older = _unlogged(store, checked)
    findings = [*map(str, checked.findings), *(f"{session} is on record, and no line of the log is about it" for session in missing)]
    if older:
        begins = "there is no log" if not checked.lines else "the log begins later"
        findings.append(f"{count(older, 'delegation')} on record, and {begins}: it was removed, or they ran before there was one")
    if as_json:
        told = {"valid": not findings, "findings": findings, "lines": checked.lines, "torn": checked.torn, "head": checked.head}
        say_json({**told, "older_than_the_log": older})
        return Exit.OK if not findings else Exit.FAILED
    for finding in findings[:SHOWN_FINDINGS]:
        say(finding)
    if len(findings) > SHOWN_FINDINGS:
        say(f"… and {len(findings) - SHOWN_FINDINGS} more.")
    if not findings:
        say(f"The audit log is as it was written: {checked.lines} lines" + (f", {checked.torn} torn by a crash." if checked.torn else "."))
    if checked.head:
        say(f"head {checked.head}")
    if checked.head and head is None:
        say_aside("Keep the head elsewhere: `remit audit verify --head HASH` then also shows whether the log was cut off or written anew.")
    return Exit.OK if not findings else Exit.FAILED


def _unlogged(store: "Store | None", checked: "AuditReport") -> tuple[list[str], int]:
    """Delegations that ran since the log begins and are not in it; and how many are older than it."""
    if store is None:
        return [], 0
    since = datetime.fromisoformat(checked.first_at).timestamp() if checked.first_at else float("inf")
    missing, older = [], 0
    for record in _everything(store):
        if record.session_id in checked.sessions:
            continue
        if record.created_at < since - 1.0:
            older += record.state is not State.REFUSED
        elif record.owner not in checked.disabled_owners and (record.state is not State.REFUSED or _is_denied(record)):
            missing.append(record.session_id)
    return missing, older


def _is_denied(record: "Record") -> bool:
    """Refused by the policy, and not before it was asked."""
    return record.result is not None and any(error.code == "POLICY_DENIED" for error in record.result.errors)


def _everything(store: "Store") -> "Iterator[Record]":
    before: str | None = None
    while True:
        page = store.history(HistoryQuery(limit=PAGE, before_session=before))
        yield from page
        if len(page) < PAGE:
            return
        before = page[-1].session_id
