"""`remit serve`, `mcp`, `worker` and `workers`: serve the agents of the project over APIs, and to task queues."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from remit.cli import arguments
from remit.cli.exits import Exit
from remit.cli.project import INSTALL_MCP, Project, has_mcp
from remit.cli.render import claim_stdout
from remit.cli.results import say_document
from remit.core.errors import Misused
from remit.system.threads import off_loop


def serve(
    project: Project,
    api: Annotated[
        list[str] | None,
        Option("--api", metavar="NAME", help="Serve this API only: grpc, http, a2a, mcp or metrics; repeatable."),
    ] = None,
    http: Annotated[str | None, Option(metavar="ADDRESS", help="Where HTTP, A2A, MCP and the metrics listen: HOST:PORT.")] = None,
    grpc: Annotated[str | None, Option(metavar="ADDRESS", help="Where gRPC listens: unix or HOST:PORT.")] = None,
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


# ---- workers


def worker(
    project: Project,
    agents: Annotated[
        list[str] | None, Option(metavar="NAMES", help="Take work for these agents only; with commas, or repeatable.")
    ] = None,
    stop_after: arguments.StopAfter = None,
) -> Exit:
    """Take work for the agents of this project from Temporal, until Ctrl-C or SIGTERM.

    On a stop it takes no new work, hands resumable work to another worker at once, and lets the rest finish."""
    names = [name.strip() for one in agents or () for name in one.split(",") if name.strip()]
    seconds = arguments.seconds(stop_after, "--stop-after") if stop_after else None
    asyncio.run(_work(project, names or None, project.settings.serve.stop_seconds if seconds is None else seconds))
    return Exit.OK


async def _work(project: Project, names: list[str] | None, stop_seconds: float) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with project.open(approver=None, recover=True, is_worker=True) as remit:
        await remit.work(names)
        served = ", ".join(names) if names else "all agents"
        chosen = project.settings.engine
        where = f"project {chosen.project}"
        project.announce(
            "working", {"agents": names, "owner": remit.owner.owner_id}, f"Taking work for {served} of {where}. Ctrl-C stops it."
        )
        await stopping.wait()
        stopping.clear()
        handed_over = await remit.engine.drain()
        running = len(remit.engine.live())
        project.announce("stopping", {"handed_over": handed_over, "running": running}, _stopping(len(handed_over), running, stop_seconds))
        idle = asyncio.ensure_future(remit.engine.wait_idle())
        again = asyncio.ensure_future(stopping.wait())
        await asyncio.wait([idle, again], timeout=stop_seconds, return_when=asyncio.FIRST_COMPLETED)
        for waiting in (idle, again):
            waiting.cancel()
        await asyncio.wait([idle, again])
    project.announce("stopped", {}, "Stopped.")


def _stopping(handed_over: int, running: int, seconds: float) -> str:
    given = f" {handed_over} handed to other workers." if handed_over else ""
    waits = f"{running} still running, at most {seconds:g} s; once more stops at once" if running else "nothing is running"
    return f"Stopping: no new work is taken; {waits}.{given}"


def workers(project: Project) -> Exit:
    """List the processes that take work for the agents of this project, and what they run."""
    found = asyncio.run(_workers(project))
    empty = "No worker takes work for this project. Start one: remit worker"
    return project.answer(found, (lambda: say_document({"workers": found})) if found else empty)


async def _workers(project: Project) -> list[dict[str, Any]]:
    async with project.open(approver=None) as remit:
        running = Counter(record.owner for record in await off_loop(remit.store.live))
        return [
            {
                "worker": one.identity,
                "agents": list(one.agents),
                "running": running[one.identity.removeprefix("remit ").partition("@")[0]],
                "heard_seconds": round(one.heard_seconds, 1),
            }
            for one in await remit.workers()
        ]
