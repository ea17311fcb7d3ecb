"""Optional packages, imported when they are needed. Without one the delegation is blocked, and the message says what to install."""

import importlib
from types import ModuleType

from remit.core.errors import Unavailable


def need(module: str, extra: str) -> ModuleType:
    """The module; without it the delegation ends `blocked` / TOOL_UNAVAILABLE and says what to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).partition(".")[0]
        raise _missing(f"This needs the package {missing}, which is not installed here.", extra) from None
    except ImportError as error:  # it is there, but cannot be used: what it rests on is missing, or too old
        raise _missing(
            f"The package {module.partition('.')[0]} is installed, but cannot be used: {' '.join(str(error).split())}", extra
        ) from None


def _missing(what: str, extra: str) -> Unavailable:
    return Unavailable(what, code="TOOL_UNAVAILABLE", advice=f"pip install 'remit[{extra}]'")
