"""Flows: compositions in files of a project. `.remit/flows/NAME.toml` is the agent `flow.NAME`, once a person approved it.

    description = "Count the words of every text"
    result = "report#/text"
    [parameters.folder]
    type = "string"
    default = "notes"
    [[sequence]]
    id = "files"
    call = "worker.list_files"
    parameters = {path = {"$" = "input#/folder"}}

Files are read when the project is opened, and nothing runs for that. Those without approval are listed, and refused when they are called.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.agents.project_files import NotApproved, bytes_of
from remit.agents.python_files import UnapprovedAgent
from remit.builtin.compose import SPEC, ComposeAgent, Flows, Plan
from remit.core.agents import FLOW, AgentSpec, agent_name
from remit.core.composition import Step, composition_from
from remit.core.deadline import TimeLimits
from remit.core.errors import Misused
from remit.core.parameters import named_parameters
from remit.core.references import INPUT
from remit.core.text import shorten
from remit.system.trust import MAX_FILES, ProjectTrust

if TYPE_CHECKING:
    from remit.agents.directory import Directory

FOLDER = ".remit/flows"
MAX_BYTES = 256 * 1024
_KEYS = ("description", "timeout", "idle", "parameters")
"""Keys beside those of a composition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    spec: AgentSpec
    root: Step

    @property
    def defaults(self) -> dict[str, Any]:
        properties: Mapping[str, Any] = self.spec.parameters_schema["properties"]
        return {name: one["default"] for name, one in properties.items() if "default" in one}

    def checked(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The values of `input` for the steps. Raises `Misused` with each fault."""
        given = named_parameters(self.spec.name, self.spec.parameters_schema, parameters)
        for name, value in given.items():
            allowed = self.spec.parameters_schema["properties"][name].get("enum")
            if allowed is not None and value not in allowed:
                raise Misused(f"Parameters of {self.spec.name}: {name} must be one of {allowed}, not {shorten(repr(value), 60)}.")
        return {**self.defaults, **given}

    def as_composition(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The equivalent parameters of `compose.run`."""
        return {**self.root.to_dict(), INPUT: self.checked(parameters)}


class FlowAgent(ComposeAgent):
    """The composition of a flow, with its own parameters."""

    def __init__(self, flow: Flow, agents: "Directory", limits_for: Callable[[str], TimeLimits]) -> None:
        super().__init__(agents, limits_for)
        self.flow = flow
        self.spec = flow.spec

    def check(self, parameters: dict[str, Any]) -> Plan:
        return Plan(self.flow.root, self.check_inputs(parameters), most_calls=self.check_calls(self.flow.root))

    def check_inputs(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.flow.checked(parameters)

    def check_steps(self, flows: Flows) -> None:
        if flows.get(self.name):
            path = [name for name, is_open in flows.items() if is_open]
            cycle = " → ".join((*path[path.index(self.name) :], self.name))
            raise Misused(f"{cycle} is a cycle.", code="CYCLE_DETECTED", advice="Change one of these flows.")
        if self.name not in flows:
            flows[self.name] = True
            try:
                self.check_calls(self.flow.root, flows=flows)
            except Misused as fault:
                raise Misused(f"{self.name}: {fault.message}", code=fault.code, advice=fault.advice) from None
            flows[self.name] = False


def load_flows(directory: "Directory", root: Path, limits_for: Callable[[str], TimeLimits], trust: ProjectTrust) -> None:
    """Add the flows of a project as agents. Unreadable ones are among the problems of the directory."""
    problems = []
    for path in sorted((root / FOLDER).glob("[!._]*.toml"))[:MAX_FILES]:
        try:
            name = agent_name(f"{FLOW}.{path.stem}")
            try:
                data = bytes_of(path, root, MAX_BYTES, trust)
            except NotApproved:
                directory.register(UnapprovedAgent(name, str(path)))
                continue
            directory.register(FlowAgent(read_flow(data, name, str(path)), directory, limits_for))
        except Misused as error:
            problems.append(f"{path}: {error}")
    directory.add_problems(problems)


def read_flow(data: bytes, name: str, source: str) -> Flow:
    """Parse the content of its file. Raises `Misused` with the key or the step."""
    try:
        document = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Misused(f"it is not TOML: {shorten(str(error), 200)}.") from None
    properties = document.get("parameters", {})
    if not isinstance(properties, dict) or not all(isinstance(one, dict) for one in properties.values()):
        raise Misused("parameters: write a table for each, e.g. [parameters.path] with type and description.")
    root = composition_from({**{key: value for key, value in document.items() if key not in _KEYS}, INPUT: properties})
    description, timeout, idle = (document.get(key) for key in ("description", "timeout", "idle"))
    if not isinstance(description, str | None):
        raise Misused("description: it is not text.")
    for key, value in (("timeout", timeout), ("idle", idle)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise Misused(f"{key}: it is not a number of seconds.")
    schema = {
        "type": "object",
        "properties": properties,
        "required": [key for key, one in properties.items() if "default" not in one],
        "additionalProperties": False,
    }
    spec = AgentSpec(
        name=name,
        description=description or "",
        timeout_seconds=timeout,
        idle_seconds=idle,
        workspace=SPEC.workspace,
        resumable=True,
        acts_for_caller=True,
        parameters_schema=schema,
        kind=FLOW,
        source=source,
    )
    return Flow(spec=spec, root=root)
