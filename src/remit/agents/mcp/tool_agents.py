"""Tools of MCP servers as agents: their declarations, parameters and answers.

Listing reads stored tool lists and starts nothing. A server without a stored list is started only if its declaration is approved: by `remit
trust`, or when a fully approved project is opened."""

import asyncio
import base64
import binascii
import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from remit.agents.command import approved_files
from remit.agents.declarations import declarations_of
from remit.agents.definition import Declaration, Definition, ServerTool
from remit.agents.process.pool import ProcessPool
from remit.agents.remote import RemoteExecutor, check_by_schema
from remit.core.agents import agent_name
from remit.core.errors import Failed, Misused, RemitError, Unavailable
from remit.core.text import one_line, shorten
from remit.runtime.output_schema import check_schema
from remit.runtime.perform import looks_like_return
from remit.system.mcp_servers import SeenTools, note_tools, seen_tools, server_key, tool_digest, tools_in
from remit.system.packages import need
from remit.system.threads import off_loop
from remit.system.trust import ADVICE, SETTINGS_FILES

if TYPE_CHECKING:
    from remit.agents.executors import ExecutorDeps
    from remit.agents.mcp.mcp_server import McpServer, ServerDeps
    from remit.core.context import Context
    from remit.core.settings import Settings
    from remit.system.trust import ProjectTrust

DESCRIPTION_CHARACTERS = 4000
ERROR_CHARACTERS = 2000
DESCRIBE_SHARE, START_SECONDS = 3, 60.0
"""Limits for servers with unknown tools: a multiple of the setting `describe_seconds` when a project is opened, and seconds while a person
waits. They start in parallel."""
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_SUBTYPE = re.compile(r"(?:image|audio|video)/([a-z0-9]{1,8})")


# ---- which agents a server declares


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTools:
    definitions: tuple[Definition, ...]
    """One per tool; while none is known, one with the server's name and the reason."""
    unapproved: tuple[str, ...] = ()
    """Agents of unapproved tools; the server itself while none of its tools is approved."""
    problems: tuple[str, ...] = ()


def is_taken_as_offered(source: str, trust: "ProjectTrust | None") -> bool:
    """Whether its tools need no separate approval: everything is approved, or the project does not declare it."""
    return trust is None or trust.approved is None or trust.is_given or not source.startswith(tuple(SETTINGS_FILES))


def tools_of(declared: Declaration, definition: Definition, root: Path, trust: "ProjectTrust | None") -> ServerTools:
    """The agents of a server, from its stored tool list. Starts nothing."""
    assert definition.mcp is not None
    key = server_key(root, declared.name, declared.table)
    seen = seen_tools(key)
    offered = {} if seen is None else tools_in(seen.text)
    is_free = is_taken_as_offered(declared.source, trust)
    approved = offered if is_free or trust is None else trust.approved_tools(declared.name)
    wanted, problems = _wanted(definition, {**offered, **approved})
    server = replace(definition.mcp, key=key)
    definitions: dict[str, Definition] = {}
    for name in sorted(tool for tool in approved if tool in wanted):
        digest = "" if is_free else tool_digest(approved[name])
        try:
            made = _definition_of(definition, approved[name], replace(server, tool=name, digest=digest))
        except Misused as error:
            problems.append(f"the tool {name!r:.100} is left out: {error.message}")
            continue
        if (other := definitions.setdefault(made.name, made).mcp) and other.tool != name:
            problems.append(f"the tools {other.tool!r} and {name!r} would both be {made.name}: {name!r} is left out")
    new = [_agent_name(declared.name, tool) for tool in offered if tool in wanted and tool not in approved]
    if definitions or not is_free:
        unapproved = [name for name in new if name not in definitions] if definitions else [declared.name]
        return ServerTools(definitions=tuple(definitions.values()), unapproved=tuple(unapproved), problems=_lines(declared, problems))
    fault = "its tools are not known yet" if seen is None else seen.fault.rstrip(".") or "it offers no tool that may be used"
    spec = replace(definition.spec, description=f"{definition.spec.description} Not available: {fault}.")
    alone = definition.having(spec=spec, mcp=replace(server, fault=fault))
    return ServerTools(definitions=(alone,), problems=_lines(declared, [*problems, fault]))


def _wanted(definition: Definition, tools: Mapping[str, Any]) -> tuple[set[str], list[str]]:
    """The tools that the declaration allows, and faults of its list."""
    if definition.tools is None:
        return set(tools), []
    return set(definition.tools), [f"tools: it has no tool {name!r:.100}" for name in definition.tools if tools and name not in tools]


def _lines(declared: Declaration, problems: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{declared.source}: {problem}." for problem in problems)


def _agent_name(server: str, tool: str) -> str:
    """`linear.create_issue`. Characters that agent names cannot contain become `_`."""
    return f"{server}.{_UNFIT.sub('_', tool)}"


def _definition_of(server: Definition, tool: Mapping[str, Any], mcp: ServerTool) -> Definition:
    output = tool.get("outputSchema")
    with contextlib.suppress(Misused):
        output = check_schema(output)
    spec = replace(
        server.spec,
        name=agent_name(_agent_name(mcp.server, mcp.tool)),
        description=shorten(str(tool.get("description") or tool.get("title") or ""), DESCRIPTION_CHARACTERS),
        parameters_schema=_parameters_of(tool.get("inputSchema")),
        output_schema=output if isinstance(output, dict) else None,
    )
    return server.having(spec=spec, mcp=mcp, tools=None)


def _parameters_of(schema: Any) -> dict[str, Any]:
    """A normalised schema: an object whose properties are objects."""
    given = schema if isinstance(schema, dict) else {}
    properties, required = given.get("properties"), given.get("required")
    named = properties if isinstance(properties, dict) else {}
    return {
        **given,
        "type": "object",
        "properties": {name: one if isinstance(one, dict) else {} for name, one in named.items()},
        "required": [name for name in required if isinstance(name, str)] if isinstance(required, list) else [],
    }


# ---- the executor


class ToolAgent(RemoteExecutor):
    """Executes a tool of an MCP server."""

    def __init__(self, definition: Definition, deps: "ExecutorDeps") -> None:
        super().__init__(definition, deps)
        self._deps = deps
        deps.mcp_servers.note_files(definition)

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return check_by_schema(self.spec, parameters)

    async def perform(self, ctx: "Context", arguments: Mapping[str, Any]) -> Any:
        tool = self.definition.mcp
        assert tool is not None
        if not tool.tool:
            raise Unavailable(f"The MCP server {tool.server} cannot be used: {tool.fault}.", advice=ADVICE)
        await off_loop(need, "remit.agents.mcp.mcp_server", "mcp")
        result = await self._deps.mcp_servers.get(self.definition).call(tool, arguments, ctx)
        if result.is_error:
            said = " ".join(block.text for block in result.content if block.type == "text").strip() or "it did not say why"
            advice = f"Change the parameters, or check the MCP server {tool.server}."
            raise Failed(f"{tool.tool} failed: {shorten(said, ERROR_CHARACTERS)}", advice=advice)
        if result.structured_content is not None:
            return _data(result.structured_content, tool)
        texts = [block.text for block in result.content if block.type == "text"]
        if len(texts) == len(result.content):
            return "\n".join(texts)
        blocks = [await off_loop(_block, block, ctx.scratch / f"content-{number}") for number, block in enumerate(result.content)]
        for block in blocks:
            if isinstance(block, dict) and "path" in block:
                block["path"] = str(Path(block["path"]).relative_to(ctx.root))
                ctx.artifact(block["path"], "data", one_line(f"{block['mimeType'] or 'data'} of {block['size']:,} bytes", 200))
        return blocks


class McpServers:
    """The servers of one runtime, each started on the first call of one of its tools."""

    def __init__(self, deps: "ServerDeps") -> None:
        self._deps = deps
        self._servers: dict[str, McpServer] = {}
        self._files: dict[str, dict[str, str]] = {}

    def note_files(self, definition: Definition) -> None:
        """Called when the project is opened: content that an agent writes to a server's files before its first call is not run."""
        assert definition.mcp is not None
        if definition.mcp.server not in self._files:
            self._files[definition.mcp.server] = approved_files(definition, self._deps.root, self._deps.trust)

    def get(self, definition: Definition) -> "McpServer":
        from remit.agents.mcp.mcp_server import McpServer

        assert definition.mcp is not None
        if definition.mcp.server not in self._servers:
            self._servers[definition.mcp.server] = McpServer(definition, self._deps, self._files.get(definition.mcp.server))
        return self._servers[definition.mcp.server]

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers.values()))


# ---- answers


def _data(value: Any, tool: ServerTool) -> Any:
    """Structured content unchanged. Content that looks like a return is data of the tool."""
    if not looks_like_return(value):
        return value
    return {"status": "completed", "summary": f"{tool.server} answered the call of {tool.tool}.", "artifacts": [], "data": value}


def _block(block: Any, path: Path) -> Any:
    """A part of the answer as data; bytes of an image, a sound or a resource become a file."""
    plain = block.model_dump(by_alias=True, mode="json", exclude_none=True)
    resource = getattr(block, "resource", block)
    encoded, kind = getattr(resource, "blob", None) or getattr(block, "data", None), getattr(resource, "mime_type", None) or ""
    if not isinstance(encoded, str):
        return plain["text"] if block.type == "text" else plain
    named = _SUBTYPE.fullmatch(kind)
    path = path.with_suffix(f".{named[1]}" if named else ".bin")
    try:
        data = base64.b64decode(encoded, validate=True)
        path.write_bytes(data)
    except (binascii.Error, ValueError, OSError) as error:
        raise Failed(f"A file in the answer cannot be kept: {error}.") from None
    return {"type": block.type, "mimeType": kind, "path": str(path), "size": len(data)}


# ---- descriptions


def describe_unknown(root: Path, settings: "Settings", trust: "ProjectTrust", *, asked: bool = False) -> dict[str, str]:
    """Start approved servers with unknown tools to read their tool lists. Returns failures by name. Call it on a thread.

    `asked`: a person approves tools now, so servers whose tools will need approval are started too."""
    if not settings.has_mcp_servers:
        return {}
    unknown = []
    for declared, definition in declarations_of(root, settings, trust).known.values():
        if definition.mcp is not None and (asked or is_taken_as_offered(declared.source, trust)):
            key = server_key(root, declared.name, declared.table)
            seen = seen_tools(key)
            if seen is None or (asked and seen.fault):
                unknown.append(definition.having(mcp=replace(definition.mcp, key=key)))
    seconds = START_SECONDS if asked else DESCRIBE_SHARE * settings.describe_seconds
    return asyncio.run(_describe(unknown, root, trust, seconds)) if unknown else {}


async def _describe(definitions: Sequence[Definition], root: Path, trust: "ProjectTrust", seconds: float) -> dict[str, str]:
    try:
        need("remit.agents.mcp.mcp_server", "mcp")
    except Unavailable as error:
        return {one.name: f"{error.message.rstrip('.')}: {error.advice}" for one in definitions}
    from remit.agents.mcp.mcp_server import McpServer

    pool = ProcessPool(project="describe", owner_id=f"{os.getpid()}")
    faults: dict[str, str] = {}

    async def describe(definition: Definition) -> None:
        server = McpServer(definition, SimpleNamespace(processes=pool, root=root, trust=trust))
        try:
            async with asyncio.timeout(seconds):
                await server.describe()
        except TimeoutError:
            faults[definition.name] = f"it did not give a list of its tools within {seconds:g} s"
        except RemitError as error:
            faults[definition.name] = error.message
        finally:
            await server.close()

    try:
        await asyncio.gather(*map(describe, definitions))
    finally:
        await pool.close()
    for definition in definitions:
        if definition.mcp is not None and definition.name in faults:
            note_tools(definition.mcp.key, SeenTools(fault=faults[definition.name]))
    return faults
