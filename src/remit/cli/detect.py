"""`remit agents --detect`: which coding agents are installed, whether they are usable, and the lines for remit.toml. Changes nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remit.agents.coding.detect import Found
    from remit.agents.coding.known import Known


def detect_agents(root: Path, *, as_json: bool) -> None:
    import asyncio

    from remit.agents.coding.detect import detect, lines_for
    from remit.cli.extras import NO_MCP, has_mcp
    from remit.cli.output import say, say_json

    found, missing = asyncio.run(detect())
    is_git = any((folder / ".git").exists() for folder in (root, *root.parents))
    lines = {one.known.name: lines_for(one, is_git=is_git) for one in found}
    if as_json:
        say_json(
            {
                "found": [_document(one, lines[one.known.name]) for one in found],
                "missing": [{"name": one.name, "program": one.program, "install": one.install} for one in missing],
                "can_delegate": has_mcp(),
            }
        )
        return
    _print_found(found)
    _print_lines(found, lines)
    _print_missing(missing)
    if found and not has_mcp():
        say(f"\n{NO_MCP}")


def _document(found: "Found", lines: list[str]) -> dict[str, Any]:
    return {
        "name": found.known.name,
        "kind": str(found.known.kind),
        "program": found.path,
        "version": found.version,
        "usable": found.is_usable,
        "login": found.login or None,
        "tried": found.known.is_tried,
        "fault": found.fault or None,
        "remit_toml": "\n".join(lines) + "\n",
    }


def _print_found(found: "Sequence[Found]") -> None:
    from remit.cli.output import console, say
    from remit.cli.tables import cut, table
    from remit.cli.words import printable

    if not found:
        say("No coding agent was found on PATH.")
        return
    shown = table("agent", "version", "usable", "login", "program", shrinking=("login", "program"))
    for one in found:
        usable = "no" if one.fault else "not logged in?" if not one.login else "yes" if one.known.is_tried else "yes, not tried by us"
        seen = printable(one.fault) or (f"by {one.login}" if one.login else "none seen")
        shown.add_row(one.known.name, printable(one.version) or "-", usable, cut(seen), cut(printable(one.path)))
    console().print(shown)


def _print_lines(found: "Sequence[Found]", lines: dict[str, list[str]]) -> None:
    from remit.cli.output import say

    startable = [one for one in found if not one.fault]
    if not startable:
        return
    if unknown := [one.known.name for one in startable if not one.login]:
        say(f"\nNo login was seen of {', '.join(unknown)}: log in once there, or set the key.")
    say("\nFor remit.toml; take out what it must not do:\n")
    for one in startable:
        say("\n".join(lines[one.known.name]) + "\n")
    say(f'Then: remit delegate {startable[0].known.name} "Say what this project does"')


def _print_missing(missing: "Sequence[Known]") -> None:
    from remit.cli.output import say

    if missing:
        say(f"\nNot found: {', '.join(one.program for one in missing)}.")
    for one in missing:
        if one.install and one.program in ("claude", "codex", "opencode"):
            say(f"  {one.program}: {one.install}")
