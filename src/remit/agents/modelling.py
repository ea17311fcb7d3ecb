"""Agents that are language models: of a declaration the definition that `agents.model` carries out.

Decides which models are meant and whom they may delegate to. Asks nobody, and imports nothing of any provider. A file with `kind: model`
is one, so is one of ours that names a model by its provider; a profile is carried by a model when it is bound to one (`agents.profiles`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from remit.agents.definition import Declared, Definition, Kind, definition_of
from remit.agents.reaching import Reach, reach_of
from remit.core.errors import Misused, Unavailable
from remit.settings import Settings

MODEL = "model"
"""In `[roles]`, `runs_on` and `profiles_on`: the project's language model."""
ALIASES = frozenset({"sonnet", "opus", "haiku", "fable", "opusplan", "default", "inherit", "best"})
"""What vendors' files call a model without saying which: the project's, unless `[models]` has one of that name."""
_FAMILIES = {"claude-": "anthropic", "gpt-": "openai", "gemini-": "google"}
_NOT_CARRIED = (
    "kind", "command", "prompt", "folder", "pass_environment", "environment", "hand_in", "options", "delegates", "runs_on", "built_in",
    "isolation", "allow",
)  # fmt: skip
"""What a profile may say that means nothing once a model carries it out."""


def names_a_model(name: str, settings: Settings) -> bool:
    """Whether it is the name of a model, and not of an agent: `anthropic:…`, or NAME of `[models.NAME]`."""
    provider, colon, model = name.partition(":")
    return name in settings.models or bool(colon and provider and model)


def is_model_agent(declared: Declared, settings: Settings) -> bool:
    """Whether it is a model by itself: it says so, or it is a file of ours that names a model and nobody to carry it out."""
    table = declared.table
    if table.get("kind") is not None or declared.is_guest:
        return table.get("kind") == Kind.MODEL
    if table.get("command") or table.get("runs_on") or table.get("built_in") or declared.name in settings.roles:
        return False
    said = table.get("model")
    names = [said] if isinstance(said, str) else said if isinstance(said, list | tuple) else []
    return any(isinstance(name, str) and name not in ALIASES and names_a_model(name, settings) for name in names)


def model_agent(declared: Declared, settings: Settings) -> Definition:
    """A model of its own. Raises `Misused`."""
    table = {**declared.table, "kind": Kind.MODEL}
    # Judged as it was written first: what is wrong with a key is said before what it would mean.
    said = definition_of(declared.name, table, source=declared.source)
    reach = _reach(declared, said.tools)
    names, notes = resolved(said.models, settings, is_guest=declared.is_guest, source=declared.source)
    return replace(said, models=names, tools=reach.tools, notes=(*declared.notes, *reach.notes, *notes))


def carried_by_model(profile: Declared, settings: Settings, names: Sequence[str], *, on: str, requests: int | None = None) -> Definition:
    """A profile that a model carries out; `names`: which ones, none: the project's; `requests`: the most that a guest may have. Raises
    `Misused`."""
    table = {key: value for key, value in profile.table.items() if key not in _NOT_CARRIED}
    said = definition_of(profile.name, {**table, "kind": Kind.MODEL}, source=profile.source)
    allowed = profile.table.get("allow")
    tools = said.tools if said.tools is not None or not isinstance(allowed, list | tuple) else tuple(map(str, allowed))
    reach = _reach(profile, tools)
    own, notes = resolved(said.models, settings, is_guest=profile.is_guest, source=profile.source)
    own_requests = said.requests
    if profile.is_guest and own_requests is not None:
        own_requests = min(own_requests, requests or settings.model_requests)
    dropped = [key for key in _NOT_CARRIED if key in profile.table and key not in ("kind", "runs_on", "built_in", "allow")]
    unused = (f"{', '.join(dropped)}: a language model carries it out, which has no use for it",) if dropped else ()
    return replace(
        said,
        models=own or tuple(names),
        tools=reach.tools,
        requests=own_requests,
        runs_on=on,
        notes=(*profile.notes, *reach.notes, *notes, *unused),
    )


def carried_by_agent(profile: Declared, settings: Settings, carrier: Definition) -> Definition:
    """A profile that runs on an agent which is a model itself: its models, its limits, its instructions before the profile's own."""
    own = profile.table
    taken: dict[str, Any] = {
        "timeout": carrier.spec.timeout_seconds, "idle": carrier.spec.idle_seconds, "requests": carrier.requests,
        "temperature": carrier.temperature, "slots": carrier.spec.slots, "retries": carrier.spec.retries,
        "workspace": carrier.spec.workspace, "answers": carrier.spec.answers,
    }  # fmt: skip
    instructions = [carrier.instructions.strip(), str(own.get("instructions", "")).strip()]
    table = {
        **{key: value for key, value in taken.items() if value is not None},
        **own,
        "instructions": "\n\n".join(part for part in instructions if part),
    }
    found = carried_by_model(replace(profile, table=table), settings, carrier.models, on=carrier.name, requests=carrier.requests)
    if carrier.tools is None:
        return found
    return replace(found, tools=_both(found.tools, carrier.tools))


def _both(tools: tuple[str, ...] | None, carriers: tuple[str, ...]) -> tuple[str, ...]:
    """The narrower of each pair: a profile never reaches more than its carrier."""
    from remit.agents.reaching import is_reached

    if tools is None:
        return carriers
    return tuple(dict.fromkeys([one for one in tools if is_reached(one, carriers)] + [one for one in carriers if is_reached(one, tools)]))


def resolved(names: Sequence[str], settings: Settings, *, is_guest: bool, source: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The models that names stand for, none being the project's; and notes. Raises `Misused` for one that stands for nothing."""
    found: list[str] = []
    notes: list[str] = []
    for name in names:
        if name in settings.models:
            found.append(name)
        elif name not in ALIASES:
            spelled = _spelled(name)
            fault = why_no_model(spelled, settings)
            if is_guest and (fault or not _is_at_home(spelled, settings)):
                notes.append(f"model: {name}: the project's model is used, as its settings name no other of that provider")
            elif fault:
                raise Misused(f"{source}: model: {fault}")
            else:
                found.append(spelled)
    return tuple(dict.fromkeys(found)), tuple(notes)


def _spelled(name: str) -> str:
    """`provider/name`, as OpenCode writes it, and names that only one vendor gives, as `provider:name`."""
    provider, slash, rest = name.partition("/")
    if slash and ":" not in provider:
        return f"{provider}:{rest}"
    family = next((provider for start, provider in _FAMILIES.items() if name.startswith(start)), None)
    return f"{family}:{name}" if family and ":" not in name else name


def why_no_model(name: str, settings: Settings) -> str:
    """What is wrong with the name of a model, in a sentence; empty: nothing that could be seen without asking."""
    from remit.models.providers import meant_by

    try:
        meant_by(settings, name)
    except Unavailable as error:
        return error.message
    return ""


def _is_at_home(name: str, settings: Settings) -> bool:
    """A guest chooses among the models of providers that the project asks already: it brings in no other, and no other's key."""
    return name.partition(":")[0] in {one.partition(":")[0] for one in settings.model if ":" in one}


def _reach(declared: Declared, tools: tuple[str, ...] | None) -> Reach:
    try:
        return reach_of(declared.tools if declared.tools is not None else tools, declared.without, is_guest=declared.is_guest)
    except Misused as error:
        raise Misused(f"{declared.source}: {error.message}") from None
