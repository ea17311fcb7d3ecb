"""Scripted models: a model server on loopback for the tests of agents, ours and yours.

`server` says how it is used; `python -m remit.testing.models` runs it by hand.
"""

from typing import TYPE_CHECKING, Any

from remit.testing.models.request import Api, Message, ModelRequest, Tool, valid_return
from remit.testing.models.turns import Call, Cut, Drip, Fail, Garbled, Reply, Say, Script, Silence, Stray, Think, Turn, Usage

if TYPE_CHECKING:
    from remit.testing.models.server import ScriptedModels

__all__ = [
    "Api",
    "Call",
    "Cut",
    "Drip",
    "Fail",
    "Garbled",
    "Message",
    "ModelRequest",
    "Reply",
    "Say",
    "Script",
    "ScriptedModels",
    "Silence",
    "Stray",
    "Think",
    "Tool",
    "Turn",
    "Usage",
    "valid_return",
]


def __getattr__(name: str) -> Any:
    """The server only when it is asked for: scripts can be written, and the program can say what is missing, without h11."""
    if name != "ScriptedModels":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from remit.testing.models.server import ScriptedModels
    except ModuleNotFoundError as error:
        if error.name != "h11":
            raise
        raise ModuleNotFoundError("The scripted model server needs h11: pip install 'remit[testing]'", name="h11") from None
    return ScriptedModels
