"""`remit serve` and `remit mcp`: serve the agents of the project over gRPC, HTTP, A2A and MCP."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from remit.cli import arguments
from remit.cli.exits import Exit
from remit.cli.project import INSTALL_MCP, Project, has_mcp
from remit.cli.render import claim_stdout
from remit.core.errors import Misused


def serve(
    project: Project,
    api: Annotated[
        list[str] | None,
        Option("--api", metavar="NAME", help="Serve this API only: grpc, http, a2a, mcp or metrics; repeatable."),
    ] = None,
    http: Annotated[str | None, Option(metavar="ADDRESS", help="Where HTTP, A2A, MCP and the metrics listen: HOST:PORT.")] = None,
    grpc: Annotated[str | None, Option(metavar="ADDRESS", help="Where gRPC listens: unix or HOST:PORT.")] = None,
    behind_proxy: Annotated[bool, Option("--behind-proxy", help="A proxy in front terminates TLS.")] = False,
    allow_host: Annotated[
        list[str] | None, Option(metavar="NAME", help="Another name by which clients may call this machine; repeatable.")
    ] = None,
    stop_after: arguments.StopAfter = None,
    engine: Annotated[str | None, Option(metavar="KIND", help="What runs delegations: embedded or temporal.")] = None,
) -> Exit:
    """Serve the project's agents to programs, models and other machines. Every caller needs a token: `remit token new`.

    Ctrl-C or SIGTERM: no new work is accepted, running work may finish, resumable work is handed over; once more stops at once.
    SIGHUP reads the policy again."""
    from remit.server.run import serve as run_server

    asked: dict[str, Any] = {
        "apis": tuple(api) if api else None,
        "http": http,
        "grpc": grpc,
        "behind_proxy": behind_proxy or None,
        "allow_hosts": tuple(allow_host) if allow_host else None,
        "stop_seconds": arguments.seconds(stop_after, "--stop-after") if stop_after else None,
    }
    said = {name: value for name, value in asked.items() if value is not None}
    settings = {**({"serve": said} if said else {}), **({} if engine is None else {"engine": {"kind": engine}})}
    asyncio.run(run_server(project.root, settings, ServeMessages(project), project.trust))
    return Exit.OK


class ServeMessages:
    """Prints one JSON document per event with `--json`, else lines on stderr."""

    def __init__(self, project: Project) -> None:
        self._announce = project.announce

    def opened(self, root: Path, apis: Mapping[str, str], token_file: Path) -> None:
        lines = [f"Serving {root}:", *(f"  {name:<8} {address}" for name, address in apis.items())]
        lines.append(f"Token of this user: {token_file}; for others: remit token new NAME. Ctrl-C stops it.")
        fields = {"root": str(root), "apis": apis, "token_file": str(token_file)}
        self._announce("serving", fields, "\n".join(lines))

    def stopping(self, running: int, seconds: float) -> None:
        waits = f"{running} still running, at most {seconds:g} s; once more stops at once" if running else "nothing is running"
        self._announce("stopping", {"running": running, "seconds": seconds}, f"Stopping: no new work is accepted; {waits}.")

    def stopped(self, *, handed_over: int, ended: int) -> None:
        parts = [f"{count} {what}" for count, what in ((handed_over, "handed over"), (ended, "stopped")) if count]
        text = "Stopped." + (f" Of the running work, {' and '.join(parts)}." if parts else "")
        self._announce("stopped", {"handed_over": handed_over, "ended": ended}, text)


# ---- mcp


def mcp(
    project: Project,
    answer_after: Annotated[
        str, Option(metavar="SECONDS", help="Answer with a handle when a delegation takes longer; also 10s, 2m.")
    ] = "45",
) -> Exit:
    """Let MCP clients delegate to the agents of this project, on stdin and stdout.

    Delegations continue when a client disconnects, and are found by their id."""
    seconds = arguments.seconds(answer_after, "--answer-after") or 0.0
    if not has_mcp():
        raise Misused("`remit mcp` needs the package mcp, which is not installed.", advice=f"Install it: {INSTALL_MCP}")
    from remit.server.mcp.stdio import split

    try:
        incoming, outgoing = claim_stdin(), claim_stdout()
    except (OSError, AttributeError):
        raise Misused(
            "`remit mcp` speaks on stdin and stdout, and one of them is closed.",
            advice="Let a client start it, or serve HTTP: remit serve --api mcp",
        ) from None
    front = split()  # before anything is opened or started; the process that the client started only waits from here on

    from remit.server.mcp.server import serve_stdio

    asyncio.run(serve_stdio(project.root, incoming, outgoing, front, answer_after_seconds=seconds, trust=project.trust))
    return Exit.OK


def claim_stdin() -> int:
    """The client's stdin, hidden from agents: their stdin is empty."""
    incoming = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return incoming
