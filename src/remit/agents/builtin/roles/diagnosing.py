"""The built-in diagnostician: entries of the error ledger put into groups, each with what usually lies behind it and what to do.

By rule, from codes and counts: it reads no code and proves nothing. The entries come with the request, else from `.remit/errors.json`,
which it only reads.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from remit.agents.builtin.roles.answering import answered, put, read, shortly
from remit.agents.builtin.roles.causes import cause_of
from remit.agents.function import FunctionAgent, agent
from remit.flow.context import Context

LEDGER = ".remit/errors.json"
MOST_GROUPS = 50
MESSAGES_SHOWN = 5
NAME_LENGTH = 100
TRACE_LINES = 12
_OVER = ("resolved", "wont_fix")
Entry = Mapping[str, Any]


@agent("error-diagnostics-agent", effects=("read", "write"), acts_on={"write_to": "path"}, requires_artifacts=True)
async def diagnostician(
    ctx: Context,
    task: str = "Diagnose the errors of this project.",
    errors: Annotated[list[dict[str, Any]] | None, Field(description="Entries of the ledger; those that are open unless given.")] = None,
    type: Annotated[str, Field(description="Only errors of this type.")] = "",
    write_to: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Group the errors of the ledger, and say of each group how often, since when, why probably, and what to do."""
    entries = errors if errors is not None else _open(await read(ctx, LEDGER))
    groups = groups_of([entry for entry in entries if not type or entry.get("type") == type])
    path = await put(ctx, report_of(groups, len(entries)), write_to, "diagnosis.md", "report", "The errors, grouped and explained by rule.")
    data = {"groups": groups, "report": path}
    if not groups:
        return answered("completed", "The ledger holds no open error that fits. There is nothing to diagnose.", data=data)
    first = groups[0]
    seen = sum(group["count"] for group in groups)
    which = f"{first['code'] or first['type']} of {first['origin']}" if first["origin"] else first["code"] or first["type"]
    words = f"{_many(len(groups), 'group')} of errors, seen {_many(seen, 'time')} in all."
    words += f" Most pressing: {which}, {_many(first['count'], 'time')}."
    return answered("completed", f"{words} Causes are named by rule from the codes.", data=data, next_steps=first["what_to_do"])


DIAGNOSTICIAN: FunctionAgent = diagnostician


def groups_of(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Of one type, code and origin; the gravest and most frequent first."""
    found: dict[tuple[str, str, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        if isinstance(entry, Mapping):
            said = (str(entry.get("type") or "unknown"), _of(entry, "code"), _of(entry, "agent") or _of(entry, "command"))
            type_, code, origin = (shortly(one, NAME_LENGTH) for one in said)
            found[type_, code, origin].append(entry)
    groups = [_group(*key, members) for key, members in found.items()]
    return sorted(groups, key=lambda group: (group["severity"] != "high", -group["count"], group["key"]))[:MOST_GROUPS]


def _group(type_: str, code: str, origin: str, members: Sequence[Entry]) -> dict[str, Any]:
    cause, what_to_do = cause_of(code)
    newest = max(members, key=lambda entry: str(entry.get("last_seen") or ""))
    advised = _of(newest, "recommendation")
    return {
        "key": "/".join(filter(None, (type_, code, origin))),
        "type": type_,
        "code": code,
        "origin": origin,
        "severity": "high" if any(entry.get("severity", "high") == "high" for entry in members) else "medium",
        "count": sum(_count(entry) for entry in members),
        "first_seen": min((str(entry.get("first_seen") or entry.get("timestamp") or "") for entry in members), default=""),
        "last_seen": str(newest.get("last_seen") or newest.get("timestamp") or ""),
        "entries": [shortly(str(entry["id"]), NAME_LENGTH) for entry in members if entry.get("id")],
        "messages": list(dict.fromkeys(shortly(str(entry.get("message") or ""), 300) for entry in members))[:MESSAGES_SHOWN],
        "sessions": list(dict.fromkeys(filter(None, (_of(entry, "session_id") for entry in members))))[:MESSAGES_SHOWN],
        "tasks": sorted({number for entry in members if isinstance(number := _context(entry).get("task_number"), int)}),
        "trace": "\n".join(map(_seen, str(newest.get("stack_trace") or "").strip().splitlines()[-TRACE_LINES:])),
        "cause": cause,
        "what_to_do": f"{shortly(advised, 300)} {what_to_do}".strip() if advised and advised != what_to_do else what_to_do,
    }


def report_of(groups: Sequence[Mapping[str, Any]], looked_at: int) -> str:
    head = [
        "# Diagnosis of errors",
        "",
        f"{_many(looked_at, 'entry', 'entries')} of the ledger in {_many(len(groups), 'group')}. "
        "Made by rule from codes and counts: it says what usually lies behind an error, not what was found in the code.",
    ]
    return "\n\n".join(["\n".join(head), *map(_told, groups)]) + "\n"


def _told(group: Mapping[str, Any]) -> str:
    lines = [
        f"## {group['code'] or group['type']}{' of ' + group['origin'] if group['origin'] else ''}",
        "",
        *(f"> {message}" for message in group["messages"]),
        "",
        f"- **How often**: {_many(group['count'], 'time')}, severity {group['severity']}",
        f"- **Since**: {group['first_seen'] or 'unknown'}, last {group['last_seen'] or 'unknown'}",
        f"- **Usual cause**: {group['cause']}",
        f"- **What to do**: {group['what_to_do']}",
    ]
    lines += [f"- **Ledger**: {', '.join(group['entries'])}"] if group["entries"] else []
    lines += [f"- **Sessions**: {', '.join(group['sessions'])}"] if group["sessions"] else []
    lines += [f"- **Tasks**: {', '.join(map(str, group['tasks']))}"] if group["tasks"] else []
    if group["trace"]:
        lines += ["", *(f"    {line}" for line in group["trace"].splitlines())]
    return "\n".join(lines)


def _open(text: str) -> list[Entry]:
    """The entries that nobody has settled; a file that is no ledger holds none, and is its keeper's concern."""
    try:
        document = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return []
    entries = document.get("errors") if isinstance(document, dict) else None
    return [one for one in entries or [] if isinstance(one, Mapping) and one.get("fix_status") not in _OVER]


def _context(entry: Entry) -> Mapping[str, Any]:
    context = entry.get("context")
    return context if isinstance(context, Mapping) else {}


def _of(entry: Entry, name: str) -> str:
    value = _context(entry).get(name) or entry.get(name)
    return str(value) if value else ""


def _seen(line: str) -> str:
    """A line of a trace, indented as it was, without signs that a terminal would obey."""
    return "".join(sign if sign.isprintable() else " " for sign in line).rstrip()


def _count(entry: Entry) -> int:
    count = entry.get("recurrence_count")
    return count if isinstance(count, int) and count > 0 else 1


def _many(count: int, one: str, more: str = "") -> str:
    return f"{count:,} {one if count == 1 else more or one + 's'}"
