"""`remit roles`: the roles of the board, which agent carries each out and why; print or replace their files."""

from difflib import get_close_matches
from typing import Annotated

from typer import Argument, Option

from remit.agents.role_bindings import RoleInfo, role_info, role_infos
from remit.agents.roles import file_of
from remit.cli.agents import write_agent_file
from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.render import console, cut, say, say_aside, table
from remit.core.agents import ROLES
from remit.core.errors import Misused, Unavailable

WIDE = 120
"""Terminal width from which the table includes the purpose of each role."""
HOW = """\
Bind one       [roles] in remit.toml: planner = "claude" (an agent of `remit agents`), "model" (the project's), or "built-in"
Read one       remit roles planner
Replace one    remit roles planner --write, then edit .remit/agents/planner.md"""


def roles(
    project: Project,
    name: Annotated[str | None, Argument(metavar="NAME", help="Print the file of this role.")] = None,
    write: Annotated[bool, Option("--write", help="Copy its file to .remit/agents, to be edited; never overwrites.")] = False,
) -> Exit:
    """List the roles of the board: the purpose of each, which agent carries it out here, and why."""
    directory = project.directory
    if name is not None:
        found = role_info(directory, name) if name in ROLES else None
        if found is None:
            raise _unknown(name)
        return _write(found, project) if write else _show(found, project)
    if write:
        raise Misused("--write needs the name of a role.", advice="remit roles NAME --write; `remit roles` lists them.")
    every = list(role_infos(directory))

    def shown() -> None:
        _print(every, project)
        for problem in directory.problems:
            say_aside(f"! {problem}")

    return project.answer({"roles": [one.to_dict() for one in every], "problems": directory.problems}, shown)


def _show(role: "RoleInfo", project: Project) -> Exit:
    try:
        text = None if role.file is None else role.file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise Unavailable(f"Cannot read {role.file}: {error.strerror or error}.") from None
    if project.as_json or text is None:
        other = f"{role.name} has no file here: {project.inside(role.source)} replaces it. `remit agents {role.name}` shows its parameters."
        return project.answer({**role.to_dict(), "text": text}, other)
    say(text.rstrip("\n"))
    carried = f"Carried out by {role.carried_by}" if role.by != "nobody" else "Not carried out"
    say_aside(f"{carried}: {role.because}. From {project.inside(str(role.file))}.")
    if role.by == "built-in" and role.is_own:
        say_aside("The built-in agent does not read these instructions; another agent that is bound to the role does.")
    return Exit.OK


def _write(role: "RoleInfo", project: Project) -> Exit:
    """Copy the file that comes with remit; a file of the project is never overwritten."""
    if role.is_own:
        where = project.inside(role.source)
        raise Misused(f"The project has its own {role.name} in {where}.", advice="Edit that file, or move it away first.")
    written = write_agent_file(project, role.name, file_of(role.name).read_text(encoding="utf-8"))
    text = f"Written: {written}. This file now defines the role; {role.carried_by} still carries it out."
    if role.by == "built-in":
        text += f'\nThe built-in agent does not read it: bind one that does, in remit.toml: [roles] {role.name} = "claude"'
    return project.answer({"name": role.name, "written": written}, text)


def _unknown(name: str) -> Exception:
    if name in ROLES:
        advice = "The setting builtin_agents leaves the roles out: add 'roles' there. `remit config` shows the settings."
    else:
        close = get_close_matches(name, ROLES, n=1)
        advice = f"Did you mean {close[0]}? `remit roles` lists them." if close else f"There are {', '.join(ROLES)}."
    return Misused(f"There is no role named {name!r}.", code="INVALID_TARGET", advice=advice)


def _print(found: "list[RoleInfo]", project: Project) -> None:
    if not found:
        say("This project has no roles: the setting builtin_agents leaves them out.")
        return
    is_roomy = console().width >= WIDE
    purpose = ("for",) if is_roomy else ()
    shown = table("role", *purpose, "carried out by", "because", shrinking=(*purpose, "because"))
    for role in found:
        because = role.because if role.by != "replaced" else project.inside(role.source)
        style = "red" if role.by == "nobody" else ""
        words = (cut(role.description),) if is_roomy else ()
        shown.add_row(role.name, *words, cut(role.carried_by, style), cut(because))
    console().print(shown)
    say()
    if open_roles := [role for role in found if role.advice]:
        say(f"No agent carries out {' and '.join(role.name for role in open_roles)}. {open_roles[0].advice}")
        say()
    say(HOW)
