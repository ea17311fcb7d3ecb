"""`remit roles`: the roles of the board, which agent carries each out and why; print or replace their files."""

from typing import Annotated

from typer import Argument, Option

from remit.agents.role_bindings import role_info, role_infos
from remit.agents.roles import file_of
from remit.cli.agents import write_agent_file
from remit.cli.delegate import close_match
from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.render import say, say_aside, say_table
from remit.core.agents import ROLES
from remit.core.errors import Misused

HOW = """
Bind one       [roles] in remit.toml: planner = "claude" (an agent of `remit agents`), "model" (the project's), or "built-in"
Replace one    remit roles planner --write, then edit .remit/agents/planner.md"""


def roles(
    project: Project,
    name: Annotated[str | None, Argument(metavar="NAME", help="Print the file of this role.")] = None,
    write: Annotated[bool, Option("--write", help="Copy its file to .remit/agents, to be edited; never overwrites.")] = False,
) -> Exit:
    """List the roles of the board: the purpose of each, which agent carries it out here, and why."""
    directory = project.directory
    if name is None:
        if write:
            raise Misused("--write needs the name of a role.", advice="remit roles NAME --write; `remit roles` lists them.")
        found, problems = [one.to_dict() for one in role_infos(directory)], directory.problems
        return project.answer({"roles": found, "problems": problems}, lambda: _print(found, problems))
    role = role_info(directory, name) if name in ROLES else None
    if role is None:
        advice = close_match(name, ROLES) or f"There are {', '.join(ROLES)}, unless the setting builtin_agents leaves them out."
        raise Misused(f"There is no role named {name!r}.", code="INVALID_TARGET", advice=advice)
    if not write:
        text = None if role.file is None else role.file.read_text(encoding="utf-8", errors="replace")
        return project.answer({**role.to_dict(), "text": text}, None if text is None else text.rstrip("\n"))
    if role.is_own:
        where = project.inside(role.source)
        raise Misused(f"The project has its own {role.name} in {where}.", advice="Edit that file, or move it away first.")
    written = write_agent_file(project, role.name, file_of(role.name).read_text(encoding="utf-8"))
    text = f"Written: {written}. This file now defines the role; {role.carried_by} still carries it out."
    if role.by == "built-in":
        text += f'\nThe built-in agent does not read it: bind one that does, in remit.toml: [roles] {role.name} = "claude"'
    return project.answer({"name": role.name, "written": written}, text)


def _print(found: list[dict[str, str]], problems: list[str]) -> None:
    if found:
        say_table(
            [{"role": one["name"], "carried out by": one["carried_by"], "because": one["because"]} for one in found], shrinking=("because",)
        )
    if advice := next((one["advice"] for one in found if one["advice"]), ""):
        say(f"\n{advice}")
    say(HOW)
    for problem in problems:
        say_aside(f"! {problem}")
