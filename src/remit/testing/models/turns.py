"""What a scripted model does when it is asked: one value per behaviour, good and bad.

    Say("Done.")                        it answers in words
    Call("Bash", command="ls")          it asks for a tool; the name is matched by its end: `delegate` finds `mcp__remit__delegate`
    [Say("Two at once."), Call("a"), Call("b")]      words and calls in one turn
    Drip("Slowly.", seconds=5)          it answers, in pieces spread over that time
    Silence()                           it never answers
    Fail(429, retry_after=1)            it answers with an error of the API
    Cut("Half a sen")                   it begins to answer, and the connection breaks
    Reply(lambda request: Say(…))       whatever a function of the request says

Values only: `server` plays them, `anthropic`, `chat` and `responses` say how they look on the wire. For the tests of users and ours.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from remit.testing.models.request import ModelRequest


@dataclass(frozen=True, slots=True)
class Usage:
    """What the answer says it cost, in tokens."""

    input_tokens: int = 100
    output_tokens: int = 20
    cached_tokens: int = 0
    """Those of the input that were read from the cache."""


@dataclass(frozen=True, slots=True)
class Say:
    text: str
    usage: Usage = Usage()

    def using(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> "Say":
        """The same, with these numbers of tokens."""
        return replace(self, usage=Usage(input_tokens, output_tokens, cached_tokens))


@dataclass(frozen=True, slots=True, init=False)
class Call:
    """A call of the tool whose name is, or ends with, `name`. One that is not offered is a fault of the script: it is told so."""

    name: str
    arguments: Mapping[str, Any]
    usage: Usage

    def __init__(self, name: str, /, **arguments: Any) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "arguments", arguments)
        object.__setattr__(self, "usage", Usage())

    def using(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> "Call":
        """The same, with these numbers of tokens."""
        changed = Call(self.name, **self.arguments)
        object.__setattr__(changed, "usage", Usage(input_tokens, output_tokens, cached_tokens))
        return changed


@dataclass(frozen=True, slots=True)
class Drip:
    """An answer in words whose pieces come slowly: `seconds` from the first to the last."""

    text: str
    seconds: float = 1.0
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True)
class Silence:
    """The request is taken and never answered, until the client goes or the server is closed."""


@dataclass(frozen=True, slots=True)
class Fail:
    """An error as the API would give it: 401, 429, 500, 529, …"""

    status: int = 500
    message: str = ""
    retry_after: float | None = None
    """Seconds, as the header of that name."""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cut:
    """The answer begins with `text`; then the connection is reset. Without text it is reset before a byte was sent."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """What to do is decided when it is asked."""

    by: "Callable[[ModelRequest], Turn]"


Turn = Say | Call | Drip | Silence | Fail | Cut | Reply | Sequence[Say | Call]
Script = Sequence[Turn] | Mapping[str, Sequence[Turn]] | Callable[[ModelRequest], Turn]


def fault_of(script: object) -> str:
    """Why it is no script; empty when it is one."""
    if callable(script):
        return ""
    if isinstance(script, Mapping):
        return next((f"for {words!r}: {fault}" for words, turns in script.items() if (fault := _fault_of_turns(turns))), "")
    return _fault_of_turns(script)


def _fault_of_turns(turns: object) -> str:
    if not isinstance(turns, Sequence) or isinstance(turns, str | bytes):
        return f"{turns!r:.80} is no list of turns"
    return next((f"{turn!r:.80} is no turn, such as Say or Call" for turn in turns if not _is_turn(turn)), "")


def _is_turn(turn: object) -> bool:
    if isinstance(turn, Sequence) and not isinstance(turn, str | bytes):
        return all(isinstance(part, Say | Call) for part in turn)
    return isinstance(turn, Say | Call | Drip | Silence | Fail | Cut | Reply)


@dataclass(frozen=True, slots=True)
class NamedCall:
    """A call as it goes out: with the tool's own name, and an id the result will carry."""

    call_id: str
    name: str
    namespace: str | None
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What goes out in the end, whatever turn it came from: words, calls, tokens. Given to a dialect to be written."""

    text: str = ""
    calls: tuple[NamedCall, ...] = ()
    usage: Usage = Usage()


def answer_of(turn: Say | Call | Drip | Cut | Sequence[Say | Call], request: ModelRequest) -> Answer:
    """The words and calls of a turn. Raises `LookupError` when it calls a tool that is not offered."""
    if isinstance(turn, Say | Drip):
        return Answer(text=turn.text, usage=turn.usage)
    if isinstance(turn, Cut):
        return Answer(text=turn.text)
    parts = [turn] if isinstance(turn, Call) else list(turn)
    calls = []
    for index, call in enumerate(part for part in parts if isinstance(part, Call)):
        tool = request.tool(call.name)
        if tool is None:
            offered = ", ".join(one.full_name for one in request.tools) or "none"
            raise LookupError(f"The script calls the tool {call.name!r}, and no tool of that name is offered. Offered: {offered}.")
        calls.append(NamedCall(f"call_{request.number:05d}_{index}", tool.name, tool.namespace, call.arguments))
    words = "".join(part.text for part in parts if isinstance(part, Say))
    return Answer(text=words, calls=tuple(calls), usage=parts[-1].usage if parts else Usage())
