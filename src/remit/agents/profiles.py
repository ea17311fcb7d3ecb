"""Profiles: agent files that say what an agent is and know, carried out by another agent of the project that can run.

A profile takes over everything that its carrier declares (command, environment, workspace, time) and puts in its own name,
description, instructions and model, and whatever it says itself. Reads no file and starts nothing. Whoever can carry profiles stands
in `CARRIERS`: a language model is one more row there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from remit.agents.allowing import Words, narrowed
from remit.agents.definition import Definition, Kind, checked_task, definition_of
from remit.core.errors import Misused, Unavailable
from remit.flow.context import Context

CARRIERS = (Kind.CLAUDE, Kind.CODEX, Kind.OPENCODE, Kind.ACP)
"""Who carries out profiles when nobody says who, the first that is there. A command does only when it is named: it may be anything."""
INHERIT = "inherit"
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
        raise why_uncarried(self.definition)


def why_uncarried(definition: Definition) -> Unavailable:
    """What is missing, and the lines that put it right."""
    wanted = definition.runs_on
    lines = f'[agents.{wanted or "claude"}] with kind = "claude" (or codex, opencode, acp)'
    fault = (
        f"{definition.name} runs on {wanted!r}, and no agent of that name is declared that could carry it out."
        if wanted
        else f"{definition.name} is an agent file, and no coding agent is declared that could carry it out."
    )
    return Unavailable(fault, advice=f"Put {lines} into remit.toml; `remit agents --detect` prints the lines for what is installed here.")


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


def carrier_for(profile: Definition, profiles_on: str | None, definitions: Iterable[Definition]) -> Definition | None:
    """Who carries it out: whom it names itself, whom the settings name, or the first that can."""
    able = [definition for definition in definitions if definition.kind is not Kind.PROFILE]
    wanted = profile.runs_on or profiles_on
    if wanted is not None:
        return next((one for one in able if one.name == wanted), None)
    able = [one for one in able if one.kind in CARRIERS]
    # One that has instructions of its own is somebody already; it is taken only when there is no plain one of its kind.
    return min(able, key=lambda one: (CARRIERS.index(one.kind), bool(one.instructions)), default=None)


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


def uncarried(profile: Declared, profiles_on: str | None) -> Definition:
    """The profile as it is listed while nobody can carry it out."""
    wanted = profile.table.get("runs_on") or profiles_on
    table = profile.table if wanted is None else {**profile.table, "runs_on": wanted}
    return definition_of(profile.name, table, source=profile.source)


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
