"""The roles of the board: which agent executes each, invalid bindings, and the lines to add if no agent can."""

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.agents.declarations import Declarations
from remit.agents.definition import Definition, Kind, checked_task
from remit.agents.model_agents import MODEL, names_a_model, why_no_model
from remit.agents.profiles import BUILT_IN, By, built_in_of, definition_for
from remit.agents.roles import BUILT_INS, declared_role, file_of
from remit.core.agents import ROLES, is_role
from remit.core.context import Context
from remit.core.errors import Unavailable
from remit.system.trust import ADVICE, CODE

if TYPE_CHECKING:
    from remit.agents.directory import Directory

# ---- agent files without an executor

MODEL_LINE = 'model = "anthropic:claude-sonnet-5"'
"""The line that configures a language model; any provider, address or local file works."""
_LINES = """\
Add to remit.toml:

    [agents.claude]
    kind = "claude"
    allow = ["read", "search", "edit", "execute"]
"""
_BINDING = """
    [roles]
    {name} = "claude"
"""
_MORE = """
`remit agents --detect` prints the first lines for the agents that are installed here.{ours} Or let a language model do it, at the top of \
remit.toml: {model}"""
_CODE = "TOOL_UNAVAILABLE"
"""A person must act first: blocked, not a failure of the caller."""


class UnavailableAgent:
    """A profile without an executor: it is listed, and reports what is missing when called."""

    __slots__ = ("definition", "spec")

    def __init__(self, definition: Definition, _deps: object = None) -> None:
        self.definition = definition
        self.spec = definition.spec

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return checked_task(self.spec.name, parameters)

    async def perform(self, ctx: Context, arguments: dict[str, Any]) -> Any:
        raise why_unavailable(self.definition)


def why_unavailable(definition: Definition) -> Unavailable:
    """The error with what is missing, and the lines that fix it."""
    name, wanted = definition.name, definition.runs_on
    if definition.not_approved:
        fault = f"No approved agent carries out {name}, and {definition.not_approved} is not approved."
        return Unavailable(fault, code=CODE, advice=ADVICE)
    what = f"the role {name}" if name in ROLES else name
    fault = f"No agent is configured for {what}: it takes a coding agent or a language model."
    if wanted:
        fault = f"{wanted!r}, which is to carry out {what}, cannot: it takes a coding agent or a language model of this project."
    return Unavailable(f"{fault} {definition.fault}".strip(), code=_CODE, advice=_lines_for(name))


def _lines_for(name: str) -> str:
    """The lines of remit.toml that give a role or an agent file an executor."""
    ours = f' [roles] {name} = "{BUILT_IN}" takes the one that comes with remit.' if name in BUILT_INS else ""
    binding = _BINDING.format(name=name) if name in ROLES else ""
    return _LINES + binding + _MORE.format(ours=ours, model=MODEL_LINE)


# ---- roles as listed


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleInfo:
    name: str
    description: str
    carried_by: str
    """`built-in`, `"nobody"`, a model, or the agent's name; for a replaced role that runs by itself, its kind."""
    because: str
    """The reason as text."""
    by: str
    """The reason for programs: setting, file, profiles_on, built-in, first, model, `nobody`, replaced."""
    source: str
    """Where it is declared."""
    file: Path | None
    """The file to read; None if there are no instructions in a file."""
    is_own: bool
    """Whether the project replaced it."""
    advice: str = ""
    """The missing part, if no agent executes it."""

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "file": None if self.file is None else str(self.file), "advice": self.advice or None}


def role_infos(directory: "Directory") -> Iterator[RoleInfo]:
    """The roles of this project: all, unless the setting `builtin_agents` omits them."""
    yield from filter(None, (role_info(directory, name) for name in ROLES))


def role_info(directory: "Directory", name: str) -> RoleInfo | None:
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
    return RoleInfo(
        name=name, description=spec.description, carried_by=kind, because="an agent of this name replaces it", by="replaced",
        source=spec.source, file=None, is_own=True,
    )  # fmt: skip


def _profile(directory: "Directory", profile: Definition, file: Path, *, is_own: bool) -> RoleInfo:
    binding = directory.declarations.binding(profile)
    carried_by = "nobody"
    if binding.executor is not None:
        carried_by = binding.executor.name
    elif binding.models is not None:
        carried_by = ", ".join(binding.models) or MODEL
    elif binding.built_in is not None:
        carried_by = "built-in"
    missing = None if binding.is_carried else getattr(directory.find(profile.name), "definition", None)
    settings = directory.declarations.settings
    because = {By.SETTING: settings.source_of(f"roles.{profile.name}"), By.PROFILES_ON: settings.source_of("profiles_on")}
    why = because.get(binding.by, _BECAUSE.get(binding.by, ""))
    return RoleInfo(
        name=profile.name,
        description=profile.spec.description,
        carried_by=carried_by,
        because=why if binding.is_carried or binding.wanted is None else f"{why} names {binding.wanted!r}, which cannot carry it out",
        by=str(binding.by if binding.is_carried else By.NOBODY),
        source=profile.spec.source,
        file=file,
        is_own=is_own,
        advice="" if missing is None else why_unavailable(missing).advice,
    )


_BECAUSE = {
    By.FILE: "runs_on in its file",
    By.BUILT_IN: "comes with remit; no other agent is named",
    By.FIRST: "the first coding agent that can",
    By.MODEL: "the project's model; no coding agent is declared",
    By.NOBODY: "no coding agent is declared, and no language model",
}


# ---- bindings


def binding_problems(declarations: Declarations, functions: Collection[str]) -> Iterator[str]:
    """A line for each ineffective entry of `[roles]`; `functions` are the known Python agents."""
    settings = declarations.settings
    kinds = {name: definition.kind for name, (_, definition) in declarations.known.items()}
    for role, bound in settings.roles.items():
        fault = ""
        if role in functions or kinds.get(role, Kind.PROFILE) is not Kind.PROFILE:
            fault = f"{role} is the project's own agent and needs no binding, so this line has no effect. Remove it."
        elif role not in ROLES and role not in kinds:
            fault = f"there is no role or agent file {role!r}.{_did_you_mean(role, [*ROLES, *kinds])} `remit roles` lists them."
        elif bound == BUILT_IN:
            has_one = built_in_of(declarations.known[role][1]) is not None if role in kinds else role in BUILT_INS
            fault = "" if has_one else f"{role} has no built-in: it takes a coding agent or a language model."
        elif kinds.get(bound, Kind.PROFILE) is Kind.PROFILE and not (bound == MODEL and settings.model):
            hint = _did_you_mean(bound, [*kinds, BUILT_IN, MODEL])
            fault = (
                why_no_model(bound, settings)
                if names_a_model(bound, settings)
                else (f"{bound!r} cannot carry it out: name a coding agent, a command or a language model of this project.{hint}")
            )
        if fault:
            yield f"{settings.source_of(f'roles.{role}')}: {fault}"


def _did_you_mean(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]}?" if close else ""
