"""What a registered agent says on its stream, done for the delegation that it has. What it has no work for is passed over in silence."""

import math
from typing import Any

from remit.core.errors import Failed, InvalidReturn, RemitError, Unavailable
from remit.flow.plain import clean
from remit.flow.receive import read_answer
from remit.proto.v1 import tasks_pb2 as pb
from remit.proto.values import json_of
from remit.serve.grpc.remote import Instance, Pool

MOST_TOKENS = 10**12
_WORDS = 2000
_UNAVAILABLE = "AGENT_UNAVAILABLE"


def heard(pool: Pool, instance: Instance, message: pb.AgentMessage) -> None:
    """Never raises: whatever is wrong with it is its sender's loss."""
    kind = message.WhichOneof("message")
    if kind is None or kind == "hello":
        return
    said = getattr(message, kind)
    if kind in ("done", "failed"):
        outcome = _result(said) if kind == "done" else _failure(said)
        pool.settle(instance, said.work_id, outcome)
        return
    work = instance.works.get(said.work_id)
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
            ctx.artifact(said.path, said.type or "data", said.summary)
        case "spent":  # what was drawn is never given back
            cost = said.cost if math.isfinite(said.cost) else 0.0
            ctx.spend(tokens=min(MOST_TOKENS, max(0, said.tokens)), cost=max(0.0, cost))


def _complain(ctx: Any, error: RemitError) -> None:
    try:
        ctx.progress(f"What it said was not taken: {error.message}")
    except RemitError:
        return


def _result(said: pb.WorkDone) -> Any:
    """The value; of what is meant as a return, the return (S3.7), or the fault that it is none."""
    value = json_of(said.result) if said.HasField("result") else None
    if not said.is_return:
        return value
    received = read_answer(value)
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
