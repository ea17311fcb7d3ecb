"""`remit policy`: the rules that hold, checked, explained, or written out to be changed. Runs nothing; writes only with `init`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from remit.core.policy import Asked
    from remit.policy.reading import Rule

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
    from remit.cli.project import find_root
    from remit.core.errors import Misused

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
    from remit.cli.output import say_aside, say_json
    from remit.cli.project import project_folder
    from remit.policy.source import project_file
    from remit.settings import load_settings

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
    from remit.cli.output import say_json
    from remit.cli.project import open_directory
    from remit.policy.checking import known_actions, known_facts, schema_text

    specs = open_directory(folder).specs()
    actions, facts = known_actions(specs), known_facts(specs)
    if as_json:
        say_json({"actions": actions, "facts": facts})
    else:
        print(schema_text(actions, facts), end="", flush=True)
    return Exit.OK


def _init(folder: Path, *, as_json: bool) -> Exit:
    from remit.cli.output import say, say_json
    from remit.cli.project import project_folder
    from remit.core.errors import Misused
    from remit.policy.source import FILE, default_text
    from remit.system.own_folder import make_folder

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
    from remit.cli.output import say, say_json
    from remit.cli.project import open_directory, project_folder
    from remit.policy.checking import check_rules
    from remit.policy.source import File, project_file

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
    from remit.cli.output import say, say_json
    from remit.cli.project import project_folder
    from remit.core.policy import Verdict
    from remit.policy.judging import Judge
    from remit.policy.source import project_file
    from remit.policy.words import because_of

    rules = project_file(project_folder(folder)).read()
    if rules.fault is not None:
        raise rules.fault
    judge = Judge(rules.text)
    judged = [(one, judge.judge(one)) for one in _asked(folder, action, words, caller, depth)]
    asked, outcome = max(judged, key=lambda pair: _STRICTNESS.index(pair[1].verdict))
    because, advice = ("", "") if outcome.verdict is Verdict.ALLOW else because_of(asked, outcome, outcome.fault, rules.name)
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
    import difflib

    from remit.cli.output import say_aside
    from remit.cli.project import open_directory
    from remit.policy.checking import known_actions
    from remit.policy.judging import action_id

    actions = known_actions(open_directory(folder).specs())
    if action_id(action) in actions:
        return
    close = difflib.get_close_matches(action, list(actions), n=1, cutoff=0.75)
    meant = f" Did you mean {close[0]}?" if close else ""
    say_aside(f"Note: there is no agent {action!r} here; it can only be something that an agent asks for by ctx.permit.{meant}")


def _asked(folder: Path, action: str, words: list[str], caller: str, depth: int) -> "list[Asked]":
    """Each thing that is named, and where it leads, as it would be asked."""
    from remit.cli.project import open_directory
    from remit.cli.values import pairs
    from remit.core.lineage import ROOT_CALLER
    from remit.core.policy import Asked, Effect
    from remit.flow.facts import facts_of, facts_said, real_path_facts
    from remit.policy.judging import CALLER, kind_of_principal

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
        Asked(
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
    from remit.cli.audit import rules_of, verdict_of, what_of, who_of
    from remit.cli.output import say, say_aside, say_json
    from remit.cli.project import find_session, need_record, open_record, project_folder
    from remit.core.policy import Verdict
    from remit.engine.vitals import below
    from remit.policy.audit_reading import entries

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
