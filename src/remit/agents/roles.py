"""The roles of the board as a person looks at them: what each is for, who carries it out in this project and why. Starts nothing.

Used by the command line. Who carries a role out is decided in `profiles`; here it is told.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.agents.builtin.roles import declared_role, file_of
from remit.agents.definition import Definition, Kind
from remit.agents.directory import Directory
from remit.agents.modelling import MODEL
from remit.agents.profiles import Binding, By, definition_for
from remit.agents.uncarried import why_uncarried
from remit.core.agents import ROLES, is_role
from remit.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRole:
    name: str
    description: str
    carried_by: str
    """`built-in`, `nobody`, `model` or which one, or the agent's name; of one that a project replaced by an agent that runs by itself, what
    that is."""
    because: str
    """What made it so, in words."""
    by: str
    """The same for programs: setting, file, profiles_on, built-in, first, model, nobody, replaced."""
    source: str
    """Where it is declared."""
    file: Path | None
    """The file to read; None where it is no file of instructions."""
    is_own: bool
    """Whether the project replaced it."""
    advice: str = ""
    """What is missing, where nobody carries it out."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "description": self.description,
            "carried_by": self.carried_by,
            "by": self.by,
            "because": self.because,
            "source": self.source,
            "file": None if self.file is None else str(self.file),
            "is_own": self.is_own,
            "advice": self.advice or None,
        }


def seen_roles(directory: Directory) -> Iterator[SeenRole]:
    """Those that this project has: all of them, unless the setting `builtin_agents` leaves them out."""
    for name in ROLES:
        found = seen_role(directory, name)
        if found is not None:
            yield found


def seen_role(directory: Directory, name: str) -> SeenRole | None:
    agent = directory.find(name)
    if agent is None:
        return None
    spec = agent.spec
    if is_role(spec):
        return _profile(directory, definition_for(declared_role(name)), file_of(name), is_own=False)
    declared = directory.declarations.known.get(name)
    if declared is not None and declared[1].kind is Kind.PROFILE and declared[0].source == spec.source:
        return _profile(directory, declared[1], Path(spec.source), is_own=True)
    kind = "Python function" if spec.kind == "function" else spec.kind
    return SeenRole(
        name=name, description=spec.description, carried_by=kind, because="an agent of this name replaces it", by="replaced",
        source=spec.source, file=None, is_own=True,
    )  # fmt: skip


def _profile(directory: Directory, profile: Definition, file: Path, *, is_own: bool) -> SeenRole:
    settings = directory.declarations.settings
    binding = directory.declarations.binding(profile)
    missing = getattr(directory.find(profile.name), "definition", None) if not binding.is_carried else None
    return SeenRole(
        name=profile.name,
        description=profile.spec.description,
        carried_by=_carrier(binding),
        because=_because(binding, profile.name, settings),
        by=str(binding.by if binding.is_carried else By.NOBODY),
        source=profile.spec.source,
        file=file,
        is_own=is_own,
        advice=why_uncarried(missing).advice if missing is not None else "",
    )


def _carrier(binding: Binding) -> str:
    if binding.carrier is not None:
        return binding.carrier.name
    if binding.models is not None:
        return ", ".join(binding.models) or MODEL
    return "nobody" if binding.built_in is None else "built-in"


def _because(binding: Binding, name: str, settings: Settings) -> str:
    match binding.by:
        case By.SETTING:
            said = settings.source_of(f"roles.{name}")
        case By.FILE:
            said = "runs_on in its file"
        case By.PROFILES_ON:
            said = settings.source_of("profiles_on")
        case By.BUILT_IN:
            return "comes with remit; nobody else is named"
        case By.MODEL:
            return f"{settings.source_of('model')}; no coding agent is declared"
        case By.FIRST:
            return "the first coding agent that can"
        case _:
            return "no coding agent is declared, and no language model"
    return said if binding.is_carried else f"{said} names {binding.wanted!r}, and there is no such one"
