"""`remit roles`: the roles of the board, who carries each out here and why; their files, to be read and replaced."""

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.arguments import Json, Root
from remit.cli.exits import Exit
from remit.cli.project import find_root, inside, open_directory, project_folder
from remit.cli.render import console, cut, printable, say, say_aside, say_json, table
from remit.core.agents import ROLES
from remit.core.errors import Misused, Unavailable

if TYPE_CHECKING:
    from remit.agents.directory import Directory
    from remit.agents.role_bindings import RoleInfo


WIDE = 120
"""Columns from which on a table has room for what each role is for."""
HOW = """\
Bind one       [roles] in remit.toml: planner = "claude" (an agent of `remit agents`), "model" (the project's), or "built-in"
Read one       remit roles planner
Replace one    remit roles planner --write, then edit .remit/agents/planner.md"""


def roles(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Print the file of this one.", show_default=False)] = None,
    write: Annotated[bool, typer.Option("--write", help="Copy its file to .remit/agents, to be edited; never overwrites.")] = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """List the roles of the board: what each is for, who carries it out here, and why."""
    folder = find_root(root)
    directory = open_directory(folder)
    if name is not None:
        return _one(name, directory, folder, write=write, as_json=as_json)
    if write:
        raise Misused("--write needs the name of a role.", advice="remit roles NAME --write; `remit roles` lists them.")
    from remit.agents.role_bindings import role_infos

    found = list(role_infos(directory))
    if as_json:
        say_json({"roles": [one.to_dict() for one in found], "problems": directory.problems})
        return Exit.OK
    _print(found, folder)
    for problem in directory.problems:
        say_aside(f"! {printable(problem)}")
    return Exit.OK


def _one(name: str, directory: "Directory", folder: "Path", *, write: bool, as_json: bool) -> Exit:
    from remit.agents.role_bindings import role_info

    found = role_info(directory, name) if _is_role(name) else None
    if found is None:
        raise _unknown(name)
    if write:
        return _write(found, folder, as_json=as_json)
    text = _text(found, folder)
    if as_json:
        say_json({**found.to_dict(), "text": text})
        return Exit.OK
    if text is None:
        say(f"{name} has no file here: {inside(found.source, folder)} replaces it. `remit agents {name}` shows what it accepts.")
        return Exit.OK
    say(text.rstrip("\n"))
    carried = f"Carried out by {found.carried_by}: {found.because}." if found.by != "nobody" else f"Carried out by nobody: {found.because}."
    say_aside(f"{carried} From {inside(str(found.file), folder)}.")
    if found.by == "built-in" and found.is_own:
        say_aside("The built-in does not read these instructions: they are for whoever else is bound to it.")
    return Exit.OK


def _is_role(name: str) -> bool:
    return name in ROLES


def _text(role: "RoleInfo", folder: "Path") -> str | None:
    if role.file is None:
        return None
    try:
        return role.file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise Unavailable(f"{role.file} cannot be read: {error.strerror or error}.") from None


def _write(role: "RoleInfo", folder: "Path", *, as_json: bool) -> Exit:
    """The file as it comes with remit: what the project has of its own is never touched."""
    from remit.agents.roles import file_of

    place = project_folder(folder) / "agents" / f"{role.name}.md"
    if role.is_own or place.exists() or place.is_symlink():
        where = inside(role.source, folder) if role.is_own else inside(str(place), folder)
        raise Misused(f"The project has its own {role.name} in {where}.", advice="Edit that one, or move it away first.")
    text = file_of(role.name).read_text(encoding="utf-8")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise Unavailable(f"{place} cannot be written: {error.strerror or error}.", advice="Check the folder.") from None
    shown = inside(str(place), folder)
    if as_json:
        say_json({"name": role.name, "written": shown})
    else:
        say(f"Written: {shown}. From now on this file is the role; {role.carried_by} still carries it out.")
        if role.by == "built-in":
            say(f'The built-in does not read it: bind an agent that does, in remit.toml: [roles] {role.name} = "claude"')
    return Exit.OK


def _unknown(name: str) -> Exception:
    if name in ROLES:
        advice = "The setting builtin_agents leaves the roles out: add 'roles' there. `remit config` shows the settings."
    else:
        close = get_close_matches(name, ROLES, n=1)
        advice = f"Did you mean {close[0]}? `remit roles` lists them." if close else f"There are {', '.join(ROLES)}."
    return Misused(f"There is no role named {name!r}.", code="INVALID_TARGET", advice=advice)


def _print(found: "list[RoleInfo]", folder: "Path") -> None:
    if not found:
        say("This project has no roles: the setting builtin_agents leaves them out.")
        return
    is_roomy = console().width >= WIDE  # on a narrow terminal what a role is for would be cut to nothing: `remit roles NAME` says it
    purpose = ("for",) if is_roomy else ()
    shown = table("role", *purpose, "carried out by", "because", shrinking=(*purpose, "because"))
    for role in found:
        because = role.because if role.by != "replaced" else inside(role.source, folder)
        style = "red" if role.by == "nobody" else ""
        words = (cut(role.description),) if is_roomy else ()
        shown.add_row(role.name, *words, cut(role.carried_by, style), cut(because))
    console().print(shown)
    say()
    if open_roles := [role for role in found if role.advice]:
        say(f"Nobody carries out {' and '.join(role.name for role in open_roles)}. {open_roles[0].advice}")
        say()
    say(HOW)
