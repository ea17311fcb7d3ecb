"""The directory of agents: from the program, `.remit/agents`, the settings and entry points.

A file that cannot be loaded does not affect others: it is listed among `problems`, with the failing line. Python files are described
(`python_files`), and imported when one of their agents runs. Built-in agents, roles included, are loaded on first use. Agents given in code
may replace them; project files may only replace roles. Files are read once, when the project is opened: an agent that can write files
cannot give itself another definition. What reads and validates declarations is imported if the project has any, or uses a role."""

import contextlib
import dataclasses
import hashlib
import inspect
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from remit.agents.function import FunctionAgent
from remit.agents.python_files import FileAgent, FolderDescription, UnapprovedAgent, agents_in, fault_in
from remit.core.agents import AGENT_FOLDERS, NOT_APPROVED, ROLES, AgentSpec, is_built_in, is_operation, must_not_be_reserved
from remit.core.errors import Misused, RemitError, Unavailable
from remit.core.ports import AgentPort
from remit.core.settings import Settings
from remit.system.packages import offered
from remit.system.trust import ProjectTrust

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from remit.agents.declarations import Declarations
    from remit.agents.definition import Declaration, Definition

ENTRY_POINTS = "remit.agents"


class OfferedAgent(AgentPort, Protocol):
    """An agent whose name is known before its declaration is read."""

    @property
    def name(self) -> str: ...


class Directory:
    def __init__(
        self, carried: Callable[[FunctionAgent | FileAgent], AgentPort], defined: "Callable[[Definition], AgentPort] | None" = None
    ) -> None:
        """`carried` gives a function the executor of its isolation, `defined` gives a definition the executor of its kind; without it,
        every declared agent is unavailable."""
        self._executor_of_function = carried
        self._executor_of_definition = defined
        self._agents: dict[str, AgentPort] = {}
        self._offers: dict[str, Callable[[], Iterable[OfferedAgent]]] = {}
        self._declared: dict[str, FunctionAgent | FileAgent] = {}
        """Functions and files as registered, before they got their executor."""
        self._definitions: dict[str, Definition] = {}
        """The project's declarations in the directory."""
        self._role_pages: dict[str, Declaration] = {}
        self._roles: tuple[str, ...] = ()
        """Offered roles. Separate from targets: `researcher` is both."""
        self._is_loaded = False
        """Whether all that is offered was loaded."""
        self._settings = Settings()
        self._declarations: Declarations | None = None
        self._listeners: list[Callable[[AgentSpec], None]] = []
        self._problems: list[str] = []
        self._unapproved_tools: list[tuple[str, str]] = []
        self._declared_problems: tuple[str, ...] = ()

    @property
    def declarations(self) -> "Declarations":
        """The project's declarations without Python."""
        if self._declarations is None:
            from remit.agents.declarations import Declarations

            self._declarations = Declarations(settings=self._settings)
        return self._declarations

    @property
    def problems(self) -> list[str]:
        """Loading faults, one line each."""
        return [*self._problems, *self._declared_problems]

    def add_problems(self, problems: Iterable[str]) -> None:
        self._problems += problems

    def register(self, agent: AgentPort | FunctionAgent) -> None:
        if callable(agent) and not hasattr(agent, "spec"):
            raise Misused(f"{agent!r} is not an agent.", advice="Decorate it with @agent(…).")
        name = agent.spec.name
        known = self._agents.get(name)
        if known is not None and known.spec.source != agent.spec.source and not is_built_in(known.spec):
            raise Misused(f"Two agents are named {name!r}: {known.spec.source} and {agent.spec.source}.", advice="Rename one of them.")
        self._declared.pop(name, None)
        if isinstance(agent, FunctionAgent | FileAgent):
            self._declared[name] = agent
        carried = self._executor_of_function(agent) if isinstance(agent, FunctionAgent | FileAgent) else agent
        self._agents[name] = RequiringAgent(carried, self.missing) if agent.spec.requires else carried
        for tell in self._listeners:
            tell(agent.spec)

    def unregister(self, name: str) -> None:
        """Remove an agent; a replaced one returns, and running delegations keep theirs. An agent of a file is removed with its file."""
        if name in self._agents and name not in self._definitions:
            del self._agents[name]
            self._is_loaded = False

    def define(self, definition: "Definition") -> None:
        """Register a declared agent, or a role executed by a built-in agent. Raises `Misused`."""
        from remit.agents.definition import Kind
        from remit.agents.role_bindings import UnavailableAgent
        from remit.agents.roles import built_in_agent

        if definition.kind is Kind.PROFILE and definition.built_in is not None:
            self.register(built_in_agent(definition, self._settings))
        else:
            self.register((self._executor_of_definition or UnavailableAgent)(definition))

    def offer(self, target: str, load: Callable[[], Iterable[OfferedAgent]]) -> None:
        """A target with operations, loaded on first use. Other registrations of its names take precedence."""
        self._offers[target] = load
        self._is_loaded = False

    def offer_roles(self) -> None:
        """Each role is read and bound to its agent on first use."""
        self._roles = ROLES
        self._is_loaded = False

    def each(self, tell: Callable[[AgentSpec], None]) -> None:
        """Call `tell` for each agent registered now or later; offered ones are not loaded for this."""
        for agent in self._agents.values():
            tell(agent.spec)
        self._listeners.append(tell)

    def find(self, name: str) -> AgentPort | None:
        found = self._agents.get(name)
        if found is None and not self._is_loaded:
            if name in self._roles:
                self._load_role(name)
            elif (load := self._offers.get(name.partition(".")[0])) is not None:
                self._load_guarded(f"target {name}", partial(self._register_new, load, name))
            found = self._agents.get(name)
        if found is None and isinstance(target := self._agents.get(name.partition(".")[0]), UnapprovedAgent):
            return target  # its operations are known only after approval
        return found

    def includes(self, listed: str, name: str) -> bool:
        """Whether a list of agents or a grant that names `listed` includes the agent `name`: `worker` includes `worker.read_file`."""
        if name == listed or not name.startswith(f"{listed}."):
            return name == listed
        agent, named = self.find(name), self.find(listed)
        return agent is None or is_operation(agent.spec, listed, None if named is None else named.spec)

    def definition_hash(self, name: str) -> str:
        """Hash of an agent's declaration, including its code if readable: equal in all processes that would execute it alike."""
        agent = self.find(name)
        if agent is None:
            return "none"
        declared, definition = self._declared.get(name), self._definitions.get(name)
        code = ""
        if isinstance(declared, FileAgent):
            code = declared.target.digest
        elif declared is not None:
            with contextlib.suppress(OSError, TypeError):  # typed at a prompt
                code = inspect.getsource(declared.function)
        elif definition is not None:
            code = repr(definition.having(spec=dataclasses.replace(definition.spec, source="")))
        spec = dataclasses.replace(agent.spec, source="")
        return hashlib.sha256(f"{spec!r}\n{code}".encode()).hexdigest()[:12]

    def _load_role(self, name: str) -> None:
        if name not in self._agents:
            self._load_guarded(f"role {name}", lambda: self.define(self.role(name)))

    def role(self, name: str) -> "Definition":
        """A built-in role, bound to the agent that executes it in this project."""
        from remit.agents.profiles import definition_for
        from remit.agents.roles import declared_role

        declared = self._role_pages.get(name)
        if declared is None:
            declared = self._role_pages[name] = declared_role(name)
        return self.declarations.joined(declared, definition_for(declared, self._settings))

    def missing(self, spec: AgentSpec) -> str:
        """A missing requirement of an agent, as text; empty if all are met."""
        for kind, _, name in (requirement.partition(":") for requirement in spec.requires):
            if kind == "tool" and shutil.which(name) is None:
                return f"it requires the program {name}, which is not on PATH"
            if kind == "mcp" and not self._has_server(name):
                return f"it requires the MCP server {name}, {self._why_no_server(name)}"
        return ""

    def _has_server(self, name: str) -> bool:
        return any(one.mcp is not None and one.mcp.tool and one.mcp.server == name for one in self._definitions.values())

    def _why_no_server(self, name: str) -> str:
        declared = self._definitions.get(name)
        if declared is not None and declared.mcp is not None:
            return f"which cannot be used: {declared.mcp.fault}"
        is_unapproved = name in self._agents and self._agents[name].spec.kind == NOT_APPROVED
        return "which is not approved (remit trust)" if is_unapproved else f"which no setting declares ([agents.{name}] mcp = …)"

    def registered(self) -> Sequence[str]:
        """Names of loaded agents, without offered ones."""
        return tuple(self._agents)

    def _register_new(self, load: Callable[[], Iterable[OfferedAgent]], only: str = "") -> None:
        """`only`: one operation of the target; the others stay offered."""
        for agent in load():
            if agent.name not in self._agents and (not only or agent.name == only):
                self.register(agent)

    def names(self) -> Sequence[str]:
        if not self._is_loaded:
            for target, load in self._offers.items():
                self._load_guarded(f"target {target}", partial(self._register_new, load))
            for name in self._roles:
                self._load_role(name)
            self._is_loaded = True
        return tuple(self._agents)

    def specs(self) -> list[AgentSpec]:
        return [self._agents[name].spec for name in sorted(self.names())]

    def load_files(self, described: FolderDescription) -> None:
        """Add the agents of a folder's Python files."""
        self._problems += described.problems
        for agent in described.agents:
            self._load_guarded(agent.target.file, partial(self._register_of_project, agent))

    def list_unapproved(self, described: FolderDescription, trust: ProjectTrust | None = None) -> None:
        """Unapproved agents never replace others."""
        declared = [(item.agent, item.name) for item in (trust.left_out if trust else ()) if item.agent is not None]
        files = [(agent.spec.name, agent.spec.source) for agent in described.unapproved]
        for name, source in (*files, *declared, *self._unapproved_tools):
            if name not in ROLES and self.find(name) is None:
                self._load_guarded(source, partial(self._list_unapproved, name, source))

    def _list_unapproved(self, name: str, source: str) -> None:
        self._register_of_project(UnapprovedAgent(name, source))

    def _register_of_project(self, agent: FileAgent | UnapprovedAgent) -> None:
        must_not_be_reserved(agent.spec.name)
        self.register(agent)

    def load_definitions(self, root: Path, settings: Settings, trust: ProjectTrust | None = None) -> None:
        """Add the agents of approved agent files and settings."""
        self._settings = settings
        if settings.agents or settings.roles or any((root / folder).is_dir() for folder in AGENT_FOLDERS):
            self._define_all(root, settings, trust)

    def _define_all(self, root: Path, settings: Settings, trust: ProjectTrust | None) -> None:
        from remit.agents.declarations import all_joined, declarations_of
        from remit.agents.role_bindings import binding_problems

        functions = [name for name, agent in self._agents.items() if not is_built_in(agent.spec)]
        self._declarations = declarations_of(root, settings, trust)
        definitions, found = all_joined(self.declarations)
        problems = [*found, *binding_problems(self.declarations, functions)]
        for definition in self._with_tools(definitions, root, trust, problems):
            try:
                self.define(definition)
                self._definitions[definition.name] = definition
            except (RemitError, ImportError) as error:
                problems.append(f"{definition.spec.source}: {error}")
            except Exception as error:  # noqa: BLE001 - code of a package that adds a kind must not affect the other agents
                problems.append(fault_in(f"{definition.spec.source}: kind {definition.kind}", error))
        self._declared_problems = tuple(problems)

    def _with_tools(
        self, definitions: "Iterable[Definition]", root: Path, trust: ProjectTrust | None, problems: list[str]
    ) -> "Iterator[Definition]":
        """Replace each MCP server by its tools."""
        from remit.agents.definition import Kind

        for definition in definitions:
            if definition.kind is not Kind.MCP:
                yield definition
                continue
            from remit.agents.mcp.tool_agents import tools_of

            found = tools_of(self.declarations.known[definition.name][0], definition, root, trust)
            problems += found.problems
            self._unapproved_tools += [(name, definition.spec.source) for name in found.unapproved]
            yield from found.definitions

    def load_entry_points(self) -> None:
        """Add the agents of installed packages."""
        for entry in offered(ENTRY_POINTS):
            self._load_guarded(f"entry point {entry.name}", partial(self._register_entry, entry))

    def _register_entry(self, entry: "EntryPoint") -> None:
        for agent in _agents_of(entry.load()):
            self.register(agent)

    def _load_guarded(self, where: str, load: Callable[[], None]) -> None:
        try:
            load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - one broken user file must not affect the others
            if (problem := fault_in(where, error)) not in self._problems:
                self._problems.append(problem)


class RequiringAgent:
    """An agent that requires programs or MCP servers. If one is missing it is listed as unavailable with the reason."""

    def __init__(self, agent: AgentPort, missing: Callable[[AgentSpec], str]) -> None:
        self._agent = agent
        self._missing = missing
        self.spec: AgentSpec = agent.spec
        self.definition: Definition | None = getattr(agent, "definition", None)

    def check(self, parameters: dict[str, Any]) -> Any:
        return self._agent.check(parameters)

    async def perform(self, ctx: Any, arguments: Any) -> Any:
        if fault := self._missing(self.spec):
            raise Unavailable(f"{self.spec.name} is unavailable: {fault}.", advice="Provide it, then delegate again.")
        return await self._agent.perform(ctx, arguments)


def _agents_of(loaded: object) -> list[FunctionAgent]:
    """An entry point names a module, an agent, or a list of agents."""
    if isinstance(loaded, ModuleType):
        return agents_in(loaded)
    if isinstance(loaded, FunctionAgent):
        return [loaded]
    if isinstance(loaded, list | tuple) and all(isinstance(one, FunctionAgent) for one in loaded):
        return list(loaded)
    raise Misused(f"it gives {loaded!r}.", advice="It must name a module, an agent, or a list of agents.")
