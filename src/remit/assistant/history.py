"""What a model is shown of a conversation: always a history that every provider takes, whatever stands in the file.

It begins with the person, each call has its result right behind the reply that made it, no result is without its call, nothing is empty,
and person and model take turns. Pure. `compacting` says what is old, `bounding` how long a part may be.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from remit.assistant.conversations import Conversation
from remit.models.messages import Message, Reply, Result, Said, ToolCall

LOST = "It is not known what came of this call: the conversation was interrupted. Look before you make it again."
NO_ANSWER = "[I was interrupted before I could answer.]"
NO_BEGINNING = "(The beginning of this conversation is missing.)"


@dataclass(slots=True)
class History:
    messages: list[Message] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)
    """Of each message, its place among all that was said in the conversation; of one that we put in, that of the next."""


def history_of(conversation: Conversation, preamble: str = "") -> History:
    """What was said since the last compaction, after the `preamble` that stands for the rest."""
    spoken = conversation.spoken
    first = 0 if conversation.compacted is None else min(conversation.compacted.count, len(spoken))
    mender = _Mender(preamble)
    for place in range(first, len(spoken)):
        if spoken[place].by:  # what we told the model in an earlier turn: to answer now, that its answer was empty
            continue
        mender.add(spoken[place].message, place)
    return mender.finished(len(spoken))


def mended(messages: Sequence[Message]) -> list[Message]:
    """The same for messages of any origin."""
    mender = _Mender("")
    for place, message in enumerate(messages):
        mender.add(message, place)
    return mender.finished(len(messages)).messages


class _Mender:
    def __init__(self, preamble: str) -> None:
        self._history = History()
        self._owed: list[tuple[str, ToolCall]] = []
        """Calls that have no result yet: the id they came with, and the call as it goes out."""
        self._preamble = preamble

    def add(self, message: Message, place: int) -> None:
        if isinstance(message, Result):
            self._result(message, place)
            return
        if isinstance(message, Reply) and not message.calls and not message.text.strip():
            return
        self._settle(place)
        if isinstance(message, Said):
            self._said(message, place)
        else:
            self._reply(message, place)

    def finished(self, place: int) -> History:
        self._settle(place)
        if not self._history.messages and self._preamble:
            self._begin("", place)
        return self._history

    def _result(self, message: Result, place: int) -> None:
        found = next((number for number, (given, _) in enumerate(self._owed) if given == message.call_id), None)
        if found is not None:
            _, call = self._owed.pop(found)
            text = message.text if message.text.strip() else "(nothing)"
            self._put(replace(message, call_id=call.call_id, name=call.name, text=text), place)

    def _settle(self, place: int) -> None:
        for _, call in self._owed:
            self._put(Result(call_id=call.call_id, name=call.name, text=LOST, is_error=True), place)
        self._owed = []

    def _said(self, message: Said, place: int) -> None:
        text = message.text if message.text.strip() else "(nothing)"
        if not self._history.messages:
            self._begin(text, place)
        else:
            if not isinstance(self._history.messages[-1], Reply):
                self._put(Reply(text=NO_ANSWER), place)
            self._put(Said(text=text), place)

    def _reply(self, message: Reply, place: int) -> None:
        if not self._history.messages:
            self._begin("", place)
        reply = _with_own_ids(message)
        last = self._history.messages[-1]
        if isinstance(last, Reply):
            words = "\n\n".join(text for text in (last.text, reply.text) if text.strip())
            self._history.messages[-1] = replace(reply, text=words, raw=None)
        else:
            self._put(reply, place)
        self._owed = [(given.call_id, call) for given, call in zip(message.calls, reply.calls, strict=True)]

    def _begin(self, text: str, place: int) -> None:
        words = "\n\n".join(part for part in (self._preamble, text) if part)
        self._put(Said(text=words or NO_BEGINNING), place)

    def _put(self, message: Message, place: int) -> None:
        self._history.messages.append(message)
        self._history.origins.append(place)


def _with_own_ids(reply: Reply) -> Reply:
    """Some models give one id to several calls."""
    ids = [call.call_id for call in reply.calls]
    if len(set(ids)) == len(ids) and all(ids):
        return reply
    calls = tuple(replace(call, call_id=f"{call.call_id or 'call'}-{number}") for number, call in enumerate(reply.calls))
    return replace(reply, calls=calls, raw=None)


def faults_of(messages: Sequence[Message]) -> list[str]:
    """Why a provider would refuse it; empty where none would."""
    faults: list[str] = []
    owed: list[str] = []
    last: Message | None = None
    for number, message in enumerate(messages):
        if isinstance(message, Result):
            if message.call_id not in owed:
                faults.append(f"{number}: a result of no call")
            else:
                owed.remove(message.call_id)
        elif owed:
            faults.append(f"{number}: calls without results: {owed}")
            owed = []
        if isinstance(message, Said | Result) and not message.text.strip():
            faults.append(f"{number}: it is empty")
        if isinstance(message, Reply):
            owed = [call.call_id for call in message.calls]
            if not message.text.strip() and not owed:
                faults.append(f"{number}: an empty reply")
            if len(set(owed)) != len(owed):
                faults.append(f"{number}: two calls of one id")
        faults += _turn_faults(number, last, message)
        last = message
    return [*faults, f"calls without results: {owed}"] if owed else faults


def _turn_faults(number: int, last: Message | None, message: Message) -> list[str]:
    if last is None:
        return [] if isinstance(message, Said) else ["it does not begin with the person"]
    if isinstance(message, Said) and isinstance(last, Said):
        return [f"{number}: the person speaks twice"]
    return [f"{number}: the model speaks twice"] if isinstance(message, Reply) and isinstance(last, Reply) else []
