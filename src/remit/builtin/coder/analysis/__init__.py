"""`coder.analyze_code`: parses a repository and describes it for people. Runs in its own process; needs no model.

`source_files` lists files, `file_facts` parses them in forked processes (with `grammars`), `survey` combines the facts with the import
graph (`imports`) and the history, `report` writes. The agent directory loads this module, which imports none of them."""

import gc
from typing import Annotated, Any

from pydantic import Field

from remit.agents.function import agent
from remit.core.context import BlockingContext
from remit.core.errors import Misused
from remit.system.beneath import Root
from remit.system.globs import read_rules
from remit.system.packages import need

_KEPT_FREE_SECONDS = 15.0
"""Reserved before the deadline for the graph and the report of a large tree; at most a part of the time."""


@agent(
    "coder.analyze_code",
    isolation="process",
    description="Analyse a repository: symbols, imports, complexity, tests, hot spots, as a report and as data.",
    effects=("read",),
    acts_on={"path": "path"},
)
def analyze_code(
    ctx: BlockingContext,
    path: Annotated[str, Field(description="A folder or a file of the workspace.")] = ".",
    patterns: Annotated[list[str] | None, Field(description="Only files whose path fits one of these, e.g. src/**/*.py.")] = None,
) -> dict[str, Any]:
    for module in ("tree_sitter", "lizard"):
        need(module, "code")
    if strange := [pattern for pattern in patterns or () if not read_rules(pattern)]:
        raise Misused(f"patterns: {strange[0]!r} is not a pattern.", advice='Use globs as in .gitignore, such as "**/*.py" or "src/".')
    with Root(ctx.workspace) as root, root.place(path) as place:
        place.need()
        below = "/".join(place.inside)  # its real path: links may lead to other places inside, never out
    free = min(0.4 * ctx.remaining, _KEPT_FREE_SECONDS)
    gc.disable()  # millions of small values live to the end, and the process ends with them
    from remit.builtin.coder.analysis.survey import analyse

    result = analyse(
        ctx.workspace, ctx.scratch, below, patterns or (), progress=ctx.progress, permitted=ctx.permitted,
        is_over=lambda: ctx.hand_in or ctx.remaining < free,
    )  # fmt: skip
    ctx.artifact(ctx.scratch / "analysis.md", "report", "What this is, where it starts, what is risky, tangled and untested.")
    ctx.artifact(ctx.scratch / "analysis.json", "data", "Every file with its symbols and imports.")
    return result
