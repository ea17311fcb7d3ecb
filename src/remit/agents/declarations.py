"""Agents that a project declares without Python: `[agents.NAME]` of the settings, and the agent files of remit, Claude and OpenCode.

A faulty declaration does not affect others: it becomes a problem with its file. Starts nothing; `app` connects definitions with
their executors."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from remit.agents.definition import REMOVED_KEYS, Declaration, Definition, Kind
from remit.agents.model_agents import MODEL, profile_on_model, profile_on_model_agent, resolved
from remit.agents.profiles import EXECUTING_KINDS, Binding, By, binding_of, definition_for, profile_on, without_executor
from remit.agents.project_files import Gone, NotApproved
from remit.core.agents import AGENT_FOLDERS, agent_name, must_not_be_reserved
from remit.core.errors import Misused
from remit.core.settings import Settings
from remit.system.files import walk
from remit.system.mcp_servers import is_server
from remit.system.trust import ProjectTrust, load_trust

OWN = AGENT_FOLDERS[0]
MOST_FILES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Declarations:
    """All declarations of a project without Python, read once."""

    settings: Settings
    known: Mapping[str, tuple[Declaration, Definition]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    faults: Mapping[str, str] = field(default_factory=dict)
    """By name: the problem of an agent whose declaration is faulty."""

    def binding(self, profile: Definition) -> Binding:
        return binding_of(profile, self.settings, [definition for _, definition in self.known.values()])

    def joined(self, declared: Declaration, definition: Definition) -> Definition:
        """A profile with its executor; a profile of a built-in agent still names it. Raises `Misused`."""
        if definition.kind is not Kind.PROFILE:
            return definition
        binding = self.binding(definition)
        if binding.executor is not None and binding.executor.kind is Kind.MODEL:
            return profile_on_model_agent(declared, self.settings, self.known[binding.executor.name][0], binding.executor)
        if binding.executor is not None:
            name, kind = binding.executor.name, binding.executor.kind
            if declared.is_guest and binding.by is By.FILE and kind not in EXECUTING_KINDS:
                raise Misused(
                    f"{declared.source}: runs_on: {name} is of the kind {kind}, which a file in this folder cannot choose itself: "
                    f'say it in remit.toml, [roles] {declared.name} = "{name}".'
                )
            return profile_on(declared, self.known[binding.executor.name][0], binding.executor)
        if binding.models is not None:
            names = binding.models
            if declared.is_guest and binding.by is By.FILE:
                names = resolved(names, self.settings, is_guest=True, source=declared.source)
            return profile_on_model(declared, self.settings, names, on=", ".join(names) or MODEL)
        if binding.built_in is not None:
            return definition.having(built_in=binding.built_in)
        return self.unavailable(without_executor(declared, binding.wanted))

    def unavailable(self, profile: Definition) -> Definition:
        """A profile without an executor, with the reason."""
        faults = list(self.faults.values())
        fault = self.faults.get(profile.runs_on, "") if profile.runs_on is not None else "".join(faults[:1])
        # An unapproved setting that could provide an executor.
        keys = ("[agents.", ".agents.", "[models.", ".models.", ":model", "].model", "[roles]", ".roles]", "profiles_on")
        not_approved = next((name for name in self.settings.not_approved if any(key in name for key in keys)), "")
        return profile.having(not_approved=not_approved, fault=fault)


def declarations_of(root: Path, settings: Settings, trust: ProjectTrust | None = None) -> Declarations:
    """Approved agent files only. `trust`: the approvals, if already read."""
    trust = trust or load_trust(root)
    problems: list[str] = []
    known: dict[str, tuple[Declaration, Definition]] = {}
    faults: dict[str, str] = {}
    for declared in (*_from_settings(settings, problems), *_from_files(root, trust, problems)):
        other = known.get(declared.name)
        if other is not None:
            problems.append(f"{declared.source}: ignored, because {other[0].source} also declares an agent {declared.name!r}.")
            continue
        try:
            must_not_be_reserved(declared.name)
            if declared.is_file and is_server(declared.table):
                raise Misused("mcp: an MCP server is declared in remit.toml or pyproject.toml, not in an agent file.")
            whole = _with_schema(declared)
            known[declared.name] = whole, definition_for(whole, settings)
            problems += [f"{declared.source}: {key}: {REMOVED_KEYS[key]}" for key in REMOVED_KEYS.keys() & declared.table.keys()]
        except Misused as error:
            faults[declared.name] = _line_of(declared, error)
            problems.append(faults[declared.name])
    return Declarations(settings=settings, known=known, problems=tuple(problems), faults=faults)


def all_joined(declarations: Declarations) -> tuple[list[Definition], list[str]]:
    """Every declared agent, profiles with their executors; and the faults of the others, one line each."""
    definitions, problems = [], list(declarations.problems)
    for declared, definition in declarations.known.values():
        try:
            definitions.append(declarations.joined(declared, definition))
        except Misused as error:
            problems.append(_line_of(declared, error))
    return definitions, problems


def _from_settings(settings: Settings, problems: list[str]) -> Iterator[Declaration]:
    for name, table in settings.agents.items():
        source = settings.source_of_agent(name)
        try:
            yield Declaration(name=agent_name(name), table=table, source=source)
        except Misused as error:
            problems.append(f"{source}: {error}")


def _from_files(root: Path, trust: ProjectTrust, problems: list[str]) -> Iterator[Declaration]:
    """In order of precedence."""
    for folder in AGENT_FOLDERS:
        for path in _pages_in(root / folder, root, problems):
            # Imported here: programs without such files need not load YAML.
            from remit.agents.agent_files import claude, opencode, ours, read_page

            reader = {".remit/agents": ours, ".claude/agents": claude}.get(folder, opencode)
            try:
                page = read_page(path, root, trust)
                if page is None and folder == OWN:
                    raise Misused("it has no front matter, so it is not an agent. Begin it with a line of three dashes.")
                if page is not None and (declared := reader(page)) is not None:
                    yield declared
            except NotApproved:
                continue  # it is among the unapproved parts of `trust`
            except Misused as error:
                if not isinstance(error, Gone) or path.is_symlink():
                    problems.append(f"{path}: {error}")


def _pages_in(folder: Path, root: Path, problems: list[str]) -> list[Path]:
    """The Markdown files in and below a folder, by name; remit's own folder is not searched recursively."""
    if not folder.is_dir():
        return []
    if not folder.resolve().is_relative_to(root.resolve()):
        problems.append(f"{folder}: it is a link that leads out of the project.")
        return []
    found: list[Path] = []
    for place, below, names in walk(
        folder, lambda error: problems.append(f"{error.filename}: it cannot be read: {error.strerror or error}.")
    ):
        below[:] = [] if folder == root / OWN else below
        pages = (name for name in names if name.endswith(".md") and not name.startswith(("_", ".")) and name.upper() != "README.MD")
        found += [Path(place, name) for name in pages]
        if len(found) > MOST_FILES:
            problems.append(f"{folder}: it has more than {MOST_FILES} files.")
            break
    return found[:MOST_FILES]


def _with_schema(declared: Declaration) -> Declaration:
    """The declaration with a valid output schema as plain JSON: YAML has dates, and numbers as names. Raises `Misused`."""
    schema = declared.table.get("output_schema")
    if schema is None:
        return declared
    if isinstance(schema, str):
        raise Misused("output_schema: write the schema itself; a path is no longer accepted.")
    from remit.runtime.output_schema import check_schema  # only if an agent declares one

    plain: Any = from_json(to_json(check_schema(schema)))
    return replace(declared, table={**declared.table, "output_schema": plain})


def _line_of(declared: Declaration, error: Misused) -> str:
    return f"{declared.source}: {error.message.removeprefix(f'{declared.source}: ')}"
