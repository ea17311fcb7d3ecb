"""`remit audit`: what the policy decided, the latest last; and whether the log is still as it was written. Reads only."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from remit.core.ports import Store
    from remit.core.record import Record
    from remit.policy.audit_reading import Checked

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
    from remit.cli.project import find_root, project_folder
    from remit.core.errors import Misused

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
    from collections import deque

    from remit.cli.output import console, say, say_json
    from remit.cli.tables import cut, table
    from remit.policy.audit_reading import entries

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
    from remit.cli.output import say, say_aside, say_json
    from remit.cli.project import open_record
    from remit.cli.words import count
    from remit.policy.audit_reading import check_log

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


def _unlogged(store: "Store | None", checked: "Checked") -> tuple[list[str], int]:
    """Delegations that ran since the log begins and are not in it; and how many are older than it."""
    from remit.core.states import State

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
    from remit.core.record import HistoryQuery

    before: str | None = None
    while True:
        page = store.history(HistoryQuery(limit=PAGE, before_session=before))
        yield from page
        if len(page) < PAGE:
            return
        before = page[-1].session_id
