"""Profiles: agent files that say what an agent is and know, carried out by another agent of the project that can run.

A profile takes over everything that its carrier declares (command, environment, workspace, time) and puts in its own name,
description, instructions and model, and whatever it says itself. Reads no file and starts nothing. Whoever can carry profiles stands
in `CARRIERS`: a language model is one more row there.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from remit.agents.allowing import Words, narrowed
from remit.agents.builtin.roles import BUILT_INS
from remit.agents.definition import Definition, Kind, checked_task, definition_of
from remit.core.agents import COME_WITH_REMIT, ROLES
from remit.core.errors import ErrorInfo, Misused, Unavailable
from remit.flow.context import Context
from remit.settings import Settings

CARRIERS = (Kind.CLAUDE, Kind.CODEX, Kind.OPENCODE, Kind.ACP)
"""Who carries out profiles when nobody says who, the first that is there. A command does only when it is named: it may be anything."""
INHERIT = "inherit"
BUILT_IN = "built-in"
"""In `[roles]` and `runs_on`: what comes with remit."""
_KEY = re.compile(r"[A-Za-z0-9_-]+")
"""What TOML takes as a key without quotes."""
_SANDBOX = ("read", "search", "edit", "execute")
_LOOKING_ONLY = ("read",)
_CLAUDE_ALIASES = frozenset({"sonnet", "opus", "haiku", "fable", "opusplan", "default"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One agent as it was written, before it is known who carries it out."""

    name: str
    table: Mapping[str, Any]
    """Keys of `DefinitionTable`, unchecked."""
    source: str
    tools: tuple[str, ...] | None = None
    """Which tools it wants to keep of its carrier's; None: all of them."""
    without: tuple[str, ...] = ()
    lines: Mapping[str, int] | None = None
    """Where each key stands, for an agent from a file of its own."""


class Uncarried:
    """A profile that nobody here can carry out: it is listed, and says what is missing when it is asked for."""

    __slots__ = ("definition", "spec")

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.spec = definition.spec

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return checked_task(self.spec.name, parameters)

    async def perform(self, ctx: Context, arguments: dict[str, Any]) -> Any:
        error = why_uncarried(self.definition)
        if self.spec.name not in ROLES:
            raise error
        # Somebody must do something before a role can be carried out: blocked, never a failure of whoever asked.
        info = ErrorInfo(type="tool_unavailable", message=error.message, code=error.code, recoverable=True, recommendation=error.advice)
        summary = f"Nothing was done. {error.message}"[:400]
        return {
            "status": "blocked", "summary": summary, "artifacts": [], "errors": [info.to_dict()], "next_steps": error.advice,
            "metadata": {
                "session_id": ctx.session_id, "agent_type": self.spec.name, "delegation_depth": ctx.depth,
                "delegation_path": list(ctx.path),
            },
        }  # fmt: skip


def why_uncarried(definition: Definition) -> Unavailable:
    """What is missing, and the lines that put it right."""
    wanted = definition.runs_on
    if definition.name in ROLES:
        return _role_uncarried(definition.name, wanted)
    lines = f'[agents.{wanted or "claude"}] with kind = "claude" (or codex, opencode, acp)'
    fault = (
        f"{definition.name} runs on {wanted!r}, and no agent of that name is declared that could carry it out."
        if wanted
        else f"{definition.name} is an agent file, and no coding agent is declared that could carry it out."
    )
    return Unavailable(fault, advice=f"Put {lines} into remit.toml; `remit agents --detect` prints the lines for what is installed here.")


def _role_uncarried(name: str, wanted: str | None) -> Unavailable:
    if wanted == BUILT_IN:
        fault = f"The role {name} is bound to {BUILT_IN!r}, and remit has no built-in for it: it takes a coding agent."
    elif wanted:
        fault = f"The role {name} is bound to {wanted!r}, and no agent of that name is declared that could carry it out."
    else:
        fault = f"Nobody is configured here who could carry out the role {name}: it takes a coding agent."
    return Unavailable(fault, code="TOOL_UNAVAILABLE", advice=lines_for(name, wanted))


def lines_for(role: str, wanted: str | None = None) -> str:
    """The lines of remit.toml that give a role somebody to carry it out."""
    # A role or a target cannot be carried by what has its own name: a table of that name would take its place.
    is_free = wanted is not None and wanted.casefold() not in (BUILT_IN, *ROLES, *COME_WITH_REMIT) and _KEY.fullmatch(wanted)
    agent = wanted if is_free else "claude"
    lines = [
        f"[agents.{agent}]", 'kind = "claude"', 'allow = ["read", "search", "edit", "execute"]', "", "[roles]", f'{role} = "{agent}"',
    ]  # fmt: skip
    said = "\n".join(f"    {line}" if line else "" for line in lines)
    detected = "`remit agents --detect` prints the first lines for the agents that are installed here."
    ours = f' [roles] {role} = "{BUILT_IN}" takes the one that comes with remit.' if role in BUILT_INS else ""
    return f"Add to remit.toml:\n\n{said}\n\n{detected}{ours}"


def definition_for(declared: Declared) -> Definition:
    """What it declares by itself; a profile is not yet carried by anybody. Raises `Misused`."""
    definition = definition_of(declared.name, declared.table, source=declared.source)
    if definition.kind is Kind.PROFILE and definition.command:
        raise Misused(f"{declared.source}: command: a profile has none of its own; its carrier has.")
    if definition.kind is Kind.PROFILE or (declared.tools is None and not declared.without):
        return definition
    return definition_of(
        declared.name, {**declared.table, "allow": _left(declared, definition.allow, definition.kind)}, source=declared.source
    )


class By(StrEnum):
    """Why somebody carries out a profile, or nobody does."""

    SETTING = "setting"
    """`[roles]` names them."""
    FILE = "file"
    """The file itself does: `runs_on`."""
    PROFILES_ON = "profiles_on"
    BUILT_IN = "built-in"
    """It comes with remit, and nobody else was named."""
    FIRST = "first"
    """The first coding agent of the project that can."""
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    by: By
    carrier: Definition | None = None
    built_in: str | None = None
    wanted: str | None = None
    """Who was named, whether there is such a one or not."""

    @property
    def is_carried(self) -> bool:
        return self.carrier is not None or self.built_in is not None


def binding_of(profile: Definition, settings: Settings, definitions: Iterable[Definition]) -> Binding:
    """Who carries it out. Whoever is named first does, or nobody: a name that leads nowhere is never passed over in silence."""
    able = [definition for definition in definitions if definition.kind is not Kind.PROFILE]
    named = ((By.SETTING, settings.roles.get(profile.name)), (By.FILE, profile.runs_on), (By.PROFILES_ON, settings.profiles_on))
    for by, wanted in named:
        if wanted == BUILT_IN and by is not By.PROFILES_ON:
            return Binding(by=by, built_in=built_in_of(profile), wanted=wanted)
        if wanted is not None:
            return Binding(by=by, carrier=next((one for one in able if one.name == wanted), None), wanted=wanted)
    if profile.built_in is not None:
        return Binding(by=By.BUILT_IN, built_in=profile.built_in)
    able = [one for one in able if one.kind in CARRIERS]
    # One that has instructions of its own is somebody already; it is taken only when there is no plain one of its kind.
    first = min(able, key=lambda one: (CARRIERS.index(one.kind), bool(one.instructions)), default=None)
    return Binding(by=By.FIRST, carrier=first) if first is not None else Binding(by=By.NOBODY)


def built_in_of(profile: Definition) -> str | None:
    """What of ours could carry it out: what it names itself; of a file that has the name of a role, that role's."""
    return profile.built_in or (profile.name if profile.name in BUILT_INS else None)


def carried(profile: Declared, on: Declared, carrier: Definition) -> Definition:
    """The profile as an agent that can run. Raises `Misused` when the two do not fit together."""
    own = profile.table
    table = {**on.table, **own}
    if "workspace" in own and "merge" not in own:
        table.pop("merge", None)  # how the carrier's own workspace is merged says nothing about another one
    said = [carrier.instructions.strip(), str(own.get("instructions", "")).strip()]
    table.update(
        kind=carrier.kind,
        description=own.get("description", ""),
        instructions="\n\n".join(part for part in said if part),
        model=own.get("model") if "runs_on" in own and own.get("model") != INHERIT else model_for(own.get("model"), carrier),
        allow=_left(profile, tuple(own.get("allow", carrier.allow)), carrier.kind),
        runs_on=carrier.name,
    )
    table["model"] = table["model"] or carrier.model
    return definition_of(profile.name, table, source=profile.source)


def uncarried(profile: Declared, wanted: str | None) -> Definition:
    """The profile as it is listed while nobody can carry it out."""
    table = profile.table if wanted is None else {**profile.table, "runs_on": wanted}
    return replace(definition_of(profile.name, table, source=profile.source), built_in=None)


def model_for(model: str | None, carrier: Definition) -> str | None:
    """The profile's model where its carrier has such a one, else the carrier's own.

    A file written for one vendor names that vendor's models (`sonnet`, `openai/gpt-5`): to another they mean nothing.
    """
    if model is None or model == INHERIT:
        return carrier.model
    provider, slash, name = model.partition("/")
    match carrier.kind:
        case Kind.CLAUDE if not slash and (model in _CLAUDE_ALIASES or model.startswith("claude")):
            return model
        case Kind.CLAUDE if provider == "anthropic":
            return name
        case Kind.CODEX if provider == "openai" and slash:
            return name
        case Kind.CODEX if not slash and model not in _CLAUDE_ALIASES and not model.startswith("claude"):
            return model
        case Kind.OPENCODE if slash:
            return model
        case _:
            return carrier.model


def _left(declared: Declared, allow: tuple[str, ...], kind: Kind) -> tuple[str, ...]:
    """What the file leaves of what its carrier may use."""
    if declared.tools is None and not declared.without:
        return allow
    if kind is not Kind.CODEX:
        words = Words.NAMES if kind in (Kind.CLAUDE, Kind.OPENCODE) else Words.KINDS
        return narrowed(allow, declared.tools, declared.without, words)
    # Codex knows a sandbox and no list: an empty one is everything that the sandbox lets pass, so it is spelled out, and never left empty.
    return narrowed(allow or _SANDBOX, declared.tools, declared.without, Words.KINDS) or _LOOKING_ONLY
