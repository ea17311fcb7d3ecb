"""What a registered agent says on its stream, done for the delegation that it has. What it has no work for is passed over in silence."""

import math
from pathlib import Path
from typing import Any

from remit.core.errors import Failed, InvalidReturn, Misused, RemitError, Unavailable
from remit.flow.artifacts import FILE_CLOCK_LAG_SECONDS
from remit.flow.plain import clean
from remit.flow.receive import read_answer
from remit.proto.v1 import tasks_pb2 as pb
from remit.proto.values import json_of
from remit.serve.grpc.remote import Instance, Pool

MOST_NAMED = 1000
MOST_TOKENS = 10**12
_WORDS = 2000
_OURS = frozenset({".remit", ".git"})
_UNAVAILABLE = "AGENT_UNAVAILABLE"


def heard(pool: Pool, instance: Instance, message: pb.AgentMessage) -> None:
    """Never raises: whatever is wrong with it is its sender's loss."""
    kind = message.WhichOneof("message")
    if kind is None or kind == "hello":
        return
    said = getattr(message, kind)
    work = instance.works.get(said.work_id)
    if kind in ("done", "failed"):
        outcome = _failure(said) if kind == "failed" else _result(said, work.ctx) if work is not None else None
        pool.settle(instance, said.work_id, outcome)
        return
    if work is None:
        return
    try:
        _told(work.ctx, kind, said)
    except RemitError as error:  # its delegation has ended, or what it declares is none
        _complain(work.ctx, error)


def _told(ctx: Any, kind: str, said: Any) -> None:
    match kind:
        case "progress":
            fraction = said.fraction if said.HasField("fraction") and math.isfinite(said.fraction) else None
            ctx.progress(said.message, fraction)
        case "output":
            ctx.emit(json_of(said.chunk))
        case "artifact":
            if (fault := _not_its_own(ctx, said.path)) is not None:
                raise Misused(fault)
            ctx.artifact(said.path, said.type or "data", said.summary)
        case "spent":  # what was drawn is never given back
            cost = said.cost if math.isfinite(said.cost) else 0.0
            ctx.spend(tokens=min(MOST_TOKENS, max(0, said.tokens)), cost=max(0.0, cost))


def _not_its_own(ctx: Any, path: str) -> str | None:
    """Whoever sees a return may read its artifacts. So an agent that was only let in to serve cannot name any file of the project: what was
    there before its work, or is remit's or git's own, is none that it made."""
    try:
        place, root = Path(ctx.root, path).resolve(), Path(ctx.root).resolve()
        top = place.relative_to(root).parts[:1]  # outside of it there is none that it could have made
        if top and top[0].casefold() in _OURS and not place.is_relative_to(ctx.scratch.resolve()):
            return f"{path!r:.200} is not its to hand in."
        written_at = place.stat().st_mtime
    except (OSError, ValueError, RuntimeError):
        return None  # whether there is one is judged with its return
    if written_at < ctx._desk.running.started_wall - FILE_CLOCK_LAG_SECONDS:
        return f"{path!r:.200} was there before its work began."
    return None


def _complain(ctx: Any, error: RemitError) -> None:
    try:
        ctx.progress(f"What it said was not taken: {error.message}")
    except RemitError:
        return


def _result(said: pb.WorkDone, ctx: Any) -> Any:
    """The value; of what is meant as a return, the return (S3.7), or the fault that it is none."""
    value = json_of(said.result) if said.HasField("result") else None
    received = read_answer(value)
    named = received.candidate.get("artifacts") if received.candidate is not None else None
    for one in named[:MOST_NAMED] if isinstance(named, list) else ():  # also where it only looks like a return: it may be taken for one
        path = one.get("path") if isinstance(one, dict) else one
        if isinstance(path, str) and (fault := _not_its_own(ctx, path)) is not None:
            return InvalidReturn([f"artifacts: {fault}"])
    if isinstance(named, list) and len(named) > MOST_NAMED:
        return InvalidReturn([f"artifacts: more than {MOST_NAMED}"])
    if not said.is_return:
        return value
    if received.candidate is None:
        return InvalidReturn(received.faults)
    return {"status": None, "summary": "", **received.candidate}  # judged as a return, whatever is missing in it


def _failure(said: pb.WorkFailed) -> Any:
    message = clean(said.message)[:_WORDS] or "It failed, and did not say why."
    code = clean(said.code)[:100]
    if code == _UNAVAILABLE:
        return Unavailable(message)
    if said.recoverable:
        return Failed(message, code=code or None)
    error = {"type": "execution", "message": message, "code": code or "UNKNOWN_ERROR", "recoverable": False, "recommendation": ""}
    return {"status": "failed", "summary": message[:400], "artifacts": [], "errors": [error]}
