"""The roles of the board: which agent executes each, invalid bindings, and the lines to add if no agent can."""

import re
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.agents.declarations import Declarations
from remit.agents.definition import Definition, Kind, checked_task
from remit.agents.model_agents import MODEL, names_a_model, why_no_model
from remit.agents.profiles import BUILT_IN, Binding, By, built_in_of, definition_for
from remit.agents.roles import BUILT_INS, declared_role, file_of
from remit.core.agents import BUILTIN_TARGETS, ROLES, is_role
from remit.core.context import Context
from remit.core.errors import Unavailable
from remit.core.settings import Settings
from remit.system.trust import ADVICE, CODE

if TYPE_CHECKING:
    from remit.agents.directory import Directory

# ---- agent files without a executor

_KEY = re.compile(r"[A-Za-z0-9_-]+")
"""A TOML key without quotes."""
MODEL_LINE = 'model = "anthropic:claude-sonnet-5"'
"""The line that configures a language model; any provider, address or local file works."""
_OR_A_MODEL = f"Or let a language model do it, at the top of remit.toml: {MODEL_LINE}"
_MODEL_ADVICE = f"Put {MODEL_LINE} at the top of remit.toml, or REMIT_MODEL into the environment; `remit models` says which answer."
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
    is_role = name in ROLES
    what = f"The role {name} is bound to" if is_role else f"{name} runs on"
    advice = lines_for(name, wanted, is_role=is_role)
    if definition.fault:
        fault = (
            f"{what} {wanted!r}, whose declaration is faulty."
            if wanted
            else f"No agent can carry out {name}; one is declared with a fault."
        )
        fault, advice = f"{fault} {definition.fault}", "Correct it; `remit agents` lists the agents and their problems."
    elif wanted == MODEL:
        fault, advice = f"{what} the project's language model, and the project names none.", _MODEL_ADVICE
    elif wanted == BUILT_IN:
        fault = f"{what} {BUILT_IN!r}, and remit has no built-in for it: it takes a coding agent or a language model."
    elif wanted:
        fault = f"{what} {wanted!r}, and no agent of that name is declared that could carry it out."
    else:
        fault = f"No agent is configured for {'the role ' if is_role else ''}{name}: it takes a coding agent or a language model."
    return Unavailable(fault, code=_CODE, advice=advice)


def lines_for(name: str, wanted: str | None = None, *, is_role: bool = True) -> str:
    """The lines of remit.toml that give a role or an agent file an executor."""
    # An agent with the name of a role or a target would replace it.
    is_free = wanted is not None and wanted.casefold() not in (BUILT_IN, *ROLES, *BUILTIN_TARGETS) and _KEY.fullmatch(wanted)
    agent = wanted if is_free else "claude"
    lines = [f"[agents.{agent}]", 'kind = "claude"', 'allow = ["read", "search", "edit", "execute"]']
    lines += ["", "[roles]", f'{name} = "{agent}"'] if is_role else []
    written = "\n".join(f"    {line}" if line else "" for line in lines)
    ours = f' [roles] {name} = "{BUILT_IN}" takes the one that comes with remit.' if name in BUILT_INS else ""
    detected = "`remit agents --detect` prints the first lines for the agents that are installed here."
    return f"Add to remit.toml:\n\n{written}\n\n{detected}{ours} {_OR_A_MODEL}"


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
    carried_by, advice = "nobody", ""
    if binding.executor is not None:
        carried_by = binding.executor.name
    elif binding.models is not None:
        carried_by = ", ".join(binding.models) or MODEL
    elif binding.built_in is not None:
        carried_by = "built-in"
    elif (missing := getattr(directory.find(profile.name), "definition", None)) is not None:
        advice = why_unavailable(missing).advice
    return RoleInfo(
        name=profile.name,
        description=profile.spec.description,
        carried_by=carried_by,
        because=_because(binding, profile.name, directory.declarations.settings),
        by=str(binding.by if binding.is_carried else By.NOBODY),
        source=profile.spec.source,
        file=file,
        is_own=is_own,
        advice=advice,
    )


def _because(binding: Binding, name: str, settings: Settings) -> str:
    named = {
        By.SETTING: settings.source_of(f"roles.{name}"),
        By.FILE: "runs_on in its file",
        By.PROFILES_ON: settings.source_of("profiles_on"),
    }
    if binding.by in named:
        return named[binding.by] + ("" if binding.is_carried else f" names {binding.wanted!r}, which does not exist")
    return {
        By.BUILT_IN: "comes with remit; no other agent is named",
        By.MODEL: f"{settings.source_of('model')}; no coding agent is declared",
        By.FIRST: "the first coding agent that can",
        By.NOBODY: "no coding agent is declared, and no language model",
    }[binding.by]


# ---- bindings


def binding_problems(declarations: Declarations, functions: Collection[str]) -> Iterator[str]:
    """A line for each ineffective entry of `[roles]`; `functions` are the known Python agents."""
    settings = declarations.settings
    for role, bound in settings.roles.items():
        fault = _role_fault(role, declarations, functions) or _binding_fault(role, bound, declarations, functions)
        if fault:
            yield f"{settings.source_of(f'roles.{role}')}: {fault}"


def _role_fault(role: str, declarations: Declarations, functions: Collection[str]) -> str:
    declared = _definition(role, declarations)
    if role in functions or (declared is not None and declared.kind is not Kind.PROFILE):
        return f"{role} is the project's own agent and needs no binding, so this line has no effect. Remove it."
    if role in ROLES or declared is not None:
        return ""
    profiles = [name for name, (_, one) in declarations.known.items() if one.kind is Kind.PROFILE]
    return f"there is no role or agent file {role!r}.{_did_you_mean(role, [*ROLES, *profiles])} `remit roles` lists them."


def _binding_fault(role: str, bound: str, declarations: Declarations, functions: Collection[str]) -> str:
    found, settings = _definition(bound, declarations), declarations.settings
    if bound == BUILT_IN:
        own = _definition(role, declarations)
        has_built_in = role in BUILT_INS if own is None else built_in_of(own) is not None
        return "" if has_built_in else f"{role} has no built-in: it takes a coding agent or a language model."
    if found is not None and found.kind is not Kind.PROFILE:
        return ""
    if found is None and bound == MODEL:
        return "" if settings.model else "it names the project's language model, and the project names none: add model = …"
    if found is None and names_a_model(bound, settings):
        return why_no_model(bound, settings)
    if found is not None or bound in ROLES:
        what = "itself an agent file" if found is not None else "a role itself"
        return f"{bound!r} is {what}: name the coding agent that carries out {role}."
    if bound in functions:
        return f"{bound!r} is a Python function, which takes no instructions: name that function {role!r} itself, and it has the role."
    able = [name for name, (_, one) in declarations.known.items() if one.kind is not Kind.PROFILE]
    known = f" Declared are {', '.join(able[:10])}." if able else " No coding agent is declared: `remit agents --detect` prints the lines."
    return f"it names {bound!r}, which is not an agent.{_did_you_mean(bound, [*able, BUILT_IN, MODEL]) or known}"


def _definition(name: str, declarations: Declarations) -> Definition | None:
    return declarations.known.get(name, (None, None))[1]


def _did_you_mean(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]}?" if close else ""
