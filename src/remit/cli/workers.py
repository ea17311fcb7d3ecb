"""`remit worker` and `remit workers`: take work from the project's queues, and list the processes that do."""

import asyncio
import signal
from collections import Counter
from typing import Annotated, Any

from typer import Option

from remit.cli import arguments
from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.results import say_document
from remit.system.threads import off_loop


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
