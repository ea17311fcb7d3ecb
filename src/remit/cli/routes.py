"""`remit routes`: explain which agent a group would choose now."""

import random
from collections import Counter
from typing import Annotated, Any

from typer import Argument, Option

from remit.agents.definition import Definition, definition_of
from remit.agents.group import read_experience
from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.core.choice import Experience, rank
from remit.core.errors import Misused

CHANCES = 1_000
"""Number of draws used to estimate the share of each member."""


def routes(
    project: Project,
    group: Annotated[str | None, Argument(metavar="GROUP", help="Explain this one.")] = None,
    context: Annotated[str | None, Option("--language", metavar="LANGUAGE", help="Of the task; default: those that occurred.")] = None,
) -> Exit:
    """List the groups of agents, or explain one: what is known of each member, and how often it would be chosen now."""
    tables = {name: table for name, table in project.settings.agents.items() if "group" in table}
    found = {name: definition_of(name, table, source=f"[agents.{name}]") for name, table in tables.items()}
    if group is None:
        listed = [{"group": name, "members": list(one.group), "by": str(one.by)} for name, one in found.items()]
        empty = 'There is no group. Declare one in remit.toml: [agents.coders] group = ["claude", "codex"]'
        return project.answer({"groups": listed}, None if listed else empty)
    if group not in found:
        raise Misused(f"There is no group named {group!r}.", code="INVALID_TARGET", advice="`remit routes` lists the groups.")
    return project.answer(_explain(project, found[group], context))


def _explain(project: Project, group: "Definition", context: str | None) -> dict[str, Any]:
    with project.history() as store:
        experience = Experience() if store is None else read_experience(store, group.spec.name)
        loads = Counter() if store is None else Counter(record.agent for record in store.live())
    rows = []
    for one in [context] if context is not None else experience.contexts() or ["general"]:
        chance = random.Random(0)
        ranks = [rank(group.by, group.group, one, experience, loads, chance) for _ in range(CHANCES)]
        first = Counter(ranking[0].member for ranking in ranks)
        words = {score.member: score.words for score in ranks[0]}
        rows += [
            {"context": one, "member": member, "known": words[member], "load": loads[member], "chosen": first[member] / CHANCES}
            for member in group.group
        ]
    return {"group": group.spec.name, "by": str(group.by), "outcomes": experience.count, "members": rows}
