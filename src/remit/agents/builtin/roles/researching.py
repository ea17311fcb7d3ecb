"""The built-in researchers: a study of a task by `researcher.deep_research`, which quotes what it finds and concludes nothing.

    researcher               the project's files and documents; the web where the task asks for it
    lean-research-agent      the same, with the Lean sources and the files that say how they are built
    web-research-specialist  the web

They put the question together, and the report where it is wanted. What is found, ranked and quoted is the researcher's own.
"""

import re
from typing import Annotated, Any

from pydantic import Field

from remit.agents.builtin.roles.answering import (
    SUMMARY_LENGTH,
    Words,
    answered,
    description_of,
    handed_on,
    plain_list,
    put,
    read,
    shortly,
    title_of,
)
from remit.agents.function import FunctionAgent, agent
from remit.core.errors import Misused
from remit.core.result import Return, Status
from remit.flow.context import Context

SPECS = "specs"
"""The board's folder."""
QUESTION_LENGTH = 1_500
"""Of what is asked: beyond it the words of a description drown those that matter."""
MADE_BY = {
    False: "It quotes what it finds and draws no conclusions.",
    True: "A model wrote the answer from what it quotes; sentences that a program could not find there are marked.",
}
"""By whether a model wrote the answer."""
_MARK = re.compile(r"^\s*(?:[-*+]|\(?\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?")
"""What makes a line an item of a list, and is no word of the question."""
_DECLARED: dict[str, Any] = {
    "effects": ("read", "write"),
    "acts_on": {"write_to": "path"},
    "requires_artifacts": True,
    "workspace": "shared",
}
Sources = Annotated[list[str] | str | None, Field(description="files, docs, web, a path, docs:FOLDER or an address.")]


@agent("researcher", **_DECLARED)
async def researcher(
    ctx: Context,
    task: Words,
    focus: str = "",
    reports: list[str] | str | None = None,
    write_to: str | None = None,
    sources: Sources = None,
    max_depth: int = 2,
    **more: Any,
) -> dict[str, Any]:
    """Study a task in the project's files, and on the web where it asks for that; every sentence of the report is quoted."""
    return await _study(ctx, task, focus, reports, write_to, plain_list(sources), max_depth)


@agent("lean-research-agent", **_DECLARED)
async def lean_researcher(
    ctx: Context,
    task: Words,
    focus: str = "",
    reports: list[str] | str | None = None,
    write_to: str | None = None,
    sources: Sources = None,
    max_depth: int = 2,
    **more: Any,
) -> dict[str, Any]:
    """Study a task of a Lean project in its sources and documents."""
    return await _study(ctx, task, focus, reports, write_to, plain_list(sources) or ["files"], max_depth)


@agent("web-research-specialist", **{**_DECLARED, "effects": ("read", "write", "network")})
async def web_researcher(
    ctx: Context,
    task: Words,
    focus: str = "",
    reports: list[str] | str | None = None,
    write_to: str | None = None,
    sources: Sources = None,
    max_depth: int = 2,
    **more: Any,
) -> dict[str, Any]:
    """Study a task on the web."""
    return await _study(ctx, task, focus, reports, write_to, plain_list(sources) or ["web"], max_depth)


RESEARCHER: FunctionAgent = researcher
LEAN_RESEARCHER: FunctionAgent = lean_researcher
WEB_RESEARCHER: FunctionAgent = web_researcher


async def _study(
    ctx: Context, task: str, focus: str, reports: Any, write_to: str | None, sources: list[str], max_depth: int
) -> dict[str, Any]:
    question = question_of(title_of(ctx, task), description_of(ctx, task), focus)
    if not question:
        raise Misused("The task names nothing to look for.", code="INVALID_PARAMETERS", advice="Say in words what is to be found out.")
    ctx.progress(f"Looking for what speaks of: {shortly(question, 120)}")
    # The board's own files speak of the task in its own words: without this they would be quoted as the answer to it.
    asked = {"query": question, "max_depth": min(5, max(1, max_depth)), "sources": [*sources, f"!{SPECS}"]}
    found = await ctx.delegate("researcher.deep_research", parameters=asked)
    report = next((one for one in found.artifacts if one.path.endswith(".md")), None)
    text = await read(ctx, report.path) if report is not None else ""
    if not text:
        return _not_made(found)
    is_written = isinstance(found.data, dict) and bool(found.data.get("written"))
    head = _head(ctx, title_of(ctx, task), focus, question, plain_list(reports), MADE_BY[is_written])
    path = await put(ctx, f"{head}\n\n{_below_head(text)}", write_to, "report.md", "report", "What was found, quoted with its sources.")
    return _told(found, path, focus)


def _not_made(found: Return) -> dict[str, Any]:
    """The study as far as it came; its errors are those of whoever looked."""
    begun = "The study is not complete." if found.status is Status.PARTIAL else "The study could not be made."
    return {**handed_on(found), "artifacts": [], "summary": shortly(f"{begun} {found.summary}", SUMMARY_LENGTH)}


def question_of(title: str, description: str, focus: str) -> str:
    """What the user asks for in particular goes first; each line is a question of its own, to which something may be found."""
    lines = [_MARK.sub("", line).strip() for line in _after(title, description).splitlines()]
    parts = [focus.strip(), title.strip(), *(line for line in lines if line and line != title.strip())]
    asked = [f"{part.rstrip(' .?!;:,')}?" for part in dict.fromkeys(parts) if part.rstrip(" .?!;:,")]
    return shortly(" ".join(asked), QUESTION_LENGTH)


def _after(title: str, description: str) -> str:
    """The description without the title that it begins with: `remit task` makes the title of its first sentence."""
    words = title.strip().rstrip("\u2026. ")
    rest = description.strip()
    if not words or not rest.startswith(words):
        return rest
    if title.strip().endswith("\u2026"):  # it was cut: the description has the whole of it
        return rest
    left = rest[len(words) :]
    return left.lstrip(" .:;,!?") if not left[:1].isalnum() else rest


def _head(ctx: Context, title: str, focus: str, question: str, earlier: list[str], made_by: str) -> str:
    number = ctx.task.task_number if ctx.task is not None else None
    lines = [
        f"# Research: {title}",
        "",
        *([f"- **Task number**: {number}"] if number is not None else []),
        *([f"- **Asked for in particular**: {shortly(focus, 400)}"] if focus.strip() else []),
        f"- **Question**: {question}",
        *(f"- **Earlier report**: {path}" for path in earlier),
        f"- **Made by**: the researcher that comes with remit. {made_by}",
    ]
    return "\n".join(lines)


def _below_head(text: str) -> str:
    """The report without its own title, which is the question once more."""
    first, _, rest = text.partition("\n")
    return rest.lstrip("\n") if first.startswith("# ") else text


def _told(found: Return, path: str, focus: str) -> dict[str, Any]:
    """What was looked for and not found is a finding, and the study is done; what there was no time for is not."""
    data = {**(found.data if isinstance(found.data, dict) else {}), "report": path, "session_id": found.session_id}
    is_empty = found.status is Status.PARTIAL and [error.code for error in found.errors] == ["NOT_FOUND"]
    if is_empty:
        words = "The study is done, and nothing that was searched answers it. The report says what was searched and what came nearest."
        advice = found.next_steps or "Name other sources, add a focus, or bind the role researcher to a language model ([roles])."
        return answered("completed", words, data={**data, "found": False}, next_steps=advice)
    if found.status is not Status.COMPLETED:
        return {**_not_made(found), "data": data}
    asked = shortly(focus, 80)
    about = f" Asked for in particular: {asked}{'' if asked.endswith(('.', '?', '!', '…')) else '.'}" if asked else ""
    return answered("completed", f"{found.summary}{about}", data={**data, "found": True}, next_steps=found.next_steps)
