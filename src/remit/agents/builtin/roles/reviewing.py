"""The built-in reviewer: the change of a path or of a task, checked by `coder.review_code` and `coder.analyze_code`, told as one report.

It puts together what is to be looked at, hands it to the two at once, and weighs what the analysis says. What is found in a change is
`coder.review_code`'s; which change that is, `changes`'; the page, `review_page`'s.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from remit.agents.builtin.roles.answering import answered, handed_on, put, shortly, title_of
from remit.agents.builtin.roles.changes import Change, change_of_path, change_of_task
from remit.agents.builtin.roles.review_page import SEVERITIES, Page, counted, place_of, verdict_of, written
from remit.agents.function import FunctionAgent, agent
from remit.core.errors import ErrorInfo
from remit.core.result import Return, Status
from remit.flow.context import Context
from remit.flow.request import Request, call
from remit.system.files import atomic_write
from remit.system.threads import off_loop

FINDINGS_AT_MOST = 200
CHILD_SECONDS = 240.0
KEPT_SECONDS = 5.0
"""Of the time there is, for the report itself."""
COMPLEX, VERY_COMPLEX = 15, 30
OF_ONE_KIND = 8


@agent("reviewer", effects=("read", "write"), acts_on={"write_to": "path"}, requires_artifacts=True, workspace="shared")
async def reviewer(
    ctx: Context,
    task: str,
    path: str = "",
    number: int | None = None,
    base: str = "",
    focus: str = "",
    write_to: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Review a path, or what was committed for a task, by rule; the report says what was found and what was not looked at."""
    change = await _change(ctx, path, number, base)
    review, analysis = await _looked_at(ctx, change, path)
    if analysis is not None and review is None and not _is_usable(analysis) and not change.text:
        return handed_on(analysis)
    findings = sorted([*_of_review(review), *_of_analysis(analysis, change, number)], key=_worst_first)[:FINDINGS_AT_MOST]
    page = Page(
        title=title_of(ctx, task) if number is not None else f"`{path or '.'}`",
        what=change.what,
        findings=findings,
        files=change.files,
        commits=change.commits,
        looked_at=list(_looked(review, analysis)),
        not_seen=[*change.not_seen, *_not_seen(review, analysis, change)],
        has_change=bool(change.text.strip()),
        number=number,
        focus=focus,
    )
    verdict, _ = verdict_of(findings, has_change=page.has_change)
    place = await put(ctx, written(page), write_to, "review.md", "report", f"Review: {verdict}.")
    return _told(page, place, verdict, review)


REVIEWER: FunctionAgent = reviewer


async def _change(ctx: Context, path: str, number: int | None, base: str) -> Change:
    loop = asyncio.get_running_loop()
    stop_at = time.monotonic() + max(1.0, min(60.0, ctx.remaining / 4))

    def permitted(paths: Sequence[str]) -> list[str]:
        return asyncio.run_coroutine_threadsafe(ctx.permitted(paths), loop).result()

    ctx.progress("Looking for what changed")
    if number is not None:
        return await off_loop(change_of_task, ctx.workspace, number, stop_at, permitted)
    return await off_loop(change_of_path, ctx.workspace, path, base, stop_at, permitted)


async def _looked_at(ctx: Context, change: Change, path: str) -> tuple[Return | None, Return | None]:
    """Both at once; the analysis of a task is of the whole project, as what it touched is judged by its place in it."""
    seconds = max(1.0, min(CHILD_SECONDS, ctx.remaining - KEPT_SECONDS))
    requests: list[Request] = [call("coder.analyze_code", path=path or ".", timeout=seconds)]
    if change.text.strip():
        requests.append(call("coder.review_code", diff=await _given(ctx, change.text), timeout=seconds))
    ctx.progress(f"Reviewing {change.what}")
    try:
        analysis, *review = await ctx.gather(*requests)
    finally:
        await off_loop(_patch_of(ctx).unlink, True)  # what is secret in it need not lie about
    return (review[0] if review else None), analysis


async def _given(ctx: Context, text: str) -> str:
    """A diff in a file where the coder can read it: the record need not hold all of it."""
    file = _patch_of(ctx)
    if not file.is_relative_to(ctx.workspace):
        return text
    await off_loop(atomic_write, file, text.encode("utf-8", "surrogateescape"))
    return f"@{file.relative_to(ctx.workspace)}"


def _patch_of(ctx: Context) -> Path:
    return ctx.scratch / "change.patch"


def _is_usable(returned: Return | None) -> bool:
    return returned is not None and isinstance(returned.data, dict) and returned.status in (Status.COMPLETED, Status.PARTIAL)


def _data(returned: Return | None) -> Mapping[str, Any]:
    return returned.data if returned is not None and _is_usable(returned) else {}


def _of_review(review: Return | None) -> list[dict[str, Any]]:
    return [dict(one) for one in _data(review).get("findings", []) if isinstance(one, Mapping) and one.get("severity") in SEVERITIES]


def _of_analysis(analysis: Return | None, change: Change, number: int | None) -> Iterator[dict[str, Any]]:
    """What of an analysis is a finding. Of a task, only where it has touched something."""
    data, touched = _data(analysis), set(change.files)

    def concerns(path: Any) -> bool:
        return number is None or path in touched

    functions = [one for one in data.get("complexFunctions", []) if one["complexity"] >= COMPLEX and concerns(one["path"])]
    for one in functions[:OF_ONE_KIND]:
        yield _finding(
            "medium" if one["complexity"] >= VERY_COMPLEX else "low", "complexity", "complex-function",
            f"The function {one['name']} branches {one['complexity']} ways, {one['nesting']} deep.", "Give parts of it names of their own.",
            one["path"], one["line"],
        )  # fmt: skip
    for knot in data.get("imports", {}).get("cycles", [])[:OF_ONE_KIND]:
        if any(concerns(path) for path in knot["files"]):
            ring = " → ".join([*knot["ring"], *knot["ring"][:1]])
            yield _finding(
                "medium", "structure", "import-cycle", f"{knot['size']} files import one another in a circle: {ring}.",
                "Move what they share below both.", knot["ring"][0] if knot["ring"] else "",
            )  # fmt: skip
    hot = [one for one in data.get("hotSpots", []) if one.get("isUntested") and concerns(one["path"])]
    for one in hot[:OF_ONE_KIND]:
        yield _finding(
            "low", "tests", "untested-hot-spot", f"Changed in {one['commits']} commits, complex, and no test reaches it.",
            "Write a test before it is changed again.", one["path"],
        )  # fmt: skip


def _finding(severity: str, category: str, rule: str, message: str, suggestion: str, file: str, line: int | None = None) -> dict[str, Any]:
    found = {
        "severity": severity, "category": category, "rule": rule, "file": file, "line": line, "message": message, "suggestion": suggestion,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value not in (None, "")}


def _worst_first(finding: Mapping[str, Any]) -> tuple[int, str, int]:
    return SEVERITIES.index(finding["severity"]), str(finding.get("file", "")), int(finding.get("line") or 0)


def _looked(review: Return | None, analysis: Return | None) -> Iterator[str]:
    data = _data(review)
    if data:
        yield f"The change: {data.get('filesChanged', 0)} files, +{data.get('linesAdded', 0)} −{data.get('linesRemoved', 0)} lines."
        tools = ", ".join(f"{name} {version}" for name, version in data.get("tools", {}).items())
        yield f"Checks: {', '.join(data.get('checked', []))}." + (f" Tools: {tools}." if tools else "")
    if _is_usable(analysis) and analysis is not None:
        yield f"The code around it: {analysis.summary}"


def _not_seen(review: Return | None, analysis: Return | None, change: Change) -> Iterator[str]:
    yield from (str(words) for words in _data(review).get("notChecked", []))
    if review is None:
        yield "Lines that changed: there was no change to look at."
    elif not _is_usable(review):
        yield f"The change itself: {_why(review)}"
    if not _is_usable(analysis):
        yield f"How the code hangs together: {_why(analysis)}"


def _why(returned: Return | None) -> str:
    if returned is None:
        return "it was not asked for."
    return shortly(returned.errors[0].message if returned.errors else returned.summary, 300)


def _told(page: Page, place: str, verdict: str, review: Return | None) -> dict[str, Any]:
    counts = counted(page.findings)
    numbers = ", ".join(f"{number} {severity}" for severity, number in counts.items())
    words = f"Review of {page.what.replace('`', '')}: {verdict}. " + (f"Findings: {numbers}." if numbers else "No findings.")
    if page.findings and page.findings[0]["severity"] in SEVERITIES[:3]:
        worst = page.findings[0]
        words += f" Worst: {shortly(' '.join((place_of(worst), str(worst.get('message', '')))).replace('`', ''), 150)}"
    data = {"verdict": verdict, "findings": list(page.findings), "counts": counts, "report": place, "notLookedAt": list(page.not_seen)}
    failed = review is not None and not _is_usable(review)
    late = review is not None and review.status is Status.PARTIAL
    if failed or late:
        assert review is not None
        errors = review.errors or (_incomplete(review),)
        return answered(
            "partial", f"Not complete. {words}", errors=errors, data=data, next_steps="Review a smaller part, or allow more time."
        )
    return answered("completed", words, data=data, next_steps="Settle what was found, then review it again." if numbers else "")


def _incomplete(review: Return) -> ErrorInfo:
    return ErrorInfo(
        type="execution", message=f"The change could not be checked: {shortly(review.summary, 200)}", code="UNKNOWN_ERROR",
        recoverable=True, recommendation="Review a smaller part.",
    )  # fmt: skip
