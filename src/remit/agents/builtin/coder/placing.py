"""What a model wrote, put into the workspace through `worker.write_file`: the policy judges each file, and the record holds it.

A file that is there already is not touched unless that was asked for; what could not be put in its place is kept in the delegation's own
folder, so that nothing is lost. Used by `generate`.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remit.agents.builtin.coder.composing import Composed, Order, compose
from remit.agents.builtin.coder.generate import CodeAsked
from remit.agents.builtin.coder.syntax import language_of
from remit.core.errors import ErrorInfo, Misused
from remit.core.result import Status
from remit.flow.context import Context
from remit.flow.request import call
from remit.models.optional import Writes
from remit.system.threads import off_loop

KEPT = "generated"
MOST_LISTED = 300
MOST_SHOWN = 64 * 1024
"""Bytes of one file."""
_AT_ONCE = 4


@dataclass(slots=True, kw_only=True)
class Placed:
    written: list[str] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    """Path in the delegation's own folder, by the path it was meant for."""
    errors: list[ErrorInfo] = field(default_factory=list)


async def by_models(ctx: Context, models: Writes, asked: CodeAsked, files: Sequence[str], *, overwrite: bool) -> dict[str, Any]:
    """From the specification to files of the workspace, told as a return."""
    listing, shown = await _seen(ctx, files)
    order = Order(spec=asked.spec, language=asked.language, framework=asked.framework, listing=listing, shown=shown)
    composed = await compose(models, ctx, order)
    placed = await place(ctx, composed.files, composed.by, overwrite=overwrite)
    return _told(composed, placed)


async def _seen(ctx: Context, files: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """What a model is shown: the names of the project's files, and those that were asked for, through workers. Raises where one of these
    cannot be read: it was meant to be seen."""
    listed = call("worker.list_files", parameters={"path": ".", "max_results": MOST_LISTED})
    reads = [call("worker.read_file", parameters={"path": path, "limit": MOST_SHOWN}) for path in files]
    listing, *answers = await ctx.gather(listed, *reads, limit=_AT_ONCE)
    shown: dict[str, str] = {}
    for path, answer in zip(files, answers, strict=True):
        text = answer.data.get("content") if isinstance(answer.data, dict) else None
        if answer.status is not Status.COMPLETED or not isinstance(text, str):
            why = answer.errors[0].message if answer.errors else answer.summary
            raise Misused(f"{path} cannot be shown to a model: {why}", code="INVALID_PARAMETERS", advice="Name files of the project.")
        shown[path] = text
    entries = listing.data.get("entries", []) if isinstance(listing.data, dict) else []
    names = [str(one["path"]) for one in entries if isinstance(one, dict) and one.get("type", "file") == "file" and "path" in one]
    return names[:MOST_LISTED], shown


def _told(composed: Composed, placed: Placed) -> dict[str, Any]:
    count, written = len(composed.files), len(placed.written)
    broken = composed.surely_broken
    words = (
        f"{composed.by or 'A model'} wrote {count} file{'s' * (count != 1)}, of which {written} {'is' if written == 1 else 'are'} in place."
    )
    words += f" {len(composed.faults)} {'does' if len(composed.faults) == 1 else 'do'} not parse." if composed.faults else ""
    words += " Nothing was run."
    errors = list(placed.errors)
    if broken:
        first = broken[0]
        errors.append(
            ErrorInfo(
                type="validation", message=f"{first} does not parse, also after it was repaired once: {composed.faults[first]}.",
                code="VALIDATION_FAILED", recoverable=True, recommendation="Put it right by hand, or ask for less at once.",
            )
        )  # fmt: skip
    files = [
        {
            "path": path,
            "language": language_of(path, text) or "text",
            "parses": composed.parses(path),
            **({"fault": str(composed.faults[path])} if path in composed.faults else {}),
            "characters": len(text),
            "written": path in placed.written,
            **({"keptAt": placed.kept[path]} if path in placed.kept else {}),
        }
        for path, text in composed.files.items()
    ]
    return {
        "status": "partial" if errors else "completed",
        "summary": words,
        "data": {"by": composed.by, "files": files, "notes": composed.notes, "repaired": composed.repaired},
        "errors": [error.to_dict() for error in errors],
    }


async def place(ctx: Context, files: Mapping[str, str], by: str, *, overwrite: bool) -> Placed:
    placed = Placed()
    taken = await off_loop(lambda: [path for path in files if not overwrite and _is_there(ctx.workspace, path)])
    wanted = [path for path in files if path not in taken]
    if wanted:
        ctx.progress(f"Writing {len(wanted)} file{'s' * (len(wanted) != 1)}")
    requests = [call("worker.write_file", parameters={"path": path, "content": files[path], "create_parents": True}) for path in wanted]
    for path, answer in zip(wanted, await ctx.gather(*requests, limit=_AT_ONCE), strict=True):
        if answer.status is Status.COMPLETED:
            placed.written.append(path)
            ctx.artifact(path, "implementation", f"Written by {by}.")
        else:
            placed.errors += answer.errors[:1]
    if taken:
        placed.errors.append(_there(taken))
    left = [path for path in files if path not in placed.written]
    for path, where in (await off_loop(lambda: _keep(ctx.scratch, {path: files[path] for path in left}))).items():
        placed.kept[path] = str(where.relative_to(ctx.root) if where.is_relative_to(ctx.root) else where)
        ctx.artifact(where, "implementation", f"Written by {by}; meant for {path}.")
    return placed


def _is_there(workspace: Path, path: str) -> bool:
    return os.path.lexists(workspace / path)


def _there(taken: list[str]) -> ErrorInfo:
    return ErrorInfo(
        type="validation",
        message=f"{', '.join(taken[:5])}{f' and {len(taken) - 5} more' if len(taken) > 5 else ''} already there, and not written over.",
        code="FILE_EXISTS",
        recoverable=True,
        recommendation="Give overwrite=true to have such files replaced, or move what was kept in the delegation's own folder.",
    )


def _keep(folder: Path, files: Mapping[str, str]) -> dict[str, Path]:
    """Below the folder of this delegation and nowhere else."""
    kept = {}
    for name, text in files.items():
        path = folder / KEPT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        kept[name] = path
    return kept
