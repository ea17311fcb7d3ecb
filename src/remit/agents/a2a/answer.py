"""What a remote handed back, as a return (S3): its state, words and data; files are kept in the scratch folder, under names of ours.

Nothing it says is believed beyond that: paths are not its to choose, sizes are bounded, and addresses it names are never fetched.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from a2a.types import Artifact, Message, Part, Task, TaskState

from remit.agents.a2a.gathered import STREAM, Gathered, words_of
from remit.agents.definition import Definition
from remit.core.errors import OutOfTime
from remit.core.result import ARTIFACT_TYPES
from remit.flow.context import Context
from remit.flow.reply import shortened
from remit.proto.extension import EXTENSION
from remit.proto.values import dict_of, json_of
from remit.system.threads import off_loop

FILE_BYTES, FILES_BYTES, MOST_FILES = 16 * 1024 * 1024, 32 * 1024 * 1024, 100
RESULT = "result"
"""Of a remit: the artifact of the data it handed back."""
_UNFIT = re.compile(r"[^\w.-]+")
_STATUSES = ("completed", "partial", "failed", "blocked")


async def answer_of(gathered: Gathered, definition: Definition, ctx: Context) -> dict[str, Any]:
    """A return, as an agent writes one; `flow.validate` judges it."""
    name = definition.name
    if gathered.message is not None:
        return _of_message(gathered.message, name)
    task = gathered.task
    assert task is not None
    said = dict_of(task.metadata)
    words = words_of(task.status.message)
    answer: dict[str, Any] = {
        "status": _status(task, said),
        "data": data_of(task.artifacts),
        "remote": {"task_id": task.id, "context_id": task.context_id, "state": TaskState.Name(task.status.state)},
    }
    reason = said.get("stopReason", said.get("stop_reason"))  # older remits write it in snake case
    if isinstance(reason, str):
        answer["remote"]["stop_reason"] = reason[:100]
    answer["summary"] = _summary(said, words, name)
    answer["errors"] = [] if answer["status"] == "completed" else _errors(task, said, words, ctx)
    if notes := await _keep_files(task.artifacts, ctx):
        answer["warnings"] = notes
    if answer["status"] == "partial" and reason == "deadline":
        raise OutOfTime(answer["summary"], answer=answer)  # its time was ours, a little less
    return answer


def _of_message(message: Message, name: str) -> dict[str, Any]:
    words = words_of(message)
    parts = [_value(part) for part in message.parts]
    data = parts[0] if len(parts) == 1 else parts
    return {"status": "completed", "summary": shortened(words) or f"{name} answered.", "data": data, "artifacts": [], "errors": []}


def _status(task: Task, said: dict[str, Any]) -> str:
    match task.status.state:
        case TaskState.TASK_STATE_COMPLETED:
            # A remit says when it is not all that was asked for; whatever else it may say there, it is not completed.
            return "completed" if said.get("status") in (None, "completed") or EXTENSION not in said else "partial"
        case TaskState.TASK_STATE_INPUT_REQUIRED | TaskState.TASK_STATE_AUTH_REQUIRED:
            return "blocked"
        case _:
            return "failed"


def _summary(said: dict[str, Any], words: str, name: str) -> str:
    own = said.get(EXTENSION)
    told = own.get("summary") if isinstance(own, dict) else None
    return shortened(told if isinstance(told, str) and told.strip() else words) or f"{name} has ended."


def _errors(task: Task, said: dict[str, Any], words: str, ctx: Context) -> list[dict[str, Any]]:
    own = said.get(EXTENSION)
    given = own.get("errors") if isinstance(own, dict) else None
    told = [one for one in (_error(error) for error in given[:20]) if one is not None] if isinstance(given, list) else []
    if told:
        return told
    again = f"Delegate it again with resume={ctx.session_id}, and what it asks for as its task."
    match task.status.state:
        case TaskState.TASK_STATE_INPUT_REQUIRED:
            return [_said("input_required", "INPUT_REQUIRED", words or "It asks for something, without saying what.", again, True)]
        case TaskState.TASK_STATE_AUTH_REQUIRED:
            return [_said("auth_required", "AUTH_REQUIRED", words or "It asks to be let in somewhere.", again, True)]
        case TaskState.TASK_STATE_REJECTED:
            return [_said("rejected", "REJECTED", words or "It refused the task.", "Ask for something else.", False)]
        case TaskState.TASK_STATE_CANCELED:
            return [_said("cancelled", "CANCELLED", words or "It was cancelled over there.", "Delegate it again.", True)]
        case _:
            return [_said("execution", "UNKNOWN_ERROR", words or "It failed, without saying why.", "Look into it over there.", True)]


def _error(given: object) -> dict[str, Any] | None:
    if not isinstance(given, dict) or not isinstance(given.get("message"), str) or not given["message"].strip():
        return None
    texts = {name: given[name][:2000] for name in ("type", "message", "code", "recommendation") if isinstance(given.get(name), str)}
    return {"type": "execution", **{name: text for name, text in texts.items() if text}, "recoverable": given.get("recoverable") is True}


def _said(kind: str, code: str, message: str, advice: str, is_recoverable: bool) -> dict[str, Any]:
    return {"type": kind, "code": code, "message": message[:2000], "recoverable": is_recoverable, "recommendation": advice}


# ---- data


def data_of(artifacts: Sequence[Artifact]) -> Any:
    """The one thing it handed back, or all of them by their names. Files are no data."""
    ours = next((one for one in artifacts if one.artifact_id == RESULT), None)
    if ours is not None and len(ours.parts) == 1:
        return _value(ours.parts[0])
    named = [(one.name or one.artifact_id, _values(one)) for one in artifacts if one.artifact_id != STREAM or len(artifacts) == 1]
    found = [(name, values) for name, values in named if values]
    if not found:
        return None
    if len(found) == 1:
        return _joined(found[0][1])
    return [{"name": name, "data": _joined(values)} for name, values in found]


def _values(artifact: Artifact) -> list[Any]:
    return [_value(part) for part in artifact.parts if part.WhichOneof("content") in ("text", "data", "url")]


def _joined(values: list[Any]) -> Any:
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    return values[0] if len(values) == 1 else values


def _value(part: Part) -> Any:
    match part.WhichOneof("content"):
        case "text":
            return part.text
        case "data":
            return json_of(part.data)
        case "url":
            return {"url": part.url, "filename": part.filename}
    return None


# ---- files


async def _keep_files(artifacts: Sequence[Artifact], ctx: Context) -> list[str]:
    """What was not kept, in words."""
    room, count, notes = FILES_BYTES, 0, list[str]()
    files = [(one, part) for one in artifacts for part in one.parts if part.WhichOneof("content") == "raw"]
    for artifact, part in files:
        count += 1
        if len(part.raw) > min(room, FILE_BYTES) or count > MOST_FILES:
            notes.append(f"A file of {len(part.raw)} bytes from there was not kept: it is too large, or there are too many.")
            continue
        room -= len(part.raw)
        kept = await off_loop(_written, ctx.scratch / "remote", safe_name(part.filename or artifact.name, count), part.raw)
        kind = dict_of(part.metadata).get("type")
        ctx.artifact(kept, kind if kind in ARTIFACT_TYPES else "data", artifact.description or f"From {artifact.name or 'there'}"[:200])
    return notes[:20]


def safe_name(given: str, number: int) -> str:
    """A name of ours for it: letters, digits, dots and hyphens, no folder, nothing hidden, and no two alike."""
    name = _UNFIT.sub("_", given.replace("\\", "/").rpartition("/")[2]).strip("._")[-80:].lstrip("._-")
    return f"{number:03d}-{name or 'file'}"


def _written(folder: Path, name: str, content: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.unlink(missing_ok=True)  # of a try before
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    return path
