"""`remit run`: run a flow of the project, or of a file."""

import asyncio
import os
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from remit.builtin.flows import FOLDER, MAX_BYTES, Flow, read_flow
from remit.cli import arguments
from remit.cli.arguments import Timeout, pairs
from remit.cli.delegate import show_return, start_and_show, stopped_session
from remit.cli.exits import Exit
from remit.cli.live import report_dead_work
from remit.cli.project import Project
from remit.core.agents import FLOW
from remit.core.errors import Misused, Refused
from remit.core.ids import CALLER
from remit.core.request import COMPOSE
from remit.system.trust import CODE


def run(
    project: Project,
    flow: Annotated[str, Argument(metavar="FLOW", help=f"A file, or the name of a flow in {FOLDER}.")],
    parameters: Annotated[
        list[str] | None, Argument(metavar="NAME=VALUE", help="JSON where it is JSON, else text. NAME=@FILE reads a file.")
    ] = None,
    timeout: Timeout = None,
    budget: Annotated[
        list[str] | None, Option(metavar="KIND=LIMIT", help="For the whole flow: delegations, alive, tokens, cost, seconds; repeatable.")
    ] = None,
    resume: Annotated[str | None, Option(metavar="SESSION", help="Resume this run of it: completed steps are not repeated.")] = None,
) -> Exit:
    """Run a flow and wait for its return: a sequence of delegations with references between them, declared in TOML."""
    options: dict[str, Any] = {"timeout": arguments.seconds(timeout, "--timeout"), "budget": arguments.budget(budget or [])}
    if resume is not None:
        options["resume"] = stopped_session(project, resume)
    given, path = parameters or [], Path(flow)
    if path.suffix != ".toml" and len(path.parts) == 1:
        return asyncio.run(start_and_show(project, _known_name(project, flow), given, options))
    if path.resolve().parent == (project.root / FOLDER).resolve():
        return asyncio.run(start_and_show(project, f"{FLOW}.{path.stem}", given, options))
    read = _flow_in(project, path)
    composition = read.as_composition(pairs(given, read.spec.parameters_schema))
    options["timeout"] = options["timeout"] or read.spec.timeout_seconds
    options["idle"] = read.spec.idle_seconds
    return asyncio.run(_run(project, composition, options))


def _known_name(project: Project, flow: str) -> str:
    name = f"{FLOW}.{flow.removeprefix(f'{FLOW}.')}"
    if CALLER not in os.environ and project.directory.find(name) is None:
        if fault := next((one for one in project.directory.problems if f"/{FOLDER}/{flow}.toml" in one), ""):
            raise Misused(f"The flow {flow} was not loaded: {project.inside(fault)}", code="INVALID_TARGET")
        known = [one.removeprefix(f"{FLOW}.") for one in project.directory.names() if one.startswith(f"{FLOW}.")]
        advice = f"There are {', '.join(known)}." if known else f"Write one to {FOLDER}/{flow}.toml, or name a file: {flow}.toml."
        raise Misused(f"There is no flow {flow!r:.80}.", code="INVALID_TARGET", advice=advice)
    return name


def _flow_in(project: Project, path: Path) -> Flow:
    """Load a flow from a file that the person names. A file inside the project needs approval like other project files."""
    try:
        with path.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise Misused(f"Cannot read {path}: {error.strerror or error}.", advice=f"Name a file, or a flow in {FOLDER}.") from None
    if len(data) > MAX_BYTES:
        raise Misused(f"{path} is larger than {MAX_BYTES // 1024} KiB.")
    try:
        found = read_flow(data, f"{FLOW}.{path.stem}", str(path))
    except Misused as error:
        raise Misused(f"{path}: {error.message}", code=error.code, advice=error.advice) from None
    real = path.resolve()
    if real.is_relative_to(project.root) and CALLER not in os.environ and not project.trust.allows_content(real, data):
        advice = f"Move it to {FOLDER} and approve it: remit trust. Or approve everything for this command: --trust"
        raise Refused(f"{path} is not approved.", code=CODE, advice=advice)
    return found


async def _run(project: Project, composition: dict[str, Any], options: dict[str, Any]) -> Exit:
    async with project.open() as remit:
        resumed = await report_dead_work(remit, None)
        handle = await remit.start(COMPOSE, parameters=composition, **options)
        return await show_return(project, remit, handle, resumed)
