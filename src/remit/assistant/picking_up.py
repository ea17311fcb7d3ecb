"""A turn that was broken off, by a crash, an interrupt or the limit, is brought to an end before the next one begins.

Calls that have no result get it from the record of their delegation: what was done is not done again, and the model hears of it. Calls that
never became one are said to be so. Then the reply that was being given stands as far as it came. Only appends; runs nothing.
"""

from collections.abc import Callable
from typing import Protocol

from remit.assistant.conversations import Conversation, reply_of
from remit.assistant.history import NO_ANSWER
from remit.assistant.lines import Spoken, Started, Stopped, Turn
from remit.core.errors import Misused, RemitError
from remit.core.record import Record
from remit.flow.accept import normalised_call
from remit.models.messages import Reply, Result, ToolCall
from remit.tool.catalogue import DelegateError
from remit.tool.result import DelegateResult, result_of_record
from remit.tool.tool import DelegateTool

NOT_BEGUN = "The conversation was interrupted before this was begun: nothing was done."


class Records(Protocol):
    async def describe(self, session_id: str) -> Record: ...
    async def children(self, session_id: str) -> list[Record]: ...
    async def tree(self, session_id: str) -> list[Record]: ...


async def pick_up(
    conversation: Conversation, records: Records, tool: DelegateTool, shown: Callable[[DelegateResult], str], now: Callable[[], float]
) -> list[str]:
    """Ends a turn that has no answer. The delegations whose results were found; to be called while the conversation is held."""
    found = []
    for call, session_id in await _open_calls(conversation, records, tool):
        text, is_error = await _outcome(records, session_id, shown)
        result = Result(call_id=call.call_id, name=call.name, text=text, is_error=is_error)
        conversation.append(Spoken(at=now(), message=result, session_id=session_id))
        if session_id:
            found.append(session_id)
    last = conversation.spoken[-1] if conversation.spoken else None
    if last is not None and not (isinstance(last.message, Reply) and not last.message.calls):
        stopped = conversation.stopped or _last_stopped(conversation)
        reply = reply_of(stopped) if stopped is not None else Reply(text=NO_ANSWER)
        conversation.append(Spoken(at=now(), message=reply, stopped=stopped.why if stopped is not None else "interrupted"))
    return found


def _last_stopped(conversation: Conversation) -> Stopped | None:
    """Of the turn that is being ended; results may have been added behind it."""
    for line in reversed(conversation.lines):
        if isinstance(line, Stopped):
            return line
        if isinstance(line, Turn) or (isinstance(line, Spoken) and not isinstance(line.message, Result)):
            return None
    return None


async def _open_calls(conversation: Conversation, records: Records, tool: DelegateTool) -> list[tuple[ToolCall, str]]:
    """The calls of the last reply that have no result, each with the delegation it became; empty: none."""
    lines = conversation.lines
    place = next((n for n in reversed(range(len(lines))) if _is_reply(lines[n])), None)
    if place is None:
        return []
    line = lines[place]
    assert isinstance(line, Spoken)
    assert isinstance(line.message, Reply)
    after = lines[place + 1 :]
    answered = [one.message.call_id for one in after if isinstance(one, Spoken) and isinstance(one.message, Result)]
    if any(isinstance(one, Spoken) and not isinstance(one.message, Result) for one in after):
        return []
    pending = [call for call in line.message.calls if call.call_id not in answered]
    started = {one.call_id: one.session_id for one in after if isinstance(one, Started)}
    turn = next((one for one in reversed(lines[:place]) if isinstance(one, Turn)), None)
    named = {one.session_id for one in conversation.started}
    unnamed = await _unnamed(records, turn, named) if len(started) < len(pending) and turn is not None else []
    return [(call, started.get(call.call_id) or _match(call, unnamed, tool)) for call in pending]


def _is_reply(line: object) -> bool:
    return isinstance(line, Spoken) and isinstance(line.message, Reply)


async def _unnamed(records: Records, turn: Turn, named: set[str]) -> list[Record]:
    """Delegations of the turn that no line names: the process died between the one and the other."""
    try:
        return [record for record in await records.children(turn.session_id) if record.session_id not in named]
    except RemitError:
        return []


def _match(call: ToolCall, unnamed: list[Record], tool: DelegateTool) -> str:
    """The newest of them that is this call; each is somebody's only once."""
    try:
        request = tool.read(call.arguments)
    except (DelegateError, Misused):
        return ""
    asked = normalised_call(request.agent, request.parameters)
    for record in reversed(unnamed):
        if normalised_call(record.agent, record.parameters) == asked:
            unnamed.remove(record)
            return record.session_id
    return ""


async def _outcome(records: Records, session_id: str, shown: Callable[[DelegateResult], str]) -> tuple[str, bool]:
    if not session_id:
        return NOT_BEGUN, True
    try:
        record = await records.describe(session_id)
    except RemitError:
        return f"What came of {session_id} is no longer on record. Look before you make it again.", True
    if record.result is None:
        return f"{session_id} had not ended when the conversation was interrupted. Read it later: results.read, taskId {session_id}.", True
    return shown(result_of_record(record)), not record.result.ok
