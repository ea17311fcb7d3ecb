"""Optional packages that built-in agents need: imported here, with words for whoever has not installed them."""

import importlib
from types import ModuleType

from remit.core.errors import Unavailable


def need(module: str, extra: str) -> ModuleType:
    """The module; without it the delegation ends `blocked` / TOOL_UNAVAILABLE and says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Unavailable(
            f"This needs the package {(error.name or module).partition('.')[0]}, which is not installed here.",
            code="TOOL_UNAVAILABLE",
            advice=f"pip install 'remit[{extra}]'",
        ) from None
