"""Codex (`codex exec --json`): its command line and its stream of JSON lines. Pure; see `dialect`.

Its commands run in its own sandbox, which is what it has in place of an allow-list. `turn.completed` counts the whole session,
earlier runs included, and its input includes what was cached. It says no price.
"""

import json
from collections.abc import Mapping
from typing import Any

from remit.agents.coding.dialect import (
    NETWORK_VARIABLES,
    Began,
    CommandLine,
    Ended,
    Heard,
    Noted,
    Planned,
    Said,
    Scope,
    Spent,
    Trouble,
    Turn,
    Used,
    count_of,
    detail_of,
    items_of,
    mapping_of,
    program_of,
    text_of,
    told_names,
)
from remit.agents.coding.permits import may_change, may_fetch
from remit.agents.own_tools import SERVER_NAME, server_command
from remit.core.agents import Workspace

TOOL_SECONDS = 1800
"""Our server answers with a handle long before; until then a call must not be cut."""
START_SECONDS = 60


class Codex:
    vendor = "codex"
    program = "codex"
    variables = ("OPENAI_*", "CODEX_*", "AZURE_OPENAI_*", *NETWORK_VARIABLES)
    never_passed = ("CODEX_SANDBOX*", "CODEX_THREAD_ID", "CODEX_INTERNAL_*")
    hand_in_seconds = 5.0

    def command_line(self, turn: Turn) -> CommandLine:
        definition = turn.definition
        argv = [*program_of(turn, self.program), "exec", "--json", "--skip-git-repo-check", "-C", str(turn.folder)]
        for name, value in self._settings(turn).items():
            argv += ["-c", f"{name}={_toml(value)}"]
        if definition.model:
            argv += ["-m", definition.model]
        argv += definition.options
        if turn.session is not None:
            argv += ["resume", turn.session]
        return CommandLine(argv=(*argv, "-"))

    def _settings(self, turn: Turn) -> dict[str, Any]:
        definition = turn.definition
        is_writer = may_change(definition.allow) and definition.spec.workspace is not Workspace.NONE
        settings: dict[str, Any] = {"approval_policy": "never", "sandbox_mode": "workspace-write" if is_writer else "read-only"}
        if is_writer:
            settings["sandbox_workspace_write.writable_roots"] = [str(turn.scratch)]
        if is_writer and may_fetch(definition.allow):
            settings["sandbox_workspace_write.network_access"] = True
        if definition.delegates:
            command, *arguments = server_command()
            settings |= {
                f"mcp_servers.{SERVER_NAME}.{name}": value
                for name, value in {
                    "command": command,
                    "args": arguments,
                    "env_vars": told_names(turn),  # it hands its servers few variables of its own accord
                    "required": True,  # else the first request may leave before the server is up
                    "default_tools_approval_mode": "approve",
                    "startup_timeout_sec": START_SECONDS,
                    "tool_timeout_sec": TOOL_SECONDS,
                }.items()
            }
        return settings

    def read(self, line: Mapping[str, Any]) -> list[Heard]:
        match line.get("type"):
            case "thread.started":
                session = text_of(line.get("thread_id"))
                return [Began(session=session)] if session else []
            case "turn.completed":
                return [Spent(scope=Scope.SESSION, tokens=_tokens(mapping_of(line.get("usage")))), Ended()]
            case "turn.failed":
                return [Trouble(message=_message(mapping_of(line.get("error")).get("message")))]
            case "error":
                # Said of each attempt; when it gives up, `turn.failed` says so.
                return [Noted(message=f"Codex: {_message(line.get('message'))}", is_trouble=True)]
            case "item.started" | "item.updated" | "item.completed":
                return self._item(mapping_of(line.get("item")), is_over=line.get("type") == "item.completed")
        return []

    def _item(self, item: Mapping[str, Any], *, is_over: bool) -> list[Heard]:
        match item.get("type"):
            case "agent_message":
                return [Said(text=text_of(item.get("text")))] if is_over else []
            case "todo_list":
                steps = items_of(item.get("items"))
                return [Planned(steps=tuple((text_of(s.get("text")), "completed" if s.get("completed") else "pending") for s in steps))]
            case "error":
                return [Noted(message=f"Codex: {text_of(item.get('message'))}")]
            case "reasoning":
                return [Noted(message="It is thinking.")] if is_over else []
            case str() as kind:
                return [_used(kind, item, is_over=is_over)]
        return []


def _used(kind: str, item: Mapping[str, Any], *, is_over: bool) -> Heard:
    status = "pending" if not is_over else "failed" if item.get("status") in ("failed", "declined") else "completed"
    call_id = text_of(item.get("id"))
    if kind == "mcp_tool_call":
        tool = f"{text_of(item.get('server'))}.{text_of(item.get('tool'))}"
        return Used(tool=tool, detail=detail_of(item.get("arguments")), status=status, call_id=call_id)
    if kind == "file_change":
        paths = ", ".join(text_of(change.get("path")) for change in items_of(item.get("changes")))
        return Used(tool="edit", detail=detail_of(paths), status=status, call_id=call_id)
    told = item.get("command") or item.get("query") or ""
    return Used(tool="execute" if kind == "command_execution" else kind, detail=detail_of(told), status=status, call_id=call_id)


def _message(message: Any) -> str:
    """Now and then the service's JSON, as text: the words in it are meant for people."""
    text = text_of(message)
    try:
        told = mapping_of(mapping_of(json.loads(text)).get("error")).get("message")
    except ValueError:
        return text
    return text_of(told) or text


def _tokens(usage: Mapping[str, Any]) -> int:
    return count_of(usage.get("input_tokens")) + count_of(usage.get("output_tokens"))


def _toml(value: Any) -> str:
    """Strings, lists of them, numbers and truth look the same in JSON."""
    return json.dumps(value, ensure_ascii=False)
