"""`coder.analyze_code`: a repository read by machine and told to a person (S5.2). Runs in a process of its own; needs no model.

    listing ─► cache ─► crew (opening, reading, sweeping: in forked workers) ─► survey
                                                                                  │
    manifests ─► resolving (rusty) ─► graph ─► touching, history ─► findings ─► report, picture (layout), analysis.json

The languages are a table: `languages`, with their questions in `queries`. This module holds what the directory needs, and is light.
"""

import gc
import os
from typing import Annotated, Any

from pydantic import Field

from remit.agents.blocking import BlockingContext
from remit.agents.function import FunctionAgent, agent
from remit.core.errors import Misused
from remit.system.extras import need
from remit.system.ignoring import read_rules

__all__ = ["ANALYSIS", "analyze_code"]

_KEPT_FREE_SECONDS = 15.0
"""Before the deadline, for graph, report and data of a large tree; never more than a part of the time there is."""


@agent(
    "coder.analyze_code",
    isolation="process",
    description="Analyse a repository: symbols, imports, complexity, tests, hot spots, as a report, a picture and data.",
    effects=("read",),
    acts_on={"path": "path"},
)
def analyze_code(
    ctx: BlockingContext,
    path: Annotated[str, Field(description="A folder or a file of the workspace.")] = ".",
    patterns: Annotated[list[str] | None, Field(description="Only files whose path fits one of these, e.g. src/**/*.py.")] = None,
) -> dict[str, Any]:
    need("tree_sitter", "code")
    gc.disable()  # millions of small values that all live to the end, and the process ends with them
    from remit.agents.builtin.coder.analysis import running

    below = _located(ctx, path)
    asked = running.Asked(
        workspace=ctx.workspace,
        below=below,
        patterns=_checked(patterns or []),
        cache_folder=ctx.root / ".remit" / "cache",
        say=ctx.progress,
        permitted=ctx.permitted,
        is_over=_clock(ctx),
    )
    analysis = running.Analysis(asked)
    findings, cache = analysis.run()
    try:
        scratch = ctx.scratch
        running.write_markdown(findings, scratch / "analysis.md")
        ctx.artifact(scratch / "analysis.md", "report", "What this is, where one starts, what is risky, tangled and untested.")
        running.write_picture(findings, scratch / "imports.svg")
        ctx.artifact(scratch / "imports.svg", "documentation", "Which parts import which.")
        running.write_whole(analysis, findings, cache, scratch / "analysis.json")
        ctx.artifact(scratch / "analysis.json", "data", "Every file with its symbols and imports.")
    finally:
        cache.close()
    return running.answer(findings)


def _located(ctx: BlockingContext, path: str) -> str:
    """Below the workspace, as it is there: links may lead about inside, never out."""
    if "\0" in path:
        raise Misused("path holds a NUL character.")
    top = os.path.realpath(ctx.workspace)
    real = os.path.realpath(os.path.join(top, path))
    if real != top and not real.startswith(top.rstrip("/") + "/"):
        raise Misused(f"{path} leads out of the workspace.", advice="Name a folder or file inside of it, by its path from the top.")
    if not os.path.isdir(real) and not os.path.isfile(real):
        raise Misused(
            f"There is no folder or file {path} in the workspace.",
            advice="Name one by its path from the top; worker.list_files shows them.",
        )
    return "" if real == top else os.path.relpath(real, top)


def _checked(patterns: list[str]) -> list[str]:
    meant = [pattern for pattern in patterns if read_rules(pattern)]
    if len(meant) < len(patterns):
        strange = next(pattern for pattern in patterns if pattern not in meant)
        raise Misused(f"patterns: {strange!r} names nothing.", advice='Use globs as in .gitignore, such as "**/*.py" or "src/".')
    return patterns


def _clock(ctx: BlockingContext) -> Any:
    began_with = ctx.remaining

    def is_over() -> bool:
        return ctx.hand_in or ctx.remaining < min(0.4 * began_with, _KEPT_FREE_SECONDS)

    return is_over


ANALYSIS: list[FunctionAgent] = [analyze_code]
