"""`remit trust`: show what project files would run, send or weaken, and approve it; also the approval question before other commands."""

import contextlib
import difflib
import sys
import termios
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

from typer import Option

from remit.cli.approval import person_here
from remit.cli.exits import Exit
from remit.cli.render import count, harmless, one_line, say, say_aside
from remit.core.errors import Refused
from remit.system.trust import (
    CODE,
    OWNER,
    approve,
    approved_text,
    database_item,
    decline,
    forget,
    hash_of,
    load_trust,
    owner_item,
    summary_of,
)

if TYPE_CHECKING:
    from remit.cli.project import Project
    from remit.system.trust import ProjectTrust, TrustItem

GROUPS = {
    "agent": "Agents",
    "command": "Commands",
    "flow": "Flows",
    "instructions": "Instructions",
    "policy": "Policy",
    "model": "Models",
    "setting": "Settings",
    "tools": "Tools of MCP servers",
    "database": "Database",
}
DIFF_LINES = 200
"""Diff lines shown per changed item."""


def trust(
    project: "Project",
    yes: Annotated[bool, Option("--yes", help="Approve everything that is listed, without a question.")] = False,
    list_: Annotated[bool, Option("--list", help="List what needs approval, and the hash for REMIT_TRUST; approve nothing.")] = False,
    revoke: Annotated[bool, Option("--revoke", help="Withdraw every approval of this project.")] = False,
    owner: Annotated[bool, Option("--owner", help="Accept that another user owns, or every user can write, this project.")] = False,
    adopt: Annotated[
        bool, Option("--adopt", help="Use a database, tokens and workspaces that were not made here, and what is unfinished in them.")
    ] = False,
) -> Exit:
    """Approve what files of this project may run, send or weaken; content that changes later needs approval again."""
    if revoke:
        forget(project.root)
        return project.answer({"root": str(project.root), "approved": False}, "Nothing of this project is approved any more.")
    if owner or adopt:
        return _accept(project, owner=owner, adopt=adopt)
    found = load_trust(project.root, "")  # regardless of REMIT_TRUST
    if found.fault:
        say_aside(f"! {harmless(found.fault)}")
    is_sure = yes or project.is_trusted
    approves = bool(found.left_out) and not list_ and (is_sure or _is_confirmed(project, found))
    if approves:
        approve(project.root, found.left_out)
    if not list_ and (approves or found.is_complete):
        tools = _offered_tools(project)
        if not tools.is_complete and (is_sure or _is_confirmed(project, tools)):
            approve(project.root, tools.left_out)
            approves, found = True, tools._replace(left_out=(*found.left_out, *tools.left_out))

    def shown() -> None:
        if list_:
            _show(project, found, found.items)
        if not found.items and not found.left_out:
            say("Nothing in this project needs approval.")
        elif list_:
            say(f"Hash of all of it, for REMIT_TRUST: {hash_of(found.items)}")
        elif approves:
            say(f"Approved: {summary_of(found.left_out)} of this project.")
        else:
            say("Nothing was approved." if found.left_out else f"Everything is approved ({count(len(found.items), 'item')}).")

    is_complete = approves or found.is_complete
    items = [
        {"kind": one.kind, "name": one.name, "digest": one.digest, "effect": one.effect, "approved": approves or found.allows(one)}
        for one in found.items
    ]
    document = {"root": str(project.root), "approved": is_complete, "hash": hash_of(found.items), "items": items}
    return project.answer(document, shown, Exit.OK if is_complete or list_ else Exit.REFUSED)


def _offered_tools(project: "Project") -> "ProjectTrust":
    """Start approved MCP servers with unknown tools and return the resulting approvals."""
    found = load_trust(project.root, "")
    for name, fault in project.describe_servers(found).items():
        say_aside(harmless(f"! The tools of the MCP server {name} are not known: {fault.rstrip('.')}."))
    return load_trust(project.root, "")


def _accept(project: "Project", *, owner: bool, adopt: bool) -> Exit:
    """Accept properties of the whole project rather than of its files. The option names them, so there is no further question."""
    from remit.runtime.workspaces import adopt_workspaces
    from remit.server.tokens import Tokens

    items = [item for item in (owner_item(project.root) if owner else None, database_item(project.root) if adopt else None) if item]
    approve(project.root, items)
    is_adopted = adopt and Tokens(project.folder).adopt()
    if adopt:
        adopt_workspaces(project.root)
    words = [item.effect.partition(":")[0] for item in items if item.kind == OWNER]
    words += ["the database is used from now on, with what is unfinished in it"] if len(words) < len(items) else []
    words += ["its tokens are accepted"] if is_adopted else []
    document = {"root": str(project.root), "owner": bool(owner and items), "adopted": bool(adopt and (is_adopted or items))}
    return project.answer(document, f"Accepted: {'; '.join(words)}." if words else "There is nothing to accept.")


def _is_confirmed(project: "Project", found: "ProjectTrust") -> bool:
    """Show unapproved items and ask. Raises `Refused` without a terminal."""
    _show(project, found, found.left_out)
    if person_here() is None or project.as_json:
        raise Refused("Nothing was approved: there is no terminal to ask at.", code=CODE, advice="Approve all of it: remit trust --yes")
    return answer_to("Approve all of this? [y/N] ") in ("y", "yes")


def _show(project: "Project", found: "ProjectTrust", items: "Iterable[TrustItem]") -> None:
    """Print items by kind, with diffs of changed ones. Uses stderr if stdout carries the document."""
    put = say_aside if project.as_json else say
    put("Files of this project that can start programs, send data or weaken limits:")
    for kind, title in GROUPS.items():
        some = [item for item in items if item.kind == kind]
        if some:
            put(f"\n{title}")
        for item in some:
            mark = "approved" if found.allows(item) else "changed" if found.approved and item.name in found.approved else "not approved"
            put(harmless(f"  {one_line(item.name, 300)} ({mark})\n    {item.effect}"))
            for line in _difference(found, item):
                put(harmless(f"    {line}"))
    put("")


def _difference(found: "ProjectTrust", item: "TrustItem") -> Iterator[str]:
    """The diff against the approved content; empty if the item is new or unchanged."""
    before = (found.approved or {}).get(item.name)
    if before is None or before == item.digest:
        return
    text = approved_text(before)
    if text is None:
        yield "It changed since it was approved."
        return
    lines = list(difflib.unified_diff(text.splitlines(), item.text.splitlines(), "approved", "now", lineterm="", n=2))
    yield from lines[:DIFF_LINES] or ["A file that it names changed."]
    if len(lines) > DIFF_LINES:
        yield f"… and {len(lines) - DIFF_LINES} more lines."


def ask_for_approval(project: "Project", found: "ProjectTrust") -> "ProjectTrust":
    """Ask the person at the terminal once, in one line. A no is remembered until something changes."""
    if found.is_declined or project.as_json or person_here() is None:
        return found
    share = max(80, 700 // len(found.left_out))  # a long item must not hide the others
    effects = "; ".join(one_line(f"{item.name} {item.effect}", share) for item in found.left_out)
    question = one_line(f"This project needs approval of {summary_of(found.left_out)}: {effects}", 1000)
    while (answer := answer_to(f"{question}. Approve? [y]es, [d]etails, [N]o: ")) in ("d", "details"):
        _show(project, found, found.left_out)
    if answer not in ("y", "yes"):
        decline(project.root, found.left_out)
        return found
    approve(project.root, found.left_out)
    tools = _offered_tools(project)
    if not tools.is_complete:
        _show(project, tools, tools.left_out)
        if answer_to("Approve these tools? [y/N] ") in ("y", "yes"):
            approve(project.root, tools.left_out)
    return load_trust(project.root)


def answer_to(question: str) -> str:
    with contextlib.suppress(termios.error):  # keys typed before the question, or pasted with a command, do not count
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    sys.stderr.write(question)
    sys.stderr.flush()
    return sys.stdin.readline().strip().casefold()
