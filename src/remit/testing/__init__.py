"""Test support for your agents and stores: scripted agents and models, and the checks of stores. Needs no test framework."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remit.testing.load import load_agents
    from remit.testing.models.request import ModelRequest, valid_return
    from remit.testing.models.server import ScriptedModels
    from remit.testing.models.turns import Call, Cut, Drip, Fail, Garbled, Reply, Say, Silence, Stray, Think, Usage
    from remit.testing.models.turns import Turn as ModelTurn
    from remit.testing.scripted import Scripted, Turn, answer, fail, hand_on, hang, say, wait
    from remit.testing.store_suite import STORE_CHECKS

__all__ = [
    "STORE_CHECKS", "Call", "Cut", "Drip", "Fail", "Garbled", "ModelRequest", "ModelTurn", "Reply", "Say", "Scripted",
    "ScriptedModels", "Silence", "Stray", "Think", "Turn", "Usage", "answer", "fail", "hand_on", "hang", "load_agents", "say",
    "valid_return", "wait",
]  # fmt: skip
_PUBLIC = {
    "remit.testing.load": "load_agents",
    "remit.testing.models.request": "ModelRequest valid_return",
    "remit.testing.models.server": "ScriptedModels",
    "remit.testing.models.turns": "Call Cut Drip Fail Garbled Reply Say Silence Stray Think Usage Turn=ModelTurn",
    "remit.testing.scripted": "Scripted Turn answer fail hand_on hang say wait",
    "remit.testing.store_suite": "STORE_CHECKS",
}
_HOME_OF = {
    public or own: (module, own) for module, names in _PUBLIC.items() for own, _, public in (name.partition("=") for name in names.split())
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'remit.testing' has no attribute {name!r}")
    module, own = _HOME_OF[name]
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != "h11":
            raise
        raise ModuleNotFoundError("The scripted model server needs h11: pip install 'remit[testing]'", name="h11") from None
    globals()[name] = value = getattr(found, own)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
