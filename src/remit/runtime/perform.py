"""Performs a delegation: runs its agent, receives the answer, validates it (with one repair), checks its claims, and builds the return.

Runs inside an engine, which enforces the deadline. A cancellation passes through unchanged: the engine knows its reason. So does
`OutOfTime`: an agent that ended at the soft deadline without an answer is harvested as at the hard one."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.core.agents import GROUP, Answers, Isolation, WorkspaceKind, is_built_in
from remit.core.context import Repair, forgotten_await
from remit.core.delegation import Delegation
from remit.core.errors import ErrorInfo, Failed, InvalidReturn, Misused, OutOfTime, Stopped
from remit.core.jsonable import MAX_CHARACTERS, clean_text, safe_repr, to_jsonable
from remit.core.result import NOTHING, Artifact, Evidence, Metadata, Return, Status, StopReason
from remit.core.text import SUMMARY_LIMIT, shorten_with_count
from remit.runtime import reply
from remit.runtime.authorize import await_admission
from remit.runtime.local_context import LocalRun
from remit.runtime.reply import MAX_ERROR_CHARACTERS, OperationAnswer, describe_exception, error_of, format_traceback, stop_reason_of
from remit.system.artifact_files import checked_artifacts
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.runtime.receive import ReceivedAnswer


_SHARED = WorkspaceKind.SHARED
_PROCESS_OF_ITS_OWN = Isolation.PROCESS
_MONITOR, _RECEIVE, _VALIDATE, _PROCESS = 7, 8, 9, 10
_SCALARS = frozenset({type(None), bool})
_INT64 = 1 << 63
LONG_TEXT = 32 * 1024
_AMID_PROSE = ("fence", "prose")


async def perform(work: LocalRun) -> Return:
    """Run, receive, validate, process: the return of an uninterrupted delegation."""
    spec = work.agent.spec
    pending = work.submission.pending
    if pending is not None and (refusal := await await_admission(work, pending)) is not None:
        return refusal
    if spec.effects or spec.isolation is _PROCESS_OF_ITS_OWN:
        work.submission.tree.note_agent(spec)
    try:
        if work.delegation.accept or work.delegation.task is not None or spec.workspace is not _SHARED:
            await _prepare_folder(work)
        if spec.output_schema is not None:
            from remit.runtime.output_schema import library

            library()  # raises if it is not installed: before the work, not after it
        ctx = work.ctx
        run = work.agent.perform(ctx, work.submission.arguments) if not spec.retries else _run(work)
        answer = await run
        if ctx.unawaited:
            raise forgotten_await(ctx, spec.name)
    except OutOfTime as early:
        return await _ended_early(work, early)
    except Exception as error:  # noqa: BLE001 - any exception of the agent's code becomes its return
        work.stamp(_MONITOR, _RECEIVE)
        return reply.with_agent_session(await _raised(work, error), work.saved)
    kind = answer.__class__
    is_plain = kind in _SCALARS or (kind is str and len(answer) <= MAX_CHARACTERS) or (kind is int and -_INT64 < answer < _INT64)
    if is_plain and spec.answers is Answers.VALUE and spec.output_schema is None and not spec.requires_artifacts and not work.artifacts:
        # Fast path for the frequent case: a value that is the data of a return.
        value = clean_text(answer) if kind is str else answer
        result = completed_return(work.delegation, value, work.elapsed(), warnings=work.warnings)
        work.stamp(_MONITOR, _PROCESS)
        if work.failures or work.delegation.accept or work.own_workspace is not None or work.delegation.task is not None:
            result = await _processed(work, result)
            work.stamp(_PROCESS)
    else:
        work.stamp(_MONITOR, _RECEIVE)
        result = await _received(work, answer)
        work.stamp(_VALIDATE)
        work.submission.tree.note_result(spec, work.delegation.parameters, result.data)
        result = await _processed(work, result)
        work.stamp(_PROCESS)
    return result if work.saved is None and work.submission.watched is None else await _noted(work, result)


async def _noted(work: LocalRun, result: Return) -> Return:
    """The return with metadata for the next run and the result cache."""
    if work.submission.watched is not None:
        result = await work.submission.watched.note_in(result)
    return result if work.saved is None else reply.with_agent_session(result, work.saved)


async def _prepare_folder(work: LocalRun) -> None:
    """Set the working folder: the worktree of its task, its own folder, its caller's, or the project."""
    delegation, spec = work.delegation, work.agent.spec
    if delegation.accept:  # refused before the work, not after it
        await work.acceptance_site().require()
    if delegation.task is not None and work.submission.caller is None and "workspace" in delegation.task.extra:
        from remit.runtime.task_workspace import place

        await place(work)
    if spec.workspace is WorkspaceKind.WORKTREE:  # imported only if needed
        from remit.runtime.workspace_session import open_session

        await open_session(work)


def completed_return(
    delegation: Delegation,
    value: Any,
    duration_seconds: float,
    *,
    artifacts: tuple[Artifact, ...] = (),
    warnings: tuple[str, ...] = (),
    summary: str = "",
) -> Return:
    """A completed return for the value of a function; `value` is already plain JSON."""
    lineage = delegation.lineage
    fields = (lineage.session_id, delegation.agent, lineage.depth, lineage.path, duration_seconds, NOTHING)
    metadata = tuple.__new__(Metadata, fields)  # bypasses its Python constructor: every delegation passes here
    if not summary:
        is_text = value.__class__ is str and value.strip()
        summary = f"{delegation.agent} finished." if not is_text else value if len(value) <= SUMMARY_LIMIT else shorten_with_count(value)
    return Return.completed(summary, metadata, value, artifacts, warnings)


async def _ended_early(work: LocalRun, early: OutOfTime) -> Return:
    if early.answer is None:
        raise early
    work.stamp(_MONITOR, _RECEIVE)
    result = await _processed(work, await _received(work, early.answer))
    work.stamp(_VALIDATE, _PROCESS)
    return replace(result, stop_reason=StopReason.BUDGET if early.code == "BUDGET_EXCEEDED" else StopReason.DEADLINE)


async def _run(work: LocalRun) -> Any:
    """The agent's answer, with the retries that it declares safe."""
    spec = work.agent.spec
    for attempt in range(1, spec.retries + 1):
        try:
            return await work.agent.perform(work.ctx, work.submission.arguments)
        except (Misused, Stopped, InvalidReturn):
            raise
        except Exception as error:
            pause = min(0.05 * 2 ** min(attempt, 10), 5.0)
            if work.remaining() <= pause:
                raise
            work.notice(f"Attempt {attempt} failed ({describe_exception(error)}); trying again, {spec.retries - attempt + 1} left.")
            await asyncio.sleep(pause)
    return await work.agent.perform(work.ctx, work.submission.arguments)


async def _received(work: LocalRun, answer: Any) -> Return:
    """The answer as a checked return, after at most one repair."""
    spec = work.agent.spec
    if answer.__class__ is OperationAnswer and not work.declared():
        data, summary = to_jsonable(answer["data"]), clean_text(answer["summary"])
        result = completed_return(work.delegation, data, work.elapsed(), warnings=work.warnings, summary=summary)
        return replace(result, next_steps=answer["next_steps"]) if answer["next_steps"] else result
    if spec.answers is Answers.VALUE and not looks_like_return(answer) and not isinstance(answer, Return):
        return await _from_value(work, answer)
    try:
        return await _judged(work, answer)
    except InvalidReturn as invalid:
        faults, original = invalid.faults, (await _read(answer)).original
    originals = [original]
    if spec.answers is Answers.RETURN and work.remaining() > 0:
        work.notice(f"The return was not valid ({'; '.join(faults)[:300]}); asking once more.")
        work.ask_again(Repair(faults=faults, original=original))
        try:
            second = await work.agent.perform(work.ctx, work.submission.arguments)
            result = await _judged(work, second)
            result = replace(result, warnings=(*result.warnings, "The first return was not valid; this is the repaired one."))
            return await _with_original(work, result, original)
        except OutOfTime:
            raise
        except InvalidReturn as invalid:
            faults = invalid.faults
            originals.append((await _read(second)).original)  # beside the first, which usually contains the work
        except Exception as error:  # noqa: BLE001 - any exception of the agent's code, as in `perform`
            faults = (*faults, f"and the repair failed: {describe_exception(error)}")
            return replace(await _unreadable(work, faults, *originals), traceback=format_traceback(error))
    return await _unreadable(work, faults, *originals)


async def _from_value(work: LocalRun, answer: Any) -> Return:
    try:
        value = to_jsonable(answer)
    except Failed as failed:
        return await _unreadable(work, (f"data: the agent returned {failed.message}",), safe_repr(answer))
    if (schema := work.agent.spec.output_schema) is not None:
        from remit.runtime.output_schema import schema_faults

        if faults := await off_loop(schema_faults, value, schema):
            return await _unreadable(work, faults, safe_repr(answer))
    declared = work.declared()
    if not declared and not work.agent.spec.requires_artifacts:
        return completed_return(work.delegation, value, work.elapsed(), warnings=work.warnings)
    candidate = completed_return(work.delegation, value, work.elapsed(), artifacts=declared).to_dict()
    try:
        result = await _judged(work, candidate)
    except InvalidReturn as invalid:
        return await _unreadable(work, invalid.faults, "")
    return _without_advice(result)  # the summary is remit's or the value itself


def _without_advice(result: Return) -> Return:
    """Without advice on the style of its summary, which its agent did not write."""
    return replace(result, warnings=tuple(w for w in result.warnings if not w.startswith("summary:")))


async def _judged(work: LocalRun, answer: Any) -> Return:
    """The parsed and validated answer, with artifacts that were declared during the work."""
    from remit.runtime.validate import ExpectedReturn, validate_jsonable, validate_return

    received = await _read(answer, work.return_file())
    if received.candidate is None:
        raise InvalidReturn(received.faults)
    delegation, workspace = work.delegation, work.own_workspace
    expected = ExpectedReturn(
        root=work.root,
        workspace="" if workspace is None else workspace.inside,
        session_id=delegation.session_id,
        agent=delegation.agent,
        depth=delegation.lineage.depth,
        path=delegation.lineage.path,
        started_at=_started_at(work),
        duration_seconds=work.elapsed(),
        requires_artifacts=work.agent.spec.requires_artifacts,
        output_schema=work.agent.spec.output_schema,
        stop_at=time.monotonic() + work.remaining(),
    )
    candidate = _completed_by_us(work, received.candidate)
    takes_long = bool(candidate.get("artifacts")) or expected.output_schema is not None
    # artifacts declared during the work are added with the agent's own values
    judged = validate_return if work.declared() else validate_jsonable
    result = await off_loop(judged, candidate, expected) if takes_long else judged(candidate, expected)
    spec = work.agent.spec
    if result.warnings and spec.acts_for_caller:
        result = _without_advice(result)
    # Remit sets the stop reason: an agent that returned has finished, unless a built-in operation reports a timeout.
    is_late = bool(result.errors) and result.errors[0].code == "TIMEOUT" and is_built_in(spec) and not spec.acts_for_caller
    reason = StopReason.DEADLINE if is_late else StopReason.FINISHED
    if work.warnings or result.stop_reason is not reason:
        result = replace(result, warnings=(*work.warnings, *result.warnings), stop_reason=reason)
    return result if received.found not in _AMID_PROSE else await _with_original(work, result, received.original)


async def _with_original(work: LocalRun, result: Return, original: str) -> Return:
    """Keep the text around a return, or the answer before a repair, beside the return."""
    kept = await off_loop(work.keep_prose, original)
    seen = await off_loop(checked_artifacts, work.root, (kept,)) if kept is not None else ()
    return replace(result, artifacts=(*result.artifacts, *seen))


async def _read(answer: Any, return_file: Path | None = None) -> "ReceivedAnswer":
    """Parse long text on a thread: searching megabytes of prose must not block the loop."""
    from remit.runtime.receive import read_answer

    if return_file is not None or (isinstance(answer, str | bytes) and len(answer) > LONG_TEXT):
        return await off_loop(read_answer, answer, return_file)
    return read_answer(answer)


def _completed_by_us(work: LocalRun, candidate: dict[str, Any]) -> dict[str, Any]:
    """Fill in the fields that remit knows. A Python agent's mapping need not repeat them; a language model must echo its session."""
    listed = candidate.get("artifacts")
    below = "" if work.own_workspace is None else f"{work.own_workspace.inside}/"
    declared = [{**a.to_dict(), "path": a.path.removeprefix(below)} for a in work.declared()]
    if declared and (listed is None or isinstance(listed, list)):
        paths = {str(a.get("path")).removeprefix(below) for a in listed or () if isinstance(a, dict)}
        candidate = {**candidate, "artifacts": [*(listed or ()), *(a for a in declared if a["path"] not in paths)]}
    if work.agent.spec.answers is Answers.RETURN:
        return candidate
    ours = reply.metadata_of(work.delegation, work.elapsed()).to_dict()
    ours["agent_type"], ours["delegation_path"] = clean_text(work.delegation.agent), [clean_text(name) for name in ours["delegation_path"]]
    theirs = candidate.get("metadata")
    metadata = {**ours, **theirs} if isinstance(theirs, dict) else ours if theirs is None else theirs
    return {"artifacts": [], "errors": [], **candidate, "metadata": metadata}


async def _unreadable(work: LocalRun, faults: Sequence[str], *originals: str) -> Return:
    """No return could be parsed: keep the prose and name the fault for the agent's author."""
    prose = [await off_loop(work.keep_prose, original) for original in dict.fromkeys(originals) if original.strip()]
    kept = [artifact for artifact in prose if artifact is not None]
    artifacts = await off_loop(checked_artifacts, work.root, (*work.declared(), *kept))
    where = f" Its answer is kept in {' and '.join(one.path for one in kept)}." if kept else ""
    error = ErrorInfo(
        type="validation",
        message=clean_text("; ".join(faults))[:MAX_ERROR_CHARACTERS],
        code="VALIDATION_FAILED",
        recoverable=True,
        recommendation=f"Fix {work.delegation.agent} subagent return format.{where} Delegate it again with "
        f"resume={work.delegation.session_id} to ask once more.",
    )
    return reply.failed_return(
        work.delegation,
        (error, *work.child_errors()),
        duration_seconds=work.elapsed(),
        stop_reason=StopReason.INVALID_RETURN,
        artifacts=artifacts,
        warnings=work.warnings,
    )


async def _raised(work: LocalRun, error: Exception) -> Return:
    if isinstance(error, InvalidReturn) and error.original:
        return await _processed(work, await _unreadable(work, error.faults, error.original))
    declared = work.declared()
    artifacts = await off_loop(checked_artifacts, work.root, declared) if declared else ()
    told = error_of(error, work.agent.spec)
    if told.code == "AGENT_RAISED":
        told = replace(told, recommendation=f"{told.recommendation} See where: `remit show {work.delegation.session_id} --trace`.")
    result = reply.failed_return(
        work.delegation,
        (told, *work.child_errors()),
        duration_seconds=work.elapsed(),
        stop_reason=stop_reason_of(error),
        artifacts=artifacts,
        warnings=work.warnings,
    )
    result = replace(result, traceback=format_traceback(error))
    return await _left(work, result) if work.has_workspace else result


def _started_at(work: LocalRun) -> float:
    """Files that are not older are its work."""
    if work.own_workspace is None:
        return work.started_wall
    from remit.runtime.workspace_session import changes_since

    begun = changes_since(work.own_workspace)
    return begun if work.has_workspace else max(work.started_wall, begun)


async def _left(work: LocalRun, result: Return, *, is_proven: bool = True) -> Return:
    """Leave its own folder and add its changes, before acceptance commands can change more."""
    from remit.runtime.workspace_session import close_session, with_changes

    result = await with_changes(work, result)
    return await close_session(work, result if is_proven else await _proven(work, result))


async def _processed(work: LocalRun, result: Return) -> Return:
    """Check the claims of the return."""
    if work.own_workspace is not None and work.own_workspace.task and work.submission.caller is None:
        from remit.runtime.task_workspace import with_verdict

        return await with_verdict(work, result, partial(_proven, work))
    result = await _left(work, result, is_proven=False) if work.has_workspace else await _proven(work, result)
    task = work.delegation.task
    if task is not None and task.extra.get("requires_files") is True and work.submission.caller is None:
        return _with_files(work.delegation, result)
    return result


def _with_files(delegation: Delegation, result: Return) -> Return:
    """A board task is `completed` only with a file, because the board requires one."""
    deleted = result.data.get("deleted") if isinstance(result.data, Mapping) else None
    if result.status is not Status.COMPLETED or deleted or any(not one.path.startswith(".remit/scratch/") for one in result.artifacts):
        return result
    error = ErrorInfo(
        type="validation",
        code="VALIDATION_FAILED",
        message=f"{delegation.agent} reports completed, but names no project file that it created or changed.",
        recoverable=True,
        recommendation="Look at what it did (`git status`); then run it again, or mark the phase [COMPLETED] in the plan yourself.",
    )
    return replace(result, status=Status.FAILED, summary=error.message, errors=(*result.errors, error), next_steps=error.recommendation)


async def _proven(work: LocalRun, result: Return) -> Return:
    """Add errors of failed children and run acceptance commands."""
    errors = work.child_errors()
    if errors:
        result = with_child_errors(result, errors)
    if result.status is not Status.COMPLETED:
        return result if result.next_steps or not result.errors else replace(result, next_steps=reply.advice(result.errors))
    if not work.delegation.accept or work.agent.spec.kind == GROUP:  # its member was already checked
        return result
    from remit.runtime.verify import run_acceptance

    work.hold(result)
    work.notice(f"Running {len(work.delegation.accept)} acceptance command(s).")
    acceptance = await run_acceptance(work.delegation.accept, work.acceptance_site(), seconds_left=work.remaining())
    unmet = acceptance.error
    if unmet is not None:
        advice = f"{unmet.recommendation} Delegate it again with resume={work.delegation.session_id} to continue from there."
        unmet = replace(unmet, recommendation=advice)
    if unmet is None:
        artifacts = tuple(replace(a, evidence=Evidence.VERIFIED) for a in result.artifacts)
        return replace(result, artifacts=artifacts, evidence=Evidence.VERIFIED)
    return replace(
        result,
        status=Status.PARTIAL,
        summary=shorten_with_count(f"The agent reported completion, but acceptance failed. {unmet.message}"),
        errors=(*result.errors, unmet),
        next_steps=unmet.recommendation,
    )


def with_child_errors(result: Return, errors: Sequence[ErrorInfo]) -> Return:
    """Add the errors of failed children: to the errors of a return that is not completed, else to its warnings."""
    if result.status is Status.COMPLETED:
        return replace(result, warnings=(*result.warnings, *(f"A child failed: {e.message}" for e in errors)))
    known = {(e.code, e.message) for e in result.errors}
    return replace(result, errors=(*result.errors, *(e for e in errors if (e.code, e.message) not in known)))


def looks_like_return(value: Any) -> bool:
    """Whether a mapping is meant as a return: a status with a summary, artifacts or metadata."""
    return isinstance(value, Mapping) and "status" in value and not {"summary", "artifacts", "metadata"}.isdisjoint(value)
