"""Which turn of a script answers a request. Knows conversations; knows neither HTTP nor how an answer is written. Used by `server`."""

from collections import Counter
from collections.abc import Mapping, Sequence

from remit.testing.models.request import ModelRequest
from remit.testing.models.turns import Call, Garbled, Reply, Say, Script, Stray, Think, Turn

_MOST_REPLIES = 8
"""A function may answer with a function; not for ever."""


class Player:
    """Plays a script. Each conversation has its own place in it, so several agents can share one server.

    The last turn is played for every further request, so that an agent that tries again meets the same; unless it calls a tool,
    which would never end.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._asked: Counter[str] = Counter()

    def place(self, request: ModelRequest) -> int:
        """Which request of its conversation this is, from 0. Asks once per request."""
        number = self._asked[request.conversation]
        self._asked[request.conversation] += 1
        return number

    def turn(self, request: ModelRequest) -> Turn:
        """What to do. Raises `LookupError` when the script has nothing for it."""
        turn = self._first(request)
        for _ in range(_MOST_REPLIES):
            if not isinstance(turn, Reply):
                return turn
            turn = turn.by(request)
        raise LookupError("A function of the script answers with a function each time; it must come to a turn.")

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
    raise LookupError(f"No script is for this conversation: none of {list(scripts)} stands in what the model was asked.")


def _calls(turn: Turn) -> bool:
    if isinstance(turn, Sequence):
        return any(not isinstance(part, Say | Think) for part in turn)
    return isinstance(turn, Call | Stray | Garbled)
