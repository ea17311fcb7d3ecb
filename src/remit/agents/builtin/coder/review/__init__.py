"""`coder.review_code`: a change reviewed by checks, and judged by a model where one is configured. `REVIEW` lists the operation.

source       where the change comes from: text, a patch file, git
patch        a unified diff, read                applying     whether it applies, and to what effect
matter       what the checks are given           findings     what they give
secrets, leftovers, syntax, risky, linting, interface (with calls), whole, guided     the checks
reviewing    all of it in order                  report       the page to read
judging      what a model says of it
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from remit.agents.blocking import BlockingContext
from remit.agents.function import FunctionAgent, agent
from remit.agents.process.remote import models_of
from remit.core.errors import Refused

if TYPE_CHECKING:
    from remit.agents.builtin.coder.review.matter import Matter
    from remit.agents.builtin.coder.review.patch import Change
    from remit.agents.builtin.coder.review.reviewing import Reviewed
    from remit.agents.builtin.coder.review.source import Source

REPORT = "review.md"
_GUIDELINES = "Text, a list or a file; e.g. security-first, tests-required."


@agent(
    "coder.review_code",
    isolation="process",
    effects=("read",),
    description="Review a change: whether it applies, secrets, risky calls, lint on the changed lines, missing tests. Changes nothing.",
)
def review_code(
    ctx: BlockingContext,
    diff: Annotated[str, Field(description="A unified diff, @FILE that holds one, staged, working, a commit, or main..HEAD.")],
    guidelines: Annotated[str | list[str] | None, Field(description=_GUIDELINES)] = None,
) -> dict[str, Any]:
    """Review a change: a unified diff, `@FILE`, `staged`, `working`, a commit or a range. Changes nothing."""
    from remit.agents.builtin.coder.review import report
    from remit.agents.builtin.coder.review.patch import read_diff
    from remit.agents.builtin.coder.review.reviewing import review
    from remit.agents.builtin.coder.review.source import find_source

    stop_at = time.monotonic() + max(0.5, ctx.remaining * 0.75 - 0.5)
    permit = _permit(ctx, stop_at)
    source = find_source(diff, ctx.workspace, stop_at, permit)
    if source.is_git and not source.text.strip():
        return {
            "status": "completed",
            "summary": f"There is nothing to review: {source.what} holds no change. Nothing was checked.",
            "data": {"verdict": "nothing to review", "findings": [], "filesChanged": 0},
            "artifacts": [],
        }
    matter = _matter(ctx, read_diff(source.text), source, guidelines, stop_at, permit)
    reviewed = review(matter, source.what, lambda check, fraction: ctx.progress(f"Checking {check}", fraction))
    reviewed = _judged(ctx, reviewed, guidelines)
    path = ctx.scratch / REPORT
    path.write_text(report.written(reviewed), encoding="utf-8", errors="replace")
    ctx.artifact(path, "report", f"Review: {reviewed.verdict}.")
    handed: dict[str, Any] = {"status": "completed", "summary": report.summary(reviewed), "data": reviewed.to_data()}
    if reviewed.verdict in report.UNFIT:
        handed["next_steps"] = _SETTLE
    if reviewed.late:
        handed |= {"status": "partial", "errors": [_TIME_WAS_UP]}
    return handed


def _judged(ctx: BlockingContext, reviewed: "Reviewed", guidelines: str | list[str] | None) -> "Reviewed":
    """With a model's judgement, where one is configured. The findings of the checks are there whatever it does."""
    models = models_of(ctx._context)
    if models is None:
        return reviewed
    from remit.agents.builtin.coder.review.judging import judge

    given = guidelines if isinstance(guidelines, str) else "\n".join(guidelines or [])
    rules = [*reviewed.matter.guidelines.checked, *reviewed.matter.guidelines.unchecked] if given.strip() else []
    judgement = ctx._wait(judge(models, ctx._context, reviewed.matter, reviewed.findings, "\n".join(rules)[:20_000]))
    return reviewed.judged(judgement)


_SETTLE = (
    "Settle what was found and review it again. The review itself has succeeded: a script that is to fail here reads data.verdict (--json)."
)
_TIME_WAS_UP = {
    "type": "timeout",
    "code": "TIMEOUT",
    "message": "Time was up before every check had run; the report names those that are missing.",
    "recoverable": True,
    "recommendation": "Give it a longer timeout, or review a smaller change.",
}


def _permit(ctx: BlockingContext, stop_at: float) -> Callable[[str], str]:
    """Why a file must not be read; each is asked for once."""
    asked: dict[str, str] = {}

    def permit(path: str) -> str:
        if path not in asked:
            if time.monotonic() > stop_at:
                return "time was up before it could be read"
            try:
                ctx.permit(path=path)
                asked[path] = ""
            except Refused as refused:
                asked[path] = f"the policy does not let it be read ({refused.message.rstrip('.')})"
        return asked[path]

    return permit


def _matter(
    ctx: BlockingContext,
    changes: "list[Change]",
    source: "Source",
    guidelines: str | list[str] | None,
    stop_at: float,
    permit: Callable[[str], str],
) -> "Matter":
    from remit.agents.builtin.coder.review.applying import Held, apply
    from remit.agents.builtin.coder.review.guidelines import read_guidelines
    from remit.agents.builtin.coder.review.matter import ChangedFile, Matter
    from remit.agents.builtin.coder.review.secrets import Masking
    from remit.agents.builtin.coder.review.tree import read_below

    def from_workspace(path: str) -> Held:
        why = permit(path)
        return Held(fault=why) if why else read_below(ctx.workspace, path)

    return Matter(
        files=[ChangedFile(applied) for applied in apply(changes, source.read)],
        workspace=ctx.workspace,
        masking=Masking(),
        guidelines=read_guidelines(guidelines, from_workspace),
        stop_at=stop_at,
        is_late=lambda: ctx.hand_in or time.monotonic() > stop_at,
        in_workspace=source.in_workspace,
    )


REVIEW: list[FunctionAgent] = [review_code]
