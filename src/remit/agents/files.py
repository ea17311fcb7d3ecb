"""The agents a project declares without Python: `[agents.NAME]` of the settings, and the agent files of remit, Claude and OpenCode.

One that is faulty takes no other with it: it becomes a line among the problems, with its file and line. Starts nothing; what carries
the definitions out is joined in `app`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from remit.agents.declared import Declared
from remit.agents.definition import Definition, Kind
from remit.agents.function import agent_name
from remit.agents.modelling import MODEL, carried_by_agent, carried_by_model
from remit.agents.profiles import Binding, binding_of, carried, definition_for, uncarried
from remit.agents.schemas import schema_file, with_schema
from remit.agents.watching import FOLDERS, MOST_FILES, pages_below
from remit.core.errors import Misused
from remit.settings import Settings

if TYPE_CHECKING:
    from remit.agents.vendors import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Declarations:
    """Everything a project declares without Python, read once."""

    settings: Settings
    known: Mapping[str, tuple[Declared, Definition]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    also_read: tuple[Path, ...] = ()
    """Files that agents name in theirs."""

    def binding(self, profile: Definition) -> Binding:
        return binding_of(profile, self.settings, [definition for _, definition in self.known.values()])

    def joined(self, declared: Declared, definition: Definition) -> Definition:
        """With who carries it out, where it is a profile; one that the built-in does stays one that names it. Raises `Misused`."""
        if definition.kind is not Kind.PROFILE:
            return definition
        binding = self.binding(definition)
        if binding.carrier is not None and binding.carrier.kind is Kind.MODEL:
            return carried_by_agent(declared, self.settings, binding.carrier)
        if binding.carrier is not None:
            return carried(declared, self.known[binding.carrier.name][0], binding.carrier)
        if binding.models is not None:
            return carried_by_model(declared, self.settings, binding.models, on=", ".join(binding.models) or MODEL)
        if binding.built_in is not None:
            return replace(definition, built_in=binding.built_in)
        return uncarried(declared, binding.wanted)


def declarations_of(root: Path, settings: Settings) -> Declarations:
    problems: list[str] = []
    known: dict[str, tuple[Declared, Definition]] = {}
    also_read: list[Path] = []
    for declared in (*_from_settings(settings, problems), *_from_files(root, problems)):
        other = known.get(declared.name)
        if other is not None:
            problems.append(f"{declared.source}: there is an agent {declared.name!r} in {other[0].source}, and that one is taken.")
            continue
        if (file := schema_file(declared, root)) is not None:
            also_read.append(file)
        try:
            declared = with_schema(declared, root)
            known[declared.name] = declared, definition_for(declared, settings)
        except Misused as error:
            problems.append(_with_line(declared, error))
    return Declarations(settings=settings, known=known, problems=tuple(problems), also_read=tuple(also_read))


def definitions_of(root: Path, settings: Settings) -> tuple[list[Definition], list[str]]:
    """Every agent that is declared, profiles joined with who carries them out; and what is wrong with the others, a line each."""
    return all_joined(declarations_of(root, settings))


def all_joined(declarations: Declarations) -> tuple[list[Definition], list[str]]:
    definitions, problems = [], list(declarations.problems)
    for declared, definition in declarations.known.values():
        try:
            definitions.append(declarations.joined(declared, definition))
        except Misused as error:
            problems.append(_with_line(declared, error))
    return definitions, problems


def _from_settings(settings: Settings, problems: list[str]) -> Iterator[Declared]:
    for name, table in settings.agents.items():
        source = settings.source_of_agent(name)
        try:
            yield Declared(name=agent_name(name), table=table, source=source)
        except Misused as error:
            problems.append(f"{source}: {error}")


def _from_files(root: Path, problems: list[str]) -> Iterator[Declared]:
    for folder in FOLDERS:
        for path in _pages_in(root / folder, root, problems):
            # Only here: reading YAML costs a program that has no such file nothing.
            from remit.agents.pages import read_page

            try:
                page = read_page(path, root)
                declared = _reader(folder)(page) if page is not None else None
            except Misused as error:
                problems.append(f"{path}: {error}")
                continue
            if declared is not None:
                yield declared
            elif page is None and folder == FOLDERS[0]:
                problems.append(f"{path}: line 1: it has no head, so it is no agent. Begin it with a line of three dashes.")


def _reader(folder: str) -> "Reader":
    from remit.agents import vendors

    return {".remit/agents": vendors.ours, ".claude/agents": vendors.claude}.get(folder, vendors.opencode)


def _pages_in(folder: Path, root: Path, problems: list[str]) -> list[Path]:
    """The Markdown files in and below a folder, in order of their names; our own folder has none below it."""
    try:
        if not folder.is_dir():
            return []
        if not folder.resolve().is_relative_to(root.resolve()):
            problems.append(f"{folder}: it is a link that leads out of the project.")
            return []
    except (OSError, RuntimeError) as error:
        problems.append(f"{folder}: it cannot be read: {getattr(error, 'strerror', None) or error}.")
        return []
    found = pages_below(str(folder), lambda place, fault: problems.append(f"{place}: {fault}."))
    if len(found) > MOST_FILES:
        problems.append(f"{folder}: it holds more than {MOST_FILES} files; the first {MOST_FILES} are read.")
    return [Path(path) for path in found[:MOST_FILES] if not path.upper().endswith("/README.MD")]


def _with_line(declared: Declared, error: Misused) -> str:
    """With the line of the first key that is at fault, where the agent has a file of its own."""
    said = error.message.removeprefix(f"{declared.source}: ")
    line = (declared.lines or {}).get(said.partition(":")[0].partition(".")[0])
    return f"{declared.source}: {f'line {line}: ' if line else ''}{said}"
