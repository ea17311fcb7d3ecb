"""The built-in researchers: a study of a task by `researcher.deep_research`.

    researcher               the project's files and documents; the web where the task asks for it
    lean-research-agent      the same, with the Lean sources
    web-research-specialist  the web

They compose the question and file the report. What is found, ranked and quoted is the work of `researcher.deep_research`.
"""

from typing import Annotated, Any

from pydantic import Field

from remit.agents.function import FunctionAgent, agent
from remit.board.roles.returns import (
    SUMMARY_LENGTH,
    Words,
    answered,
    description_of,
    plain_list,
    put,
    read,
    shorten,
    title_of,
)
from remit.core.errors import Misused
from remit.core.result import Return, Status
from remit.runtime.context import Context

QUESTION_LENGTH = 1_500
_DECLARED: dict[str, Any] = {
    "effects": ("read", "write"),
    "acts_on": {"write_to": "path"},
    "requires_artifacts": True,
    "workspace": "shared",
}
Sources = Annotated[list[str] | str | None, Field(description="files, docs, web, a path, docs:FOLDER or an address.")]


def _researcher(name: str, description: str, sources_by_default: list[str], **declared: Any) -> FunctionAgent:
    async def study(
        ctx: Context,
        task: Words,
        focus: str = "",
        reports: list[str] | str | None = None,
        write_to: str | None = None,
        sources: Sources = None,
        max_depth: int = 2,
        **more: Any,
    ) -> dict[str, Any]:
        return await _study(ctx, task, focus, plain_list(reports), write_to, plain_list(sources) or sources_by_default, max_depth)

    study.__doc__ = description
    made: FunctionAgent = agent(name, **{**_DECLARED, **declared})(study)
    return made


RESEARCHER = _researcher("researcher", "Study a task in the project's files, and on the web where it asks for that.", [])
LEAN_RESEARCHER = _researcher("lean-research-agent", "Study a task of a Lean project in its sources and documents.", ["files"])
WEB_RESEARCHER = _researcher("web-research-specialist", "Study a task on the web.", ["web"], effects=("read", "write", "network"))


async def _study(
    ctx: Context, task: str, focus: str, reports: list[str], write_to: str | None, sources: list[str], max_depth: int
) -> dict[str, Any]:
    title = title_of(ctx, task)
    question = question_of(title, description_of(ctx, task), focus)
    if not question:
        raise Misused("The task names nothing to look for.", code="INVALID_PARAMETERS", advice="Say in words what is to be found out.")
    ctx.progress(f"Looking for: {shorten(question, 120)}")
    # The board's own files repeat the task: without this they would be quoted as the answer to it.
    asked = {"query": question, "max_depth": min(5, max(1, max_depth)), "sources": [*sources, "!specs"]}
    found = await ctx.delegate("researcher.deep_research", parameters=asked)
    report = next((one for one in found.artifacts if one.path.endswith(".md")), None)
    text = await read(ctx, report.path) if report is not None else ""
    if not text:
        return _unfinished(found)
    first, _, rest = text.partition("\n")  # its own title is the question once more
    body = rest.lstrip("\n") if first.startswith("# ") else text
    head = _head(ctx, title, focus, question, reports, found)
    path = await put(ctx, f"{head}\n\n{body}", write_to, "report.md", "report", "What was found, quoted with its sources.")
    return _finished(found, path, focus)


def question_of(title: str, description: str, focus: str) -> str:
    """The focus first, then the title and the lines of the description that do not repeat it."""
    lines = [line.strip() for line in description.splitlines()]
    parts = [focus.strip(), title.strip(), *(line for line in lines if line and not line.startswith(title.strip().rstrip("\u2026. ")))]
    whole = next((line for line in lines if title.strip() and line.startswith(title.strip().rstrip("\u2026. "))), "")
    parts[1] = whole or parts[1]  # the title may be the first sentence of that line, cut short
    asked = [f"{part.rstrip(' .?!;:,')}?" for part in dict.fromkeys(parts) if part.strip(" .?!;:,-*+")]
    return shorten(" ".join(asked), QUESTION_LENGTH)


def _head(ctx: Context, title: str, focus: str, question: str, earlier: list[str], found: Return) -> str:
    number = ctx.task.task_number if ctx.task is not None else None
    has_answer = isinstance(found.data, dict) and bool(found.data.get("written"))
    made_by = "A model wrote the answer from the quotations." if has_answer else "It quotes what it finds and draws no conclusions."
    lines = [
        f"# Research: {title}",
        "",
        *([f"- **Task number**: {number}"] if number is not None else []),
        *([f"- **Asked for in particular**: {shorten(focus, 400)}"] if focus.strip() else []),
        f"- **Question**: {question}",
        *(f"- **Earlier report**: {path}" for path in earlier),
        f"- **Made by**: the researcher that comes with remit. {made_by}",
    ]
    return "\n".join(lines)


def _unfinished(found: Return) -> dict[str, Any]:
    """The study as far as it came, with the errors of the search."""
    begun = "The study is not complete." if found.status is Status.PARTIAL else "The study could not be made."
    return {**found.forwarded(), "artifacts": [], "summary": shorten(f"{begun} {found.summary}", SUMMARY_LENGTH)}


def _finished(found: Return, path: str, focus: str) -> dict[str, Any]:
    """A search that finds nothing is a finished study; one that ran out of time is not."""
    data = {**(found.data if isinstance(found.data, dict) else {}), "report": path, "session_id": found.session_id}
    if found.status is Status.PARTIAL and [error.code for error in found.errors] == ["NOT_FOUND"]:
        words = "The study is done, and nothing that was searched answers it. The report says what was searched and what came nearest."
        advice = found.next_steps or "Name other sources, add a focus, or bind the role researcher to a language model ([roles])."
        return answered("completed", words, data={**data, "found": False}, next_steps=advice)
    if found.status is not Status.COMPLETED:
        return {**_unfinished(found), "data": data}
    asked = shorten(focus, 80)
    about = f" Asked for in particular: {asked}{'' if asked.endswith(('.', '?', '!', '…')) else '.'}" if asked else ""
    return answered("completed", f"{found.summary}{about}", data={**data, "found": True}, next_steps=found.next_steps)
