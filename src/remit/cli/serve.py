"""`remit serve`: one process, all doors: gRPC, HTTP, A2A, MCP and the metrics, each of which can be left closed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from remit.core.errors import Unavailable


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
    import asyncio

    from remit.cli import values
    from remit.cli.project import find_root
    from remit.cli.serving import Telling
    from remit.core.errors import Unavailable
    from remit.serve.run import serve as run_server

    asked: dict[str, Any] = {
        "doors": tuple(door) if door else None,
        "http": http,
        "grpc": grpc,
        "tls_certificate": _whole(tls_certificate),
        "tls_key": _whole(tls_key),
        "client_ca": _whole(client_ca),
        "behind_proxy": behind_proxy or None,
        "allow_hosts": tuple(allow_host) if allow_host else None,
        "stop_seconds": values.seconds(stop_after, "--stop-after") if stop_after else None,
    }
    said = {name: value for name, value in asked.items() if value is not None}
    telling, folder = Telling(as_json=as_json), find_root(root)
    try:
        asyncio.run(run_server(folder, {"serve": said} if said else {}, telling))
    except Unavailable as error:
        raise _with_who_serves(error, folder) from None
    return Exit.OK


def _with_who_serves(error: "Unavailable", folder: Path) -> "Unavailable":
    """A place that is taken is mostly taken by another server of the same project: that says more than that it is."""
    from remit.core.errors import Unavailable
    from remit.system.announced import announced

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
