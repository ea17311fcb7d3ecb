"""Agents that are language models: the models in a declaration, and the agents they may delegate to.

A file can only narrow the rights of its executor. A vendor's tool maps to the corresponding operation; a tool that a file allows only in
part (`Bash(git *)`), which cannot be enforced here, is omitted. Imports no provider."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase

from remit.agents.definition import Declaration, Definition, Kind, definition_of
from remit.core.agents import BUILTIN_TARGETS
from remit.core.errors import Misused, Unavailable
from remit.core.settings import Settings

# ---- whom a model may delegate to


OPERATIONS = (
    "worker.read_file", "worker.list_files", "worker.search_files", "worker.write_file", "worker.delete_file", "worker.web_fetch",
    "worker.web_search", "researcher.deep_research", "researcher.synthesize_sources", "coder.analyze_code", "coder.generate_code",
    "coder.review_code", "coder.execute_code", "compose.run",
)  # fmt: skip
"""Built-in operations, listed so that a file can be checked without loading them; a test compares."""
_READ, _LIST, _SEARCH, _WRITE = "worker.read_file", "worker.list_files", "worker.search_files", "worker.write_file"
_FETCH, _ASK_WEB, _RUN = "worker.web_fetch", "worker.web_search", "coder.execute_code"
_RESEARCH = ("researcher.deep_research", "researcher.synthesize_sources")
_SUBAGENTS_HERE = tuple(one for one in OPERATIONS if not one.startswith("worker."))

GIVES: dict[str, tuple[str, ...]] = {
    "read": (_READ,), "notebookread": (_READ,), "view": (_READ,),
    "write": (_WRITE, _READ), "edit": (_WRITE, _READ), "multiedit": (_WRITE, _READ), "notebookedit": (_WRITE, _READ),
    "patch": (_WRITE, _READ), "apply_patch": (_WRITE, _READ),
    "glob": (_LIST,), "ls": (_LIST,), "list": (_LIST,), "grep": (_SEARCH,), "search": (_SEARCH, _LIST),
    "webfetch": (_FETCH,), "fetch": (_FETCH, _ASK_WEB), "websearch": (_ASK_WEB,),
    "bash": (_RUN,), "shell": (_RUN,), "execute": (_RUN,),
    "task": _SUBAGENTS_HERE, "agent": _SUBAGENTS_HERE, "delete": ("worker.delete_file",),
}  # fmt: skip
"""Operations for a vendor's tool or a kind of tool, by lower-case name."""
_EDITING = (_WRITE, "worker.delete_file", "coder.generate_code")
_READING = (_READ, _SEARCH, *_RESEARCH, "coder.analyze_code", "coder.review_code")
_WEB = (_FETCH, *_RESEARCH)
TAKES: dict[str, tuple[str, ...]] = {
    **GIVES,
    **dict.fromkeys(("write", "edit", "multiedit", "notebookedit", "patch", "apply_patch"), _EDITING),
    **dict.fromkeys(("read", "notebookread", "view"), _READING),
    "grep": (_SEARCH,), "search": (_SEARCH, _LIST), "webfetch": _WEB, "fetch": (*_WEB, _ASK_WEB), "websearch": (_ASK_WEB, *_RESEARCH),
    "bash": (_RUN,),
}  # fmt: skip
"""Operations removed if it is denied, including those with the same effect."""
_SPELLED = re.compile(r"([^():]+)(?:\((.*)\)|:(.*))?", re.DOTALL)
_SUBAGENTS = ("task", "agent")


def reach_of(tools: Sequence[str] | None, without: Iterable[str] = (), *, is_guest: bool = False) -> tuple[str, ...] | None:
    """The agents that a file's `tools` and `disallowedTools` leave; None: all built-in ones. Raises `Misused` for an unknown built-in
    operation."""
    reached: tuple[str, ...] | None = OPERATIONS if is_guest else None
    if tools is not None and "*" not in tools:
        reached = tuple(dict.fromkeys(name for tool in tools for name in _operations_of(tool.strip(), is_guest)))
    for name in without:
        reached = _remove_denied(BUILTIN_TARGETS if reached is None else reached, name)
    return reached


def is_reached(name: str, tools: Iterable[str] | None) -> bool:
    """Whether one entry is within others, by name: `worker` includes all its operations. For agents there is `Directory.includes`."""
    among = BUILTIN_TARGETS if tools is None else tools
    return any(name == one or name.startswith(f"{one}.") for one in among)


def tool_and_uses(spelled: str) -> tuple[str, str | None]:
    """`Bash(git *)` or `execute:git *`: the tool and its allowed uses; None: all."""
    found = _SPELLED.fullmatch(spelled.strip())
    if found is None:
        return spelled.strip(), None
    return found[1].strip(), (found[2] if found[2] is not None else found[3]) or None


def _is_pattern(name: str) -> bool:
    return "*" in name or "?" in name


def _operations_of(tool: str, is_guest: bool) -> tuple[str, ...]:
    """Empty for what a model cannot be offered: a vendor's own tool, some uses of a tool, an agent out of reach of foreign files."""
    name, uses = tool_and_uses(tool)
    low = name.lower()
    if uses is not None:
        names = [one.strip() for one in uses.split(",") if one.strip()] if low in _SUBAGENTS and not is_guest else []
        return tuple(names)
    if low in GIVES:
        return GIVES[low]
    if _is_pattern(name):
        return tuple(one for one in OPERATIONS if fnmatchcase(one, name))
    if name != low or low.startswith("mcp_"):
        return ()
    is_built_in = _known_target("tools", name, name)
    if not is_guest:
        return (name,)
    # Listed one by one: a board role may have the name of a target, and anything may execute it.
    return tuple(one for one in OPERATIONS if is_built_in and is_reached(one, (name,)))


def _remove_denied(tools: Sequence[str], denied: str) -> tuple[str, ...]:
    """The rest; a target is expanded if a part is removed. Raises `Misused` for what cannot be removed."""
    gone = set(_denied_operations(denied))
    pattern = denied.strip().casefold()
    left: list[str] = []
    for tool in tools:
        parts = [one for one in OPERATIONS if one.startswith(f"{tool}.")]
        if is_reached(tool, gone) or fnmatchcase(tool.casefold(), pattern):
            continue
        left += [one for one in parts if not is_reached(one, gone)] if any(one in gone for one in parts) else [tool]
        if tool not in BUILTIN_TARGETS and any(one.startswith(f"{tool}.") for one in (*gone, pattern)):
            raise Misused(f"disallowedTools: {denied!r:.100} is one operation of {tool}: name in tools those that it may use instead.")
    return tuple(dict.fromkeys(left))


def _denied_operations(denied: str) -> tuple[str, ...]:
    """Denying some uses of a tool denies all of it. Raises `Misused` for an unknown built-in operation."""
    name, _ = tool_and_uses(denied)
    low = name.lower()
    if low in TAKES:
        return TAKES[low]
    if _is_pattern(low):
        vendors = [one for tool in TAKES if fnmatchcase(tool, low) for one in TAKES[tool]]
        return tuple(dict.fromkeys([*vendors, *(one for one in OPERATIONS if fnmatchcase(one, low))]))
    return (low,) if _known_target("disallowedTools", low, name) else (name,)


def _known_target(key: str, name: str, written: str) -> bool:
    """Whether it is a built-in target or operation. Raises `Misused` for an unknown operation."""
    target, dot, _ = name.partition(".")
    if target in BUILTIN_TARGETS and dot and name not in OPERATIONS:
        close = get_close_matches(written, OPERATIONS, n=1, cutoff=0.4)
        raise Misused(f"{key}: {target} has no operation {written!r:.100}" + (f" (did you mean {close[0]}?)" if close else "") + ".")
    return target in BUILTIN_TARGETS


# ---- definitions


MODEL = "model"
"""In `[roles]`, `runs_on` and `profiles_on`: the project's language model."""
ALIASES = frozenset({"sonnet", "opus", "haiku", "fable", "opusplan", "default", "inherit", "best"})
"""Vendors' names for an unspecified model: the project's, unless `[models]` has that name."""
_FAMILIES = {"claude-": "anthropic", "gpt-": "openai", "gemini-": "google"}
_NOT_CARRIED = (
    "kind", "command", "prompt", "folder", "pass_environment", "environment", "hand_in", "options", "delegates", "runs_on", "built_in",
    "isolation", "allow", "contain", "hosts",
)  # fmt: skip
"""Keys of a profile that have no effect for a language model."""


def names_a_model(name: str, settings: Settings) -> bool:
    """Whether it names a model rather than an agent: `anthropic:…`, or NAME of `[models.NAME]`."""
    provider, colon, model = name.partition(":")
    return name in settings.models or bool(colon and provider and model)


def is_model_agent(declared: Declaration, settings: Settings) -> bool:
    """Whether it is a model itself: declared so, or a remit file that names a model and no executor."""
    table = declared.table
    if table.get("kind") is not None or declared.is_guest:
        return table.get("kind") == Kind.MODEL
    if table.get("command") or table.get("runs_on") or table.get("built_in") or declared.name in settings.roles:
        return False
    said = table.get("model")
    names = [said] if isinstance(said, str) else said if isinstance(said, list | tuple) else []
    return any(isinstance(name, str) and name not in ALIASES and names_a_model(name, settings) for name in names)


def model_agent(declared: Declaration, settings: Settings) -> Definition:
    """Its own model definition. Raises `Misused`."""
    table = {**declared.table, "kind": Kind.MODEL}
    # Validated as written first: a faulty key is reported before its consequences.
    said = definition_of(declared.name, table, source=declared.source)
    names = resolved(said.models, settings, is_guest=declared.is_guest, source=declared.source)
    return said.having(models=names, tools=_reach_for(declared, said.tools))


def profile_on_model(profile: Declaration, settings: Settings, names: Sequence[str], *, on: str, requests: int | None = None) -> Definition:
    """A profile executed by a model; `names`: which models, empty: the project's; `requests`: the maximum for a file of another tool.
    Raises `Misused`."""
    table = {key: value for key, value in profile.table.items() if key not in _NOT_CARRIED}
    said = definition_of(profile.name, {**table, "kind": Kind.MODEL}, source=profile.source)
    allowed = profile.table.get("allow")
    tools = said.tools if said.tools is not None or not isinstance(allowed, list | tuple) else tuple(map(str, allowed))
    own = resolved(said.models, settings, is_guest=profile.is_guest, source=profile.source)
    own_requests = said.requests
    if profile.is_guest and own_requests is not None:
        own_requests = min(own_requests, requests or settings.model_requests)
    return said.having(models=own or tuple(names), tools=_reach_for(profile, tools), requests=own_requests, runs_on=on)


_INHERITED = ("timeout", "idle", "requests", "temperature", "slots", "retries", "workspace", "answers", "effects")
"""Keys that a profile takes over from the language model that carries it out."""


def profile_on_model_agent(profile: Declaration, settings: Settings, on: Declaration, executor: Definition) -> Definition:
    """A profile on an agent that is a model itself: with its models, its limits, and its instructions before the profile's."""
    own = profile.table
    instructions = [executor.instructions.strip(), str(own.get("instructions", "")).strip()]
    inherited = {key: on.table[key] for key in _INHERITED if key in on.table}
    table = {**inherited, **own, "instructions": "\n\n".join(part for part in instructions if part)}
    found = profile_on_model(replace(profile, table=table), settings, executor.models, on=executor.name, requests=executor.requests)
    return found.having(within=executor.tools, tools=() if executor.tools == () else found.tools)


def resolved(names: Sequence[str], settings: Settings, *, is_guest: bool, source: str) -> tuple[str, ...]:
    """The models that names refer to, empty for the project's. Raises `Misused` for an unknown one."""
    found: list[str] = []
    # A file of another tool may only choose models of providers that the project already uses, and so only their keys.
    providers = {one.partition(":")[0] for one in settings.model if ":" in one}
    for name in names:
        if name in settings.models:
            found.append(name)
        elif name not in ALIASES:
            spelled = _provider_form(name)
            fault = why_no_model(spelled, settings)
            if fault and not is_guest:
                raise Misused(f"{source}: model: {fault}")
            if not is_guest or (not fault and spelled.partition(":")[0] in providers):
                found.append(spelled)
    return tuple(dict.fromkeys(found))


def _provider_form(name: str) -> str:
    """`provider/name` of OpenCode, and names that only one vendor uses, as `provider:name`."""
    provider, slash, rest = name.partition("/")
    if slash and ":" not in provider:
        return f"{provider}:{rest}"
    family = next((provider for start, provider in _FAMILIES.items() if name.startswith(start)), None)
    return f"{family}:{name}" if family and ":" not in name else name


def why_no_model(name: str, settings: Settings) -> str:
    """The fault of a model name as a sentence; empty if none is visible without a request."""
    from remit.models.providers import resolve_model

    try:
        resolve_model(settings, name)
    except Unavailable as error:
        return error.message
    return ""


def _reach_for(declared: Declaration, tools: tuple[str, ...] | None) -> tuple[str, ...] | None:
    try:
        return reach_of(declared.tools if declared.tools is not None else tools, declared.without, is_guest=declared.is_guest)
    except Misused as error:
        raise Misused(f"{declared.source}: {error.message}") from None
