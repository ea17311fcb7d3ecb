"""The directory: which agents exist and what they accept. Found in the program, in `.remit/agents`, in the settings and by entry point.

A file that cannot be loaded takes no other agent with it: it is listed among `problems`, with the line that broke. Python files are
described (`python_files`), and imported when one of their agents runs. The agents that come
with remit, roles among them, are loaded when first asked for. Agents given in code may take their names; files of a project may not, except
for those of roles. Files are read once, when the project is opened: an agent that can write files cannot give itself another definition.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from remit.agents.declarations import Declarations, all_joined, declarations_of
from remit.agents.definition import Declaration, Definition, Kind
from remit.agents.function import FunctionAgent
from remit.agents.model_agents import unreached
from remit.agents.profiles import definition_for
from remit.agents.python_files import FileAgent, FolderDescription, UnapprovedAgent, agents_in, fault_in
from remit.agents.role_bindings import UnavailableAgent, binding_problems
from remit.agents.roles import built_in_agent, declared_role
from remit.agents.routing import operation_problems
from remit.core.agents import ROLES, AgentSpec, is_built_in, must_not_be_reserved
from remit.core.errors import Misused, RemitError
from remit.core.ports import AgentPort
from remit.core.settings import Settings
from remit.system.packages import offered
from remit.system.trust import ProjectTrust

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "remit.agents"


class Directory:
    def __init__(
        self, carried: Callable[[FunctionAgent | FileAgent], AgentPort], defined: Callable[[Definition], AgentPort] = UnavailableAgent
    ) -> None:
        """`carried` gives a declared function the executor its isolation asks for, `defined` a definition the one of its kind."""
        self._carried = carried
        self._defined = defined
        self._agents: dict[str, AgentPort] = {}
        self._in_order: tuple[AgentPort, ...] | None = None
        """Those by their names; None: one has come or gone since that was last asked."""
        self._offered: dict[str, Callable[[], Iterable[FunctionAgent]]] = {}
        self._offers: dict[str, Callable[[], Iterable[FunctionAgent]]] = {}
        """All that were ever offered: what gave way to an agent comes back when that one is unregistered."""
        self._definitions: dict[str, Definition] = {}
        """What of the project's declarations is in the directory."""
        self._role_pages: dict[str, Declaration] = {}
        self._offered_roles: set[str] = set()
        self._roles: set[str] = set()
        """Roles that are offered and not loaded yet. Apart from the targets: `researcher` is both."""
        self.declarations = Declarations(settings=Settings())
        """What the project declares without Python."""
        self._told: list[Callable[[AgentSpec], None]] = []
        self._told_of_changes: list[Callable[[], None]] = []
        self._problems: list[str] = []
        self._declared_problems: tuple[str, ...] = ()

    @property
    def problems(self) -> list[str]:
        """What could not be loaded, or leads nowhere, a line each; as it is now."""
        return [*self._problems, *self._declared_problems, *self._dead_ends()]

    def add_problems(self, problems: Iterable[str]) -> None:
        self._problems += problems

    def register(self, agent: AgentPort | FunctionAgent) -> None:
        if callable(agent) and not hasattr(agent, "spec"):
            raise Misused(f"{agent!r} is not an agent.", advice="Decorate it with @agent(…).")
        name = agent.spec.name
        known = self._agents.get(name)
        if known is not None and known.spec.source != agent.spec.source and not is_built_in(known.spec):
            raise Misused(f"Two agents are named {name!r}: {known.spec.source} and {agent.spec.source}.", advice="Rename one of them.")
        self._agents[name] = self._carried(agent) if isinstance(agent, FunctionAgent | FileAgent) else agent
        self._in_order = None
        for tell in self._told:
            tell(agent.spec)
        if agent.spec.operations:
            self._tell_of_change()

    def unregister(self, name: str) -> None:
        """Gone, and what gave way to it is back; what runs keeps the agent it has. One that a file declares goes with its file."""
        if name in self._agents and name not in self._definitions:
            self._forget(name)
            self._tell_of_change()

    def define(self, definition: Definition) -> None:
        """An agent that is no Python function, or a role that one of ours carries out. Raises `Misused`."""
        if definition.kind is Kind.PROFILE and definition.built_in is not None:
            self.register(built_in_agent(definition, self.declarations.settings))
        else:
            self.register(self._defined(definition))

    def offer(self, target: str, load: Callable[[], Iterable[FunctionAgent]]) -> None:
        """A target with operations that is loaded when it is first asked for. Whatever else is registered under a name goes before it."""
        self._offered[target] = self._offers[target] = load

    def offer_roles(self, roles: Iterable[str] = ROLES) -> None:
        """Each is read, and joined with who carries it out, when it is first asked for."""
        self._roles |= set(roles)
        self._offered_roles |= set(roles)

    def each(self, tell: Callable[[AgentSpec], None]) -> None:
        """Told of each agent that is registered, and of each that will be: nothing that is merely offered is loaded for it."""
        for agent in self._agents.values():
            tell(agent.spec)
        self._told.append(tell)

    def when_changed(self, tell: Callable[[], None]) -> None:
        """Told now, and whenever agents may have come, gone or changed in what they take."""
        tell()
        self._told_of_changes.append(tell)

    def _tell_of_change(self) -> None:
        for tell in self._told_of_changes:
            tell()

    def find(self, name: str) -> AgentPort | None:
        found = self._agents.get(name)
        if found is None and (self._offered or self._roles):
            self._take_roles(name)
            if name not in self._agents and (load := self._offered.get(name.partition(".")[0])) is not None:
                self._guarded(f"target {name}", partial(self._register_new, load, name))
            found = self._agents.get(name)
        return found

    def _take_roles(self, *names: str) -> None:
        for name in names:
            if name in self._roles:
                self._roles.discard(name)
                if name not in self._agents:
                    self._guarded(f"role {name}", partial(self._define_role, name))

    def _define_role(self, name: str) -> None:
        self.define(self.role(name))

    def role(self, name: str) -> Definition:
        """A role as it comes with remit, joined with who carries it out in this project."""
        declared = self._role_pages.get(name)
        if declared is None:
            declared = self._role_pages[name] = declared_role(name)
        return self.declarations.joined(declared, definition_for(declared, self.declarations.settings))

    def registered(self) -> Sequence[str]:
        """The names of those that are loaded; nothing that is merely offered."""
        return tuple(self._agents)

    def routed_specs(self) -> list[AgentSpec]:
        """Those that take commands of the board, the first of two that take the same going first: functions, then as they are declared.
        Not as they were taken up: what was edited last would come last until the next start."""
        functions = [agent.spec for name, agent in self._agents.items() if name not in self._definitions]
        declared = [self._agents[name].spec for name in self._definitions if name in self._agents]
        return [spec for spec in (*functions, *declared) if spec.operations]

    def _take(self, *targets: str) -> None:
        for target in targets:
            load = self._offered.pop(target, None)
            if load is not None:
                self._guarded(f"target {target}", partial(self._register_new, load))

    def _register_new(self, load: Callable[[], Iterable[FunctionAgent]], only: str = "") -> None:
        """`only`: one operation of the target; the others stay offered."""
        for agent in load():
            if agent.name not in self._agents and (not only or agent.name == only):
                self.register(agent)

    def names(self) -> Sequence[str]:
        self._take_all()
        return tuple(self._agents)

    def _take_all(self) -> None:
        if self._offered:
            self._take(*self._offered)
        if self._roles:
            self._take_roles(*(name for name in ROLES if name in self._roles))

    def specs(self) -> list[AgentSpec]:
        self._take_all()
        if self._in_order is None:
            self._in_order = tuple(self._agents[name] for name in sorted(self._agents))
        return [agent.spec for agent in self._in_order]

    def load_files(self, described: FolderDescription) -> None:
        """The agents that the Python files of a folder declare."""
        self._problems += described.problems
        for agent in described.agents:
            self._guarded(agent.target.file, partial(self._register_of_project, agent))

    def list_unapproved(self, described: FolderDescription, trust: ProjectTrust | None = None) -> None:
        """Agents of files and settings that nobody approved take the place of no other."""
        declared = [(item.agent, item.name) for item in (trust.left_out if trust else ()) if item.agent is not None]
        for name, source in (*((agent.spec.name, agent.spec.source) for agent in described.unapproved), *declared):
            if name not in ROLES and self.find(name) is None:
                self._guarded(source, partial(self._list_unapproved, name, source))

    def _list_unapproved(self, name: str, source: str) -> None:
        self._register_of_project(UnapprovedAgent(name, source))

    def _register_of_project(self, agent: FileAgent | UnapprovedAgent) -> None:
        must_not_be_reserved(agent.spec.name)
        self.register(agent)

    def load_definitions(self, root: Path, settings: Settings, trust: ProjectTrust | None = None) -> None:
        """The agents that approved agent files and settings of a project declare."""
        functions = [name for name, agent in self._agents.items() if not is_built_in(agent.spec)]
        self.declarations = declarations_of(root, settings, trust)
        definitions, found = all_joined(self.declarations)
        problems = [*found, *binding_problems(self.declarations, functions)]
        for definition in definitions:
            try:
                self.define(definition)
                self._definitions[definition.name] = definition
            except (RemitError, ImportError) as error:
                problems.append(f"{definition.spec.source}: {error}")
        self._declared_problems = tuple(problems)
        self._tell_of_change()

    def _forget(self, name: str) -> None:
        """What gave way to it comes back."""
        self._agents.pop(name, None)
        self._in_order = None
        if name in self._offered_roles:
            self._roles.add(name)
        target = name.partition(".")[0]
        if target in self._offers:
            self._offered[target] = self._offers[target]

    def _dead_ends(self) -> list[str]:
        """Tools that no agent is there for, and operations that lead nowhere; an agent that is registered later takes its line away."""
        known = {*self._agents, *self._roles}
        faults = [
            (definition.spec, f"tools: {fault}")
            for definition in self._definitions.values()
            if definition.kind is Kind.MODEL
            for fault in unreached(definition.tools or (), known, self._offers)
        ]
        routing = self.declarations.settings.routing
        faults += operation_problems(self.routed_specs(), routing)
        return [f"{spec.source}: {self._line_of(spec.name, fault)}{fault}" for spec, fault in faults]

    def _line_of(self, name: str, fault: str) -> str:
        declared = self.declarations.known.get(name)
        line = (declared[0].lines or {}).get(fault.partition(":")[0]) if declared is not None else None
        return f"line {line}: " if line else ""

    def load_entry_points(self) -> None:
        """The agents that installed packages offer."""
        for entry in offered(ENTRY_POINTS):
            self._guarded(f"entry point {entry.name}", partial(self._register_entry, entry))

    def _register_entry(self, entry: "EntryPoint") -> None:
        for agent in _agents_of(entry.load()):
            self.register(agent)

    def _guarded(self, where: str, load: Callable[[], None]) -> None:
        try:
            load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary to users' files: one that is broken must not take the others with it
            self._problems.append(fault_in(where, error))


def _agents_of(loaded: object) -> list[FunctionAgent]:
    """An entry point names a module, an agent, or a list of agents."""
    if isinstance(loaded, ModuleType):
        return agents_in(loaded)
    if isinstance(loaded, FunctionAgent):
        return [loaded]
    if isinstance(loaded, list | tuple) and all(isinstance(one, FunctionAgent) for one in loaded):
        return list(loaded)
    raise Misused(f"it gives {loaded!r}.", advice="It must name a module, an agent, or a list of agents.")
