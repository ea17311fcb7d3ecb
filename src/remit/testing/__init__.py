"""Test support for your agents and stores: scripted agents and models, clocks, and the conformance
suite of stores.

`STORE_CHECKS` run over every store of remit, and can be run over yours. Needs no test framework."""

from typing import TYPE_CHECKING, Any

from remit.testing.clock import JumpingClock, ManualClock
from remit.testing.load import load_agents
from remit.testing.models.request import ModelRequest, valid_return
from remit.testing.models.turns import Call, Cut, Drip, Fail, Garbled, Reply, Say, Silence, Stray, Think, Usage
from remit.testing.models.turns import Turn as ModelTurn
from remit.testing.scripted import Scripted, Turn, answer, fail, hand_on, hang, say, wait
from remit.testing.store_suite import STORE_CHECKS

if TYPE_CHECKING:
    from remit.testing.models.server import ScriptedModels

__all__ = [
    "STORE_CHECKS", "Call", "Cut", "Drip", "Fail", "Garbled", "JumpingClock", "ManualClock", "ModelRequest",
    "ModelTurn", "Reply", "Say", "Scripted", "ScriptedModels", "Silence", "Stray", "Think", "Turn", "Usage", "answer", "fail",
    "hand_on", "hang", "load_agents", "say", "valid_return", "wait",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """The scripted model server needs h11, which is optional."""
    if name != "ScriptedModels":
        raise AttributeError(f"module 'remit.testing' has no attribute {name!r}")
    try:
        from remit.testing.models.server import ScriptedModels
    except ModuleNotFoundError as error:
        if error.name != "h11":
            raise
        raise ModuleNotFoundError("The scripted model server needs h11: pip install 'remit[testing]'", name="h11") from None
    return ScriptedModels


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
