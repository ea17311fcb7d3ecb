"""`remit mcp`: serve the project's agents to whoever speaks the Model Context Protocol, on stdin and stdout or over HTTP."""

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer

from remit.cli import arguments
from remit.cli.arguments import Json, Root
from remit.cli.exits import Exit
from remit.cli.project import INSTALL_MCP, find_root, has_mcp
from remit.cli.render import claim_stdout, say_aside
from remit.core.errors import Misused


def mcp(
    http: Annotated[bool, typer.Option("--http", help="Serve streamable HTTP at /mcp instead of stdin and stdout.")] = False,
    host: Annotated[
        str, typer.Option(help="Where to listen with --http; beyond loopback callers show a token (remit token new), under TLS ([serve]).")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port with --http; 0: any that is free, told on stderr.", min=0, max=65535)] = 8791,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Another name by which clients may call this machine with --http; repeatable.", show_default=False
        ),
    ] = None,
    answer_after: Annotated[
        str, typer.Option(metavar="SECONDS", help="Answer with a handle when a delegation takes longer; also 10s, 2m.")
    ] = "45",
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Let MCP clients delegate to the agents of this project. Delegations go on when a client leaves, and are found again by their id."""
    seconds = arguments.seconds(answer_after, "--answer-after") or 0.0
    folder = find_root(root)
    if not has_mcp():
        raise Misused("`remit mcp` needs the package mcp, which is not installed.", advice=f"Install it: {INSTALL_MCP}")
    if http:
        return _over_http(folder, host, port, allow_host or [], seconds)
    return _over_stdio(folder, seconds)


def _over_stdio(folder: Path, seconds: float) -> Exit:
    from remit.server.mcp.stdio import split

    try:
        incoming, outgoing = claim_stdin(), claim_stdout()
    except (OSError, AttributeError):
        raise Misused(
            "`remit mcp` speaks on stdin and stdout, and one of them is closed.",
            advice="Let a client start it, or serve HTTP: remit mcp --http",
        ) from None
    front = split()  # before anything is opened or started; the process the client knows only waits from here on

    from remit.server.mcp.server import Streams, serve_stdio

    asyncio.run(serve_stdio(folder, Streams(incoming=incoming, outgoing=outgoing, front=front), answer_after_seconds=seconds))
    return Exit.OK


def claim_stdin() -> int:
    """The client's descriptor, kept from agents: whoever of them reads stdin finds it empty."""
    incoming = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return incoming


def _over_http(folder: Path, host: str, port: int, allowed_hosts: list[str], seconds: float) -> Exit:
    from remit.server.addresses import Place, bound
    from remit.server.mcp.server import check_names, http_address, is_remote, serve_http
    from remit.system.settings_files import load_settings

    check_names(allowed_hosts)
    with bound(Place(host=host, port=port)) as listening:
        address = http_address(listening, load_settings(folder).serve, folder)
        if is_remote(listening):
            say_aside("Other machines can reach this: whoever comes in shows a token (remit token new NAME) or a certificate.")
        serving = serve_http(
            folder,
            listening,
            [host, *allowed_hosts],
            answer_after_seconds=seconds,
            ready=lambda: say_aside(f"Serving {folder} at {address} — Ctrl-C stops it."),
        )
        asyncio.run(serving)
    return Exit.OK
