"""What a scripted model does when it is asked: one value per behaviour, good and bad.

    Say("Done.")                        it answers in words
    Call("Bash", command="ls")          it asks for a tool; the name is matched by its end: `delegate` finds `mcp__remit__delegate`
    Stray("rm -rf")                     it asks for a tool by this very name, offered or not
    Garbled("delegate", '{"target":')   it asks for a tool with arguments that are not JSON
    [Say("Two at once."), Call("a"), Call("b")]      words and calls in one turn
    [Think("Hm.", signature="…"), Say("Yes.")]       thoughts before it, signed so that they must be given back unchanged
    Drip("Slowly.", seconds=5)          it answers, in pieces spread over that time
    Silence()                           it never answers
    Fail(429, retry_after=1)            it answers with an error of the API
    Cut("Half a sen")                   it begins to answer, and the connection breaks
    Reply(lambda request: Say(…))       whatever a function of the request says

Values only: `server` plays them; `anthropic`, `chat`, `responses` and `google` say how they look on the wire. For tests, yours and ours.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from remit.testing.models.request import ModelRequest


@dataclass(frozen=True, slots=True)
class Usage:
    """The reported token usage."""

    input_tokens: int = 100
    output_tokens: int = 20
    cached_tokens: int = 0
    """Input tokens from the cache."""


@dataclass(frozen=True, slots=True)
class Say:
    text: str
    usage: Usage = Usage()
    ended: Literal["finished", "length", "refused"] = "finished"
    """Why it ends: it is complete, it had no more tokens, or the provider's filter stopped it."""

    def using(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> "Say":
        """The same, with these numbers of tokens."""
        return replace(self, usage=Usage(input_tokens, output_tokens, cached_tokens))


@dataclass(init=False)
class Call:
    """A call of the tool whose name is, or ends with, `name`. A tool that is not offered is a fault of the script, and reported as such."""

    name: str
    arguments: Mapping[str, Any]
    usage: Usage
    call_id: str | None

    def __init__(self, name: str, /, **arguments: Any) -> None:
        self.name, self.arguments, self.usage, self.call_id = name, arguments, Usage(), None

    def using(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> Self:
        """The same, with these numbers of tokens."""
        changed = copy(self)
        changed.usage = Usage(input_tokens, output_tokens, cached_tokens)
        return changed

    def with_id(self, call_id: str) -> Self:
        """The same with an id of your choice: none at all, or that of another call."""
        changed = copy(self)
        changed.call_id = call_id
        return changed


class Stray(Call):
    """A call of a tool by exactly this name, offered or not."""


@dataclass(frozen=True, slots=True)
class Garbled:
    """A call whose arguments are this text, which is not a JSON object."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Think:
    """Thoughts before the text, if an API has them. If signed, the API requires them back unchanged."""

    text: str
    signature: str = ""


@dataclass(frozen=True, slots=True)
class Drip:
    """An answer in words whose pieces come slowly: `seconds` from the first to the last."""

    text: str
    seconds: float = 1.0
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True)
class Silence:
    """The request is accepted and never answered, until the client leaves or the server is closed."""


@dataclass(frozen=True, slots=True)
class Fail:
    """An error in the API's form: 401, 429, 500, 529, …"""

    status: int = 500
    message: str = ""
    retry_after: float | None = None
    """Seconds, as the header of that name."""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cut:
    """The answer begins with `text`; then the connection is reset. Without text it is reset before any byte."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """Decided when the request arrives."""

    by: "Callable[[ModelRequest], Turn]"


Part = Say | Call | Garbled | Think
Turn = Say | Call | Garbled | Drip | Silence | Fail | Cut | Reply | Sequence[Part]
Script = Sequence[Turn] | Mapping[str, Sequence[Turn]] | Callable[[ModelRequest], Turn]


@dataclass(frozen=True, slots=True)
class NamedCall:
    """A call as sent: with the tool's own name, and an id for its result."""

    call_id: str
    name: str
    namespace: str | None
    arguments: Mapping[str, Any] | str
    """Text if deliberately not JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The final answer of any turn: text, calls, tokens. A dialect writes it."""

    text: str = ""
    calls: tuple[NamedCall, ...] = ()
    usage: Usage = Usage()
    thought: str = ""
    signature: str = ""
    ended: str = "finished"

    def finish_as(self, finished: str, length: str, refused: str) -> str:
        """The dialect's term for why it ended."""
        return {"length": length, "refused": refused}.get(self.ended, finished)


def answer_of(turn: Say | Call | Garbled | Drip | Cut | Sequence[Part], request: ModelRequest) -> Answer:
    """The text and calls of a turn. Raises `LookupError` if it calls a tool that is not offered."""
    if isinstance(turn, Say):
        return Answer(text=turn.text, usage=turn.usage, ended=turn.ended)
    if isinstance(turn, Drip):
        return Answer(text=turn.text, usage=turn.usage)
    if isinstance(turn, Cut):
        return Answer(text=turn.text)
    parts = list(turn) if isinstance(turn, Sequence) else [turn]
    calls = [part for part in parts if isinstance(part, Call | Garbled)]
    said = [part for part in parts if isinstance(part, Say)]
    thoughts = [part for part in parts if isinstance(part, Think)]
    counted = [part.usage for part in parts if isinstance(part, Say | Call)]
    return Answer(
        text="".join(part.text for part in said),
        calls=tuple(_named(call, request, f"call_{request.number:05d}_{index}") for index, call in enumerate(calls)),
        usage=counted[-1] if counted else Usage(),
        thought="".join(part.text for part in thoughts),
        signature="".join(part.signature for part in thoughts),
        ended=said[-1].ended if said else "finished",
    )


def _named(call: Call | Garbled, request: ModelRequest, call_id: str) -> NamedCall:
    if isinstance(call, Call) and call.call_id is not None:
        call_id = call.call_id
    if isinstance(call, Stray):
        return NamedCall(call_id, call.name, None, call.arguments)
    tool = request.tool(call.name)
    if tool is None:
        offered = ", ".join(one.full_name for one in request.tools) or "none"
        raise LookupError(f"The script calls the tool {call.name!r}, and no tool of that name is offered. Offered: {offered}.")
    return NamedCall(call_id, tool.name, tool.namespace, call.arguments)


# ---- scripts


class Player:
    """Plays a script. Each conversation has its own position, so several agents can share one server.

    The last turn is repeated for further requests, so that a retry gets the same answer; unless it calls a tool, which would never end."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._asked: Counter[str] = Counter()

    def place(self, request: ModelRequest) -> int:
        """Number of this request in its conversation, from 0. Call it once per request."""
        number = self._asked[request.conversation]
        self._asked[request.conversation] += 1
        return number

    def turn(self, request: ModelRequest) -> Turn:
        """The turn to play. Raises `LookupError` if the script has none."""
        turn = self._first(request)
        while isinstance(turn, Reply):
            turn = turn.by(request)
        return turn

    def _first(self, request: ModelRequest) -> Turn:
        script = self._script
        if callable(script):
            return script(request)
        return self._nth(_matching(script, request) if isinstance(script, Mapping) else script, request)

    @staticmethod
    def _nth(turns: Sequence[Turn], request: ModelRequest) -> Turn:
        if not turns:
            raise LookupError("The script has no turns.")
        if request.turn >= len(turns) and _calls(turns[-1]):
            raise LookupError(f"The script of this conversation has {len(turns)} turns and ends with a call of a tool; this is one more.")
        return turns[min(request.turn, len(turns) - 1)]


def _matching(scripts: Mapping[str, Sequence[Turn]], request: ModelRequest) -> Sequence[Turn]:
    for words, turns in scripts.items():
        if words in request.text:
            return turns
    raise LookupError(f"No script is for this conversation: none of {list(scripts)} is in the request to the model.")


def _calls(turn: Turn) -> bool:
    if isinstance(turn, Sequence):
        return any(not isinstance(part, Say | Think) for part in turn)
    return isinstance(turn, Call | Garbled)
