"""The agents a project declares without Python: `[agents.NAME]` of the settings, and the agent files of remit, Claude and OpenCode.

One that is faulty takes no other with it: it becomes a line among the problems, with its file and line. Starts nothing; what carries
the definitions out is joined in `app`.
"""

import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from remit.agents.declared import Declared
from remit.agents.definition import Definition, Kind
from remit.agents.function import agent_name
from remit.agents.modelling import MODEL, carried_by_agent, carried_by_model, resolved
from remit.agents.opening import Gone, Unreadable
from remit.agents.profiles import Binding, By, binding_of, carried, definition_for, uncarried
from remit.agents.schemas import schema_file, with_schema
from remit.agents.watching import FOLDERS, MOST_FILES, Facts, may_be_written, pages_below, settled_facts
from remit.core.agents import ASSISTANT
from remit.core.errors import Misused
from remit.settings import Settings

if TYPE_CHECKING:
    from remit.agents.vendors import Reader


MOST_SECONDS = 5.0
"""So long files are read in one go; those that are left are read the next time. A clone may hold a thousand that are slow to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """What a file was found to declare."""

    facts: Facts | None
    """As long as these hold it is not read again; None: it is read each time."""
    declared: Declared | None = None
    fault: str = ""
    is_done: bool = True
    """False: it could not be read, or was being written, and holds as it was; it must be looked at again, whether it changes or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declarations:
    """Everything a project declares without Python, read once."""

    settings: Settings
    known: Mapping[str, tuple[Declared, Definition]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    also_read: tuple[Path, ...] = ()
    """Files that agents name in theirs."""
    files: Mapping[str, ReadFile] = field(default_factory=dict)
    is_done: bool = True
    """Whether all could be read."""

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
            if declared.is_guest and binding.by is By.FILE and binding.carrier.kind is Kind.COMMAND:
                raise Misused(
                    f"{declared.source}: runs_on: {binding.carrier.name} is a command, which a file in this folder cannot take for itself: "
                    f'say it in remit.toml, [roles] {declared.name} = "{binding.carrier.name}".'
                )
            return carried(declared, self.known[binding.carrier.name][0], binding.carrier)
        if binding.models is not None:
            names, notes = binding.models, tuple[str, ...]()
            if declared.is_guest and binding.by is By.FILE:
                names, notes = resolved(names, self.settings, is_guest=True, source=declared.source)
            found = carried_by_model(declared, self.settings, names, on=", ".join(names) or MODEL)
            return replace(found, notes=(*found.notes, *notes))
        if binding.built_in is not None:
            return replace(definition, built_in=binding.built_in)
        return uncarried(declared, binding.wanted)


def declarations_of(root: Path, settings: Settings, before: Declarations | None = None) -> Declarations:
    """As they are now. What cannot be read at the moment, or is being written, holds as it was `before`; what is unchanged is not read."""
    problems: list[str] = []
    known: dict[str, tuple[Declared, Definition]] = {}
    also_read: list[Path] = []
    before = before or Declarations(settings=settings)
    files = dict(_read_files(root, problems, before.files))
    is_done = all(file.is_done for file in files.values())
    for declared in (*_from_settings(settings, problems), *(file.declared for file in files.values() if file.declared is not None)):
        other = known.get(declared.name)
        if declared.name == ASSISTANT:
            problems.append(f"{declared.source}: {ASSISTANT!r} is whom `remit ask` and `remit chat` talk to; give the agent another name.")
            continue
        if other is not None:
            problems.append(f"{declared.source}: there is an agent {declared.name!r} in {other[0].source}, and that one is taken.")
            continue
        if (file := schema_file(declared, root)) is not None:
            also_read.append(file)
        try:
            whole = with_schema(declared, root)
            known[declared.name] = whole, definition_for(whole, settings)
        except Misused as error:
            problems.append(_with_line(declared, error))
            if isinstance(error, Unreadable):
                is_done = False
                known |= {name: held for name, held in before.known.items() if held[0].source == declared.source and name == declared.name}
    return Declarations(
        settings=settings, known=known, problems=tuple(problems), also_read=tuple(also_read), files=files, is_done=is_done
    )  # fmt: skip


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


def _read_files(root: Path, problems: list[str], before: Mapping[str, ReadFile]) -> Iterator[tuple[str, ReadFile]]:
    """In the order in which they are taken."""
    end = time.monotonic() + MOST_SECONDS
    for folder in FOLDERS:
        pages, unread = _pages_in(root / folder, root, problems)
        late = 0
        for path in pages:
            was = before.get(str(path))
            facts = settled_facts(path)
            file = was if was is not None and was.is_done and facts is not None and was.facts == facts else None
            if file is None and time.monotonic() > end:
                late += 1
                file = ReadFile(facts=None, declared=None if was is None else was.declared, is_done=False)
            if file is None:
                file = _read_file(path, root, folder, facts, was)
            if file.fault:
                problems.append(file.fault)
            yield str(path), file
        if late:
            problems.append(f"{root / folder}: to read all of it takes more than {MOST_SECONDS:g} s; {late} of its files are not read yet.")
        # How it is to be looked at again is known by its folder, whose files are seen again then.
        yield from ((path, was) for path, was in before.items() if any(path.startswith(f"{place}/") for place in unread))


def _read_file(path: Path, root: Path, folder: str, facts: Facts | None, was: ReadFile | None) -> ReadFile:
    declared, fault = _from_file(path, root, folder)
    held = was.declared if was is not None and declared is None else None
    if isinstance(fault, Unreadable):
        said = f"{path}: {fault}{' It holds as it was.' if held is not None else ''}"
        return ReadFile(facts=None, declared=held, fault=said, is_done=False)
    if held is not None and may_be_written(path):
        return ReadFile(facts=None, declared=held, is_done=False)
    return ReadFile(facts=facts, declared=declared, fault=f"{path}: {fault}" if fault is not None else "")


def _from_file(path: Path, root: Path, folder: str) -> tuple[Declared | None, Misused | None]:
    # Only here: reading YAML costs a program that has no such file nothing.
    from remit.agents.pages import read_page

    try:
        page = read_page(path, root)
        if page is None and folder == FOLDERS[0]:
            raise Misused("line 1: it has no head, so it is no agent. Begin it with a line of three dashes.")
        return (None if page is None else _reader(folder)(page)), None
    except Gone as error:
        return None, error if path.is_symlink() else None
    except Misused as error:
        return None, error


def _reader(folder: str) -> "Reader":
    from remit.agents import vendors

    return {".remit/agents": vendors.ours, ".claude/agents": vendors.claude}.get(folder, vendors.opencode)


def _pages_in(folder: Path, root: Path, problems: list[str]) -> tuple[list[Path], list[str]]:
    """The Markdown files in and below a folder, in order of their names (our own folder has none below it), and where none could be
    looked for."""
    unread: list[str] = []

    def tell(place: str, fault: str, is_unread: bool = True) -> None:
        problems.append(f"{place}: {fault}." + (" The agents in it hold as they were." if is_unread else ""))
        unread.extend([place] * is_unread)

    try:
        if not stat.S_ISDIR(folder.stat().st_mode):
            return [], unread
        if not folder.resolve().is_relative_to(root.resolve()):
            problems.append(f"{folder}: it is a link that leads out of the project.")
            return [], unread
    except (FileNotFoundError, NotADirectoryError):
        return [], unread
    except (OSError, RuntimeError) as error:
        tell(str(folder), f"it cannot be read: {getattr(error, 'strerror', None) or error}")
        return [], unread
    found = pages_below(str(folder), tell)
    if len(found) > MOST_FILES:
        problems.append(f"{folder}: it holds more than {MOST_FILES} files; the first {MOST_FILES} are read.")
    return [Path(path) for path in found[:MOST_FILES] if not path.upper().endswith("/README.MD")], unread


def _with_line(declared: Declared, error: Misused) -> str:
    """With the line of the first key that is at fault, where the agent has a file of its own."""
    said = error.message.removeprefix(f"{declared.source}: ")
    line = (declared.lines or {}).get(said.partition(":")[0].partition(".")[0])
    return f"{declared.source}: {f'line {line}: ' if line else ''}{said}"
