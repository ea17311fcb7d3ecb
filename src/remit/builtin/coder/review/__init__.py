"""`coder.review_code`: a change reviewed by checks, and judged by a model where one is configured.

change: where it comes from, and the files before and after it · checks: ruff, detect-secrets, parsers, facts about the files ·
report: findings, those of a model among them, verdict, page.
"""

import re
import time
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from remit.agents.function import agent
from remit.agents.process.model_access import models_of
from remit.builtin.worker.workspace import error_dict
from remit.core.context import BlockingContext
from remit.core.errors import Misused

if TYPE_CHECKING:
    from remit.builtin.coder.review.change import Change, Files

REPORT = "review.md"
GUIDELINES_LIMIT, GUIDELINES_CHARACTERS = 400, 20_000
SOURCES = ("diff", "path", "commit", "branch", "session")
_SETTLE = "Settle what was found and review it again. A script that should fail here reads data.verdict (--json): the review has succeeded."
_TIME_WAS_UP = error_dict(
    "timeout",
    "TIMEOUT",
    "The time limit was reached before every check had run. The result names the missing checks.",
    "Give it a longer timeout, or review a smaller change.",
)


@agent(
    "coder.review_code",
    isolation="process",
    effects=("read",),
    description="Review a change: whether it applies, secrets, bugs and risky calls on the changed lines. Changes nothing.",
)
def review_code(
    ctx: BlockingContext,
    diff: Annotated[str | None, Field(description="A unified diff, @FILE with one, staged, working, a commit, or main..HEAD.")] = None,
    path: Annotated[str | list[str] | None, Field(description="Instead of diff: a file, a folder or a list of files as it is.")] = None,
    since: Annotated[str | None, Field(description="With path: only what changed in it since this commit.")] = None,
    commit: Annotated[str | None, Field(description="Instead of diff: a commit.")] = None,
    branch: Annotated[str | None, Field(description="Instead of diff: a branch, from its merge base with the current one.")] = None,
    session: Annotated[str | None, Field(description="Instead of diff: a session of yours that recorded its changes.")] = None,
    guidelines: Annotated[str | list[str] | None, Field(description="Text, a list or a file; checked by a model.")] = None,
) -> dict[str, Any]:
    """Review a change: a diff, a path, a commit, a branch or the changes of a session. Changes nothing."""
    from remit.builtin.coder.review.change import Files
    from remit.builtin.coder.review.checks import Checks, SecretMask
    from remit.builtin.coder.review.report import judge
    from remit.system.git import GitTimedOut

    stop_at = time.monotonic() + max(0.5, ctx.remaining * 0.75 - 0.5)
    files = Files(ctx.workspace, ctx.permitted)
    given = dict(zip(SOURCES, (diff, path, commit, branch, session), strict=True))
    try:
        change = _find_change(ctx, files, time.monotonic() + max(0.5, ctx.remaining * 0.4), given, since)
    except GitTimedOut:
        late = {"verdict": "not reviewed", "findings": [], "filesChanged": 0}
        summary = "The time limit was reached before the change could be read. Nothing was checked."
        return {"status": "partial", "summary": summary, "data": late, "errors": [_TIME_WAS_UP]}
    if not change.files:
        nothing = {"verdict": "nothing to review", "findings": [], "filesChanged": 0}
        return {"status": "completed", "summary": f"There is no change in {change.what}. Nothing was checked.", "data": nothing}
    masking = SecretMask()
    checks = Checks(change=change, masking=masking, stop_at=stop_at, is_late=lambda: ctx.hand_in or time.monotonic() > stop_at)
    review = checks.run(_read_guidelines(guidelines, files), ctx.progress)
    models = models_of(ctx.context)
    if models is not None:
        review = ctx.wait(judge(models, ctx.context, review, masking.strike))
    page = ctx.scratch / REPORT
    page.write_text(review.page(), encoding="utf-8", errors="replace")
    ctx.artifact(page, "report", f"Review: {review.verdict}.")
    returned: dict[str, Any] = {"status": "completed", "summary": review.summary(), "data": review.to_data()}
    if review.verdict in ("needs changes", "does not apply"):
        returned["next_steps"] = _SETTLE
    if review.is_late:
        returned |= {"status": "partial", "errors": [_TIME_WAS_UP]}
    return returned


def _find_change(ctx: BlockingContext, files: "Files", stop_at: float, given: dict[str, Any], since: str | None) -> "Change":
    from remit.builtin.coder.review.change import ChangeSource, Files

    named = {name: value for name, value in given.items() if value is not None}
    if len(named) != 1:
        which = f"{', '.join(named)} were given" if named else "none was given"
        raise Misused(f"Give exactly one of {', '.join(SOURCES)}: {which}.", code="INVALID_PARAMETERS", advice="Name what to review once.")
    if since is not None and "path" not in named:
        raise Misused("since is used with path alone.", code="INVALID_PARAMETERS", advice="Give diff=REV..REV for two commits.")
    source = ChangeSource(files, stop_at)
    ((name, value),) = named.items()
    match name:
        case "diff":
            return source.from_diff(value)
        case "path":
            return source.path(value, since or "")
        case "commit":
            return source.commit(value)
        case "branch":
            return source.range("HEAD", "...", value)
    recorded = ctx.session_diff(value)
    return source.from_text(Files(ctx.root, list).text(recorded), f"what {value} changed")


def _read_guidelines(given: str | list[str] | None, files: "Files") -> list[str]:
    """The lines of the text, or of the file that it names."""
    lines: list[str] = []
    for text in [given] if isinstance(given, str) else given or []:
        name = text.strip().removeprefix("@")
        if "\n" not in name and (text.startswith("@") or re.fullmatch(r"[\w./-]{1,200}\.(?:md|txt|rst|toml)", name)):
            text = files.text(name)
        lines += [line.strip() for line in text[:GUIDELINES_CHARACTERS].splitlines() if line.strip()]
    return lines[:GUIDELINES_LIMIT]
