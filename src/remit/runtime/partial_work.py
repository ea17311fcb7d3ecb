"""The work of a stopped delegation: declared artifacts, changed files, output, the last checkpoint, a late answer.

Bounded: the return is due a second after the deadline, and killing the agent may have taken part of that."""

import asyncio
from typing import Any

from pydantic_core import to_json

from remit.core.events import EventKind
from remit.core.result import Artifact, Return
from remit.runtime.harvest import HARVEST_SECONDS, HarvestRequest, harvest
from remit.runtime.local_context import LocalRun, Output
from remit.runtime.reply import PartialWork
from remit.runtime.workspace_session import (
    changes_since,
    describe_workspace,
    kept_message,
    late_changes,
    with_workspace_changes,
)
from remit.system.artifact_files import checked_artifacts
from remit.system.files import write_beside
from remit.system.threads import off_loop

GATHERED_SECONDS = 0.7
"""After the hard deadline: end of the harvest, which may overrun by a tenth of a second."""
LEAST_GATHERING_SECONDS = 0.1
WRITING_SECONDS = 0.5
INLINE_DATA_BYTES = 64 * 1024
ANSWER_SECONDS = 0.85
"""After the hard deadline: the diff of a workspace is not awaited any longer."""
LEAST_DIFF_SECONDS = 0.2
MOST_DIFF_SECONDS = 0.6


async def collect_partial_work(
    work: LocalRun, output: Output | None, late: Return | None, *, foreign: frozenset[str] = frozenset()
) -> PartialWork:
    """`late`: an answer that arrived during the stop; `foreign`: files declared by other live delegations."""
    workspace = work.own_workspace
    diff = (
        asyncio.ensure_future(late_changes(work, max(LEAST_DIFF_SECONDS, min(work.remaining() + ANSWER_SECONDS, MOST_DIFF_SECONDS))))
        if work.has_workspace
        else None
    )
    since = min(work.started_wall, work.deps.clock.wall() - work.elapsed())  # also if the wall clock was set back
    if workspace is not None:
        since = changes_since(workspace) if work.has_workspace else max(since, changes_since(workspace))
    request = HarvestRequest(
        root=work.root,
        scratch=work.scratch_path,
        since=since,
        declared=work.declared(),
        scan_root=work.may_write or work.has_workspace,
        foreign=foreign,
        below="" if workspace is None else workspace.inside,
    )
    late_by, seconds = -work.remaining(), HARVEST_SECONDS
    if late_by >= 0:  # not cancelled or out of budget: less if the kill took long
        seconds = min(HARVEST_SECONDS, max(LEAST_GATHERING_SECONDS, GATHERED_SECONDS - late_by))
    found = await harvest(request, seconds=seconds)
    if diff is not None and workspace is not None:
        changes, notes = await diff
        found = await with_workspace_changes(workspace, found, changes, (kept_message(workspace), *notes))
    artifacts, warnings = found.artifacts, [*work.warnings, *found.warnings]
    if late is not None:
        known = {a.path for a in artifacts}
        artifacts = (*artifacts, *(a for a in late.artifacts if a.path not in known))
        warnings.extend(late.warnings)
    if output is not None and output.dropped:
        warnings.append(f"{output.dropped} chunks beyond the limit were not kept.")
    data, reference = await _data(work, output, late)
    left = PartialWork(artifacts=(*artifacts, *reference), data=data, errors=tuple(work.child_errors()), warnings=tuple(warnings))
    if workspace is None or not work.has_workspace:
        return left
    return left._replace(workspace=describe_workspace(workspace))


async def _data(work: LocalRun, output: Output | None, late: Return | None) -> tuple[Any, tuple[Artifact, ...]]:
    """Chunks and checkpoint for the return; by reference if they are large."""
    chunks = [event.body["chunk"] for event in (() if output is None else output.events) if event.kind is EventKind.DATA]
    data: dict[str, Any] = {}
    if late is not None and late.data is not None:
        data["late_answer"] = late.data
    if chunks:
        data["chunks"] = chunks
    if work.saved is not None:
        data["checkpoint"] = work.saved
    if not data:
        return None, ()
    text = to_json(data, inf_nan_mode="null", indent=1)
    if len(text) <= INLINE_DATA_BYTES:
        return data, ()
    try:
        async with asyncio.timeout(WRITING_SECONDS):
            path = await off_loop(write_beside, work.scratch(), "harvest.json", text)
    except (OSError, TimeoutError):
        return data, ()  # a full or stuck disk: a long return is better than a lost one
    artifact = Artifact(type="data", path=path.relative_to(work.root).as_posix(), summary="Chunks streamed and the last checkpoint.")
    checked = await off_loop(checked_artifacts, work.root, (artifact,))
    return {"by_reference": artifact.path, "chunks": len(chunks)}, checked
