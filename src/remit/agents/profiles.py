"""Profiles: agent files executed by another agent, and the tools of the executor that such a file may use."""

from collections.abc import Iterable
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from remit.agents.definition import MODELS_ALONE, Declaration, Definition, Kind, definition_of
from remit.agents.model_agents import ALIASES, MODEL, is_model_agent, model_agent, names_a_model, tool_and_uses
from remit.agents.roles import BUILT_INS, FALLBACKS, REMOVED
from remit.core.errors import Misused
from remit.core.settings import Settings

# ---- tools

EVERYTHING = "*"
_LOOKING = ("grep", "glob", "ls", "list", "search")
_KINDS = {
    "read": ("read", "notebookread", *_LOOKING),
    "search": _LOOKING,
    "edit": ("edit", "write", "multiedit", "notebookedit", "patch", "apply_patch"),
    "delete": ("delete",),
    "move": ("move",),
    "execute": ("execute", "bash", "shell"),
    "fetch": ("fetch", "webfetch", "websearch"),
    "think": ("think",),
    "other": ("other", "task", "agent", "todowrite", "todoread", "skill"),
}
"""The names that each kind includes."""


def narrow_tools(
    allow: Iterable[str], tools: Iterable[str] | None, without: Iterable[str] = (), *, by_kind: bool = False
) -> tuple[str, ...]:
    """The part of `allow` that `tools` names too (None: all of it), minus everything in `without`.

    By the file's own names if they are narrower. `by_kind`: in the executor's terms, as one that is asked by kind understands no others."""
    kept = list(allow)
    if tools is not None:
        wanted = list(tools)
        kept = [both for one in kept for other in wanted if (both := _narrower(one, other, by_kind=by_kind))]
    denied = [tool_and_uses(one) for one in without]
    if denied and EVERYTHING in kept:
        kept = [name for one in kept for name in (_KINDS if one == EVERYTHING else (one,))]
    return tuple(dict.fromkeys(one for one in kept if not any(_is_denied(one, *name) for name in denied)))


def _narrower(allowed: str, wanted: str, *, by_kind: bool) -> str | None:
    """The narrower of two, if one includes the other."""
    (name, scope), (other, other_scope) = tool_and_uses(allowed), tool_and_uses(wanted)
    if _includes(name, other):
        if any(mark in name for mark in "*?[") or name.lower().startswith("mcp__") or (name in _KINDS and not by_kind):
            name = other
    elif not _includes(other, name):
        return None
    if scope is None or (other_scope is not None and fnmatchcase(other_scope, scope)):
        scope = other_scope
    elif other_scope is not None and not fnmatchcase(scope, other_scope):
        return None
    if scope is None:
        return name
    return f"{name}:{scope}" if name in _KINDS else f"{name}({scope})"


def _includes(name: str, other: str) -> bool:
    """Whether `name` includes `other`. A kind is lower-case: `Edit` is Claude's tool, `edit` all that edit."""
    low, other_low = name.lower(), other.lower()
    if low == other_low or fnmatchcase(other_low, low):
        return True
    if low.startswith("mcp__"):  # the name of a server includes all its tools
        return other_low.startswith(f"{low}__")
    return name in _KINDS and other_low in _KINDS[name]


def _is_denied(one: str, name: str, scope: str | None) -> bool:
    """Denying a part of a kind, or some uses of a tool, denies all of it, unless only other uses are allowed.

    A denied edit also denies writes, and denied `bash` also denies `shell`: another name does not bypass it."""
    mine, my_scope = tool_and_uses(one)
    is_named = _includes(name, mine) or _includes(mine, name) or _kind_of(mine) == _kind_of(name) in ("edit", "execute")
    if not is_named or scope is None:
        return is_named
    return my_scope is None or fnmatchcase(my_scope, scope) or fnmatchcase(scope, my_scope)


def _kind_of(name: str) -> str | None:
    return next((kind for kind, names in _KINDS.items() if name.lower() in names), None)


# ---- profiles

EXECUTING_KINDS = (Kind.CLAUDE, Kind.CODEX, Kind.OPENCODE, Kind.ACP)
"""Default executors of profiles, in order. A command is used only if named: it may be anything."""
INHERIT = "inherit"
BUILT_IN = "built-in"
"""In `[roles]` and `runs_on`: the built-in agent."""
_STRICTNESS = [False, "auto", True]
_NO_SETTINGS = Settings()
_SANDBOX = ("read", "search", "edit", "execute")
_LOOKING_ONLY = ("read",)


def definition_for(declared: Declaration, settings: Settings = _NO_SETTINGS) -> Definition:
    """Its own declaration; a profile has no executor yet. Raises `Misused`."""
    if is_model_agent(declared, settings):
        return model_agent(declared, settings)
    definition = definition_of(declared.name, declared.table, source=declared.source)
    if definition.kind is Kind.PROFILE and definition.command:
        raise Misused(f"{declared.source}: command: a profile cannot have a command; its executor has one.")
    if definition.kind is Kind.PROFILE:
        return definition
    return definition.having(allow=_remaining_tools(declared, definition.allow, definition.kind))


class By(StrEnum):
    """Why an agent executes a profile, or none does."""

    SETTING = "setting"
    """Named by `[roles]`."""
    FILE = "file"
    """Named by the file itself: `runs_on`."""
    PROFILES_ON = "profiles_on"
    BUILT_IN = "built-in"
    """A built-in agent, and no other was named."""
    FIRST = "first"
    """The project's first suitable coding agent."""
    MODEL = "model"
    """The project's language model, as there is no coding agent."""
    NOBODY = "nobody"


class Binding(NamedTuple):
    by: By
    executor: Definition | None = None
    built_in: str | None = None
    models: tuple[str, ...] | None = None
    """A language model executes it: which, or empty for the project's."""
    wanted: str | None = None
    """The named executor, existing or not."""

    @property
    def is_carried(self) -> bool:
        return self.executor is not None or self.built_in is not None or self.models is not None


def binding_of(profile: Definition, settings: Settings, definitions: Iterable[Definition]) -> Binding:
    """The executor of a profile. A named one is used or none: an unknown name is never skipped silently."""
    able = [definition for definition in definitions if definition.kind not in (Kind.PROFILE, Kind.MCP)]
    named = ((By.SETTING, settings.roles.get(profile.name)), (By.FILE, profile.runs_on), (By.PROFILES_ON, settings.profiles_on))
    for by, wanted in named:
        if wanted == BUILT_IN and by is not By.PROFILES_ON:
            return Binding(by=by, built_in=built_in_of(profile), wanted=wanted)
        if wanted is not None:
            return _named_binding(by, wanted, able, settings)
    own = None if profile.built_in in REMOVED else profile.built_in
    if own is not None and own not in FALLBACKS:
        return Binding(by=By.BUILT_IN, built_in=own)
    able = [one for one in able if one.kind in EXECUTING_KINDS]
    # An agent with its own instructions is used only if there is no plain one of its kind.
    first = min(able, key=lambda one: (EXECUTING_KINDS.index(one.kind), bool(one.instructions)), default=None)
    if first is not None:
        return Binding(by=By.FIRST, executor=first)
    if settings.model:
        return Binding(by=By.MODEL, models=())
    return Binding(by=By.BUILT_IN, built_in=own) if own is not None else Binding(by=By.NOBODY)


def _named_binding(by: By, wanted: str, able: Iterable[Definition], settings: Settings) -> Binding:
    """An agent of that name takes precedence over a language model of that name."""
    executor = next((one for one in able if one.name == wanted), None)
    if executor is None and wanted == MODEL and settings.model:
        return Binding(by=by, models=(), wanted=wanted)
    if executor is None and names_a_model(wanted, settings):
        return Binding(by=by, models=(wanted,), wanted=wanted)
    return Binding(by=by, executor=executor, wanted=wanted)


def built_in_of(profile: Definition) -> str | None:
    """The built-in agent that it names, else that of the role with its name."""
    return (None if profile.built_in in REMOVED else profile.built_in) or (profile.name if profile.name in BUILT_INS else None)


def profile_on(profile: Declaration, on: Declaration, executor: Definition) -> Definition:
    """The profile as a runnable agent. Raises `Misused` if profile and executor are incompatible."""
    own = {key: value for key, value in profile.table.items() if key not in MODELS_ALONE}
    if own.get("contain", True) in _STRICTNESS[: _STRICTNESS.index(executor.contain)]:
        del own["contain"]  # it may be stricter than its executor, not weaker
    table = {**on.table, **own}
    wish: Any = own.get("model")
    wish = wish[0] if isinstance(wish, list | tuple) and wish else wish
    if "workspace" in own and "merge" not in own:
        table.pop("merge", None)  # how the executor's own workspace is merged does not apply to another one
    said = [executor.instructions.strip(), str(own.get("instructions", "")).strip()]
    table.update(
        kind=executor.kind,
        description=own.get("description", ""),
        instructions="\n\n".join(part for part in said if part),
        model=wish if "runs_on" in own and wish != INHERIT else model_for(wish, executor),
        allow=_remaining_tools(profile, tuple(own.get("allow", executor.allow)), executor.kind),
        runs_on=executor.name,
    )
    table["model"] = table["model"] or executor.model
    if executor.kind is Kind.ACP:  # its model is its own
        del table["model"]
    return definition_of(profile.name, table, source=profile.source)


def without_executor(profile: Declaration, wanted: str | None) -> Definition:
    """The profile as listed while no agent can execute it."""
    table = profile.table if wanted is None else {**profile.table, "runs_on": wanted}
    return definition_of(profile.name, table, source=profile.source).having(built_in=None)


def model_for(model: str | None, executor: Definition) -> str | None:
    """The profile's model if its executor supports it, else the executor's own.

    A file for one vendor names that vendor's models (`sonnet`, `openai/gpt-5`), which another does not know."""
    if not isinstance(model, str) or model == INHERIT:  # an invalid name is reported by the final validation
        return executor.model
    provider, slash, name = model.partition("/")
    if executor.kind is Kind.OPENCODE:
        return model if slash else executor.model
    if executor.kind not in (Kind.CLAUDE, Kind.CODEX):
        return executor.model
    if slash:
        return name if provider == ("anthropic" if executor.kind is Kind.CLAUDE else "openai") else executor.model
    is_of_claude = model in ALIASES or model.startswith("claude")
    return model if is_of_claude is (executor.kind is Kind.CLAUDE) else executor.model


def _remaining_tools(declared: Declaration, allow: tuple[str, ...], kind: str) -> tuple[str, ...]:
    """The executor's tools that the file allows."""
    if declared.tools is None and not declared.without:
        return allow
    if kind is not Kind.CODEX:
        return narrow_tools(allow, declared.tools, declared.without, by_kind=kind not in (Kind.CLAUDE, Kind.OPENCODE))
    # Codex has a sandbox instead of a list: an empty list means everything the sandbox permits, so it is listed and never left empty.
    return narrow_tools(allow or _SANDBOX, declared.tools, declared.without, by_kind=True) or _LOOKING_ONLY
