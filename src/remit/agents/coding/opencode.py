"""OpenCode (`opencode run --format json`): its command line and its stream of JSON lines. Pure; see `dialect`.

Its settings for a run travel in `OPENCODE_CONFIG_CONTENT`, over the user's own. Usage and price are said step by step.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from remit.agents.coding.dialect import (
    NETWORK_VARIABLES,
    Began,
    CommandLine,
    Denied,
    Heard,
    Planned,
    Said,
    Scope,
    Spent,
    Trouble,
    Turn,
    Used,
    cost_of,
    count_of,
    detail_of,
    items_of,
    mapping_of,
    program_of,
    status_of,
    text_of,
    told_names,
)
from remit.agents.coding.permits import for_opencode
from remit.agents.own_tools import SERVER_NAME, server_command

CONTENT = "OPENCODE_CONFIG_CONTENT"
TOOL_MILLISECONDS = 120_000
"""Our server answers within a minute, if only with a handle."""
HYGIENE = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}
NEVER_PASSED = ("OPENCODE", "OPENCODE_PID", "OPENCODE_CALLER", "OPENCODE_SERVER_*", "OPENCODE_CLIENT", "OPENCODE_RUN_ID")


class OpenCode:
    vendor = "opencode"
    program = "opencode"
    variables = ("OPENCODE_*", "OPENAI_*", "ANTHROPIC_*", *NETWORK_VARIABLES)
    never_passed = NEVER_PASSED
    hand_in_seconds = 8.0

    def command_line(self, turn: Turn) -> CommandLine:
        definition = turn.definition
        argv = [*program_of(turn, self.program), "run", "--format", "json"]
        # A title of ours spares it the request to a model for one.
        argv += ["--session", turn.session] if turn.session is not None else ["--title", f"remit {turn.delegation_id}"]
        if definition.model:
            argv += ["--model", definition.model]
        if not any(option.startswith(("--print-logs", "--log-level")) for option in definition.options):
            argv += ["--print-logs", "--log-level", "ERROR"]  # it says nowhere else that its service refuses it and it tries again
        config = {**_given(turn), **self._config(turn)}
        if not (named := _agent_named(definition.options)):
            argv += ["--agent", _own_agent(turn)]
        permission = config["permission"]
        # What an agent of the project's own settings may do goes before what all may: so it is said of the agent that runs, too.
        config["agent"] = {**mapping_of(config.get("agent")), named or _own_agent(turn): {"mode": "primary", "permission": permission}}
        return CommandLine(argv=(*argv, *definition.options), environment=HYGIENE, imposed={CONTENT: json.dumps(config)})

    def _config(self, turn: Turn) -> dict[str, Any]:
        definition, given = turn.definition, _given(turn)
        permission = for_opencode(definition.allow, f"{turn.scratch}/**")
        config: dict[str, Any] = {"permission": permission, "autoupdate": False, "share": "disabled"}
        if definition.delegates:
            permission[f"{SERVER_NAME}_*"] = "allow"
            config["mcp"] = {
                **mapping_of(given.get("mcp")),
                SERVER_NAME: {
                    "type": "local",
                    "command": server_command(),
                    "environment": {name: f"{{env:{name}}}" for name in told_names(turn)},
                    "enabled": True,
                    "timeout": TOOL_MILLISECONDS,
                },
            }
        return config

    def read(self, line: Mapping[str, Any]) -> list[Heard]:
        session = text_of(line.get("sessionID"))
        heard: list[Heard] = [Began(session=session)] if session else []
        part = mapping_of(line.get("part"))
        match line.get("type"):
            case "text":
                heard.append(Said(text=text_of(part.get("text"))))
            case "tool_use":
                heard += _used(part)
            case "step_finish":
                tokens = _tokens(mapping_of(part.get("tokens")))
                heard.append(Spent(scope=Scope.ITEM, key=text_of(part.get("id")), tokens=tokens, cost=cost_of(part.get("cost"))))
            case "error":
                heard.append(_trouble(mapping_of(line.get("error"))))
        return heard


def _own_agent(turn: Turn) -> str:
    """A name that no file can have known beforehand."""
    return f"remit-{turn.delegation_id.replace('_', '-')}"


def _agent_named(options: Sequence[str]) -> str:
    """Which of its agents the definition's own options choose."""
    for index, option in enumerate(options):
        name, equals, value = option.partition("=")
        if name == "--agent":
            return value if equals else "".join(options[index + 1 : index + 2])
    return ""


def _given(turn: Turn) -> dict[str, Any]:
    """What the user had put there is kept, but for what is ours to say."""
    try:
        given = json.loads(turn.environment.get(CONTENT, "{}"))
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def _used(part: Mapping[str, Any]) -> list[Heard]:
    tool, state = text_of(part.get("tool")), mapping_of(part.get("state"))
    given, call_id = mapping_of(state.get("input")), text_of(part.get("callID"))
    if tool == "todowrite" and state.get("status") == "completed":
        return [Planned(steps=tuple((text_of(s.get("content")), text_of(s.get("status"))) for s in items_of(given.get("todos"))))]
    if tool == "invalid":
        # Its word for a tool that is not there, which is what it makes of one that was denied.
        return [Denied(tool=text_of(given.get("tool")), detail=detail_of(given.get("error")), call_id=call_id)]
    error = text_of(state.get("error"))
    if "rejected permission" in error or "prevents you from using" in error:
        return [Denied(tool=tool, detail=detail_of(given), call_id=call_id)]
    status = "failed" if state.get("status") == "error" else text_of(state.get("status"))
    return [Used(tool=tool, detail=detail_of(given), status=status, call_id=call_id, why=detail_of(error))]


def _trouble(error: Mapping[str, Any]) -> Trouble:
    data = mapping_of(error.get("data"))
    return Trouble(
        message=text_of(data.get("message")) or text_of(error.get("name")) or "an error", status=status_of(data.get("statusCode"))
    )


def _tokens(tokens: Mapping[str, Any]) -> int:
    if total := count_of(tokens.get("total")):
        return total
    cache = mapping_of(tokens.get("cache"))
    numbers = [tokens.get("input"), tokens.get("output"), tokens.get("reasoning"), cache.get("read"), cache.get("write")]
    return sum(count_of(number) for number in numbers)
