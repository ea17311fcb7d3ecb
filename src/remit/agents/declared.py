"""One agent as it was written, in the settings or in a file, before it is known what it is and who carries it out.

Made by `agents.files` and `agents.vendors`; judged by `agents.profiles` and `agents.modelling`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    name: str
    table: Mapping[str, Any]
    """Keys of `DefinitionTable`, unchecked."""
    source: str
    tools: tuple[str, ...] | None = None
    """Which tools it wants to keep of its carrier's; None: all of them."""
    without: tuple[str, ...] = ()
    lines: Mapping[str, int] | None = None
    """Where each key stands, for an agent from a file of its own."""
    is_guest: bool = False
    """Whether it is a file of another tool's, which cannot give itself more than its carrier has."""
    notes: tuple[str, ...] = ()
    """What it says that nothing is done with."""
