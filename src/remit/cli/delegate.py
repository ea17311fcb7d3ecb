"""`remit delegate`: hand work to an agent of the project and wait for its return."""

from typing import Annotated, Any

import typer

from remit.cli.exits import Exit, exit_of_return
from remit.cli.options import Json, Root


def delegate(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Its name: see `remit agents`.", show_default=False)],
    parameters: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=VALUE]...", help="JSON where it is JSON, else text; NAME=@FILE reads a file.", show_default=False),
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds until it is stopped.", show_default=False)] = None,
    priority: Annotated[str, typer.Option(help="low, normal, high or critical.")] = "normal",
    key: Annotated[str | None, typer.Option(help="Idempotency key: the same key is never run twice.", show_default=False)] = None,
    accept: Annotated[
        list[str] | None, typer.Option(metavar="COMMAND", help="Must exit 0 afterwards for it to count as completed; repeatable.")
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND=LIMIT", help="For the whole tree: delegations, alive, tokens, cost, seconds; repeatable."),
    ] = None,
    idle: Annotated[float | None, typer.Option(help="Stop it when nothing was heard for so many seconds.", show_default=False)] = None,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Hand work to an agent and wait for its return: by its deadline, whatever the agent does."""
    import asyncio

    options: dict[str, Any] = {"timeout": timeout, "priority": priority, "key": key, "accept": tuple(accept or ()), "idle": idle}
    return asyncio.run(_delegate(agent, parameters or [], budget or [], options, root, as_json))


async def _delegate(agent: str, given: list[str], budget: list[str], options: dict[str, Any], root: Any, as_json: bool) -> Exit:
    from remit.app import Remit
    from remit.cli.answer import print_return
    from remit.cli.live import best_show, carried_out, wait_for_resumed
    from remit.cli.output import console, say_aside, say_json
    from remit.cli.project import find_root
    from remit.cli.values import pairs

    limits = pairs(budget) or None
    pairs(given)  # a pair that is none is found before anything is opened
    async with Remit.open(find_root(root)) as remit:
        known = remit.directory.find(agent)
        parameters = pairs(given, known.spec.parameters_schema if known else None)
        if known is None and not as_json:
            for problem in remit.directory.problems:
                say_aside(f"Not loaded: {problem}")
        handle = await remit.start(agent, parameters=parameters, budget=limits, **options)
        outcome = await carried_out(remit, handle, best_show(as_json=as_json))
        if as_json:
            say_json(outcome.result.to_dict())
        else:
            print_return(outcome.result, console())
        if outcome.was_interrupted:
            return Exit.INTERRUPTED
        await wait_for_resumed(remit, as_json=as_json)
        return exit_of_return(outcome.result)
