"""`remit serve`: one process, all doors: gRPC, HTTP, A2A, MCP and the metrics, each of which can be left closed."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from remit.cli import arguments
from remit.cli.arguments import Json, Root
from remit.cli.exits import Exit
from remit.cli.project import find_root
from remit.cli.render import say_aside, say_json
from remit.core.errors import Unavailable
from remit.server.run import Opened, Stopped


def serve(
    door: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Open this door only: grpc, http, a2a, mcp or metrics; repeatable.", show_default=False),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Where HTTP, A2A, MCP and the metrics listen: HOST:PORT or unix:PATH.", show_default=False),
    ] = None,
    grpc: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Where gRPC listens: unix, unix:PATH or HOST:PORT.", show_default=False)
    ] = None,
    tls_certificate: Annotated[str | None, typer.Option(metavar="FILE", help="The server's certificate (PEM).", show_default=False)] = None,
    tls_key: Annotated[str | None, typer.Option(metavar="FILE", help="Its key (PEM).", show_default=False)] = None,
    client_ca: Annotated[
        str | None, typer.Option(metavar="FILE", help="Who signs the certificates of callers (PEM): mutual TLS.", show_default=False)
    ] = None,
    behind_proxy: Annotated[bool, typer.Option("--behind-proxy", help="A proxy in front ends TLS.")] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another name by which clients may call this machine; repeatable.", show_default=False),
    ] = None,
    stop_after: Annotated[
        str | None,
        typer.Option(metavar="SECONDS", help="Told to stop, let what runs finish for so long; also 10s, 2m.", show_default=False),
    ] = None,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Serve the project's agents to programs, models and other machines. Whoever comes in shows a token: `remit token new`.

    Ctrl-C or SIGTERM: nothing new is taken, what runs may finish, what can be resumed later is handed over; once more stops at once.
    SIGHUP reads agents, policy and certificates again."""

    from remit.server.run import serve as run_server

    asked: dict[str, Any] = {
        "doors": tuple(door) if door else None,
        "http": http,
        "grpc": grpc,
        "tls_certificate": _whole(tls_certificate),
        "tls_key": _whole(tls_key),
        "client_ca": _whole(client_ca),
        "behind_proxy": behind_proxy or None,
        "allow_hosts": tuple(allow_host) if allow_host else None,
        "stop_seconds": arguments.seconds(stop_after, "--stop-after") if stop_after else None,
    }
    said = {name: value for name, value in asked.items() if value is not None}
    telling, folder = ServeMessages(as_json=as_json), find_root(root)
    try:
        asyncio.run(run_server(folder, {"serve": said} if said else {}, telling))
    except Unavailable as error:
        raise _with_who_serves(error, folder) from None
    return Exit.OK


def _with_who_serves(error: "Unavailable", folder: Path) -> "Unavailable":
    """A place that is taken is mostly taken by another server of the same project: that says more than that it is."""
    from remit.server.discovery import announced

    other = announced(folder / ".remit" / "run")
    if other is None or error.code != "TOOL_UNAVAILABLE":
        return error
    where = " and ".join(address for address in (other.grpc, other.http) if address)
    message = f"{error.message} This project is served already, at {where}, by process {other.pid}."
    advice = f"Use that one, or stop it: kill {other.pid}. One beside it needs places of its own: --http 127.0.0.1:0 --grpc 127.0.0.1:0"
    return Unavailable(message, code=error.code, advice=advice)


def _whole(path: str | None) -> str | None:
    """Typed here, it means a file from here; in the settings, one below the project."""
    return None if path is None else str(Path(path).expanduser().absolute())


class ServeMessages:
    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def opened(self, opened: Opened) -> None:
        if self._as_json:
            say_json({"event": "serving", **opened.to_dict()})
            return
        say_aside(f"Serving {opened.root}:")
        for name, address in opened.doors.items():
            say_aside(f"  {name:<8} {address}")
        say_aside(f"Token of this user: {opened.token_file}; for others: remit token new NAME. Ctrl-C stops it.")

    def reloaded(self, problems: list[str]) -> None:
        if self._as_json:
            say_json({"event": "reloaded", "problems": problems})
            return
        say_aside(
            "Policy and certificates were read again. Agents stay as they were at the start."
            + "".join(f"\n  {problem}" for problem in problems)
        )

    def stopping(self, running: int, seconds: float) -> None:
        if self._as_json:
            say_json({"event": "stopping", "running": running, "seconds": seconds})
            return
        waits = f"{running} still running, at most {seconds:g} s; once more stops at once" if running else "nothing is running"
        say_aside(f"Stopping: nothing new is taken; {waits}.")

    def stopped(self, stopped: Stopped) -> None:
        if self._as_json:
            say_json({"event": "stopped", **stopped.to_dict()})
            return
        parts = [f"{count} {what}" for count, what in ((stopped.handed_over, "handed over"), (stopped.ended, "stopped")) if count]
        say_aside("Stopped." + (f" Of what was running, {' and '.join(parts)}." if parts else ""))
