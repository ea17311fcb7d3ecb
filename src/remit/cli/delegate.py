"""`remit delegate`: hand work to an agent of the project and wait for its return."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remit.cli.exits import Exit, exit_of_return
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from remit.agents.directory import Directory
    from remit.app import Remit
    from remit.cli.live import Awaited


def delegate(
    agent: Annotated[
        str, typer.Argument(metavar="AGENT", help="Its name, or a target and its operation: see `remit agents`.", show_default=False)
    ],
    parameters: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[OPERATION] [NAME=VALUE]...",
            help="JSON where it is JSON, else text; a list of texts also as NAME=a,b or repeated. NAME=@FILE reads a file. "
            "A text alone is the task.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="When it is stopped; also 10s, 2m, 1h.", show_default=False)
    ] = None,
    priority: Annotated[str, typer.Option(help="low, normal, high or critical; or 1 to 4.")] = "normal",
    key: Annotated[str | None, typer.Option(help="Idempotency key: the same key is never run twice.", show_default=False)] = None,
    accept: Annotated[
        list[str] | None, typer.Option(metavar="COMMAND", help="Must exit 0 afterwards for it to count as completed; repeatable.")
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND=LIMIT", help="For the whole tree: delegations, alive, tokens, cost, seconds; repeatable."),
    ] = None,
    idle: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="Stop it when nothing was heard for so long.", show_default=False)
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(metavar="SESSION", help="Go on from the checkpoint and the finished children of an earlier one.", show_default=False),
    ] = None,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Hand work to an agent and wait for its return: by its deadline, whatever the agent does."""
    import asyncio

    from remit.cli import values
    from remit.cli.project import find_root
    from remit.core.states import priority_of

    given = parameters or []
    if not any(map(values.is_bare, given)):
        for pair in given:  # one by one: whether a name may be given twice, only the agent's schema tells
            values.pairs([pair])  # whatever is wrongly written is found before anything is opened or recorded
    options: dict[str, Any] = {
        "timeout": values.seconds(timeout, "--timeout"),
        "priority": priority_of(int(priority) if priority in "01234" and priority else priority),
        "key": _key(key),
        "accept": tuple(accept or ()),
        "budget": values.budget(budget or []),
        "idle": values.seconds(idle, "--idle"),
    }
    folder = find_root(root)
    if any(map(values.is_bare, given)):
        _check_bare(agent, given, folder)
    if resume is not None:
        options["resume"] = _session(folder, resume)
    return asyncio.run(_delegate(agent, given, options, folder, as_json))


def _check_bare(agent: str, given: list[str], folder: Path) -> None:
    """A text alone is the task of an agent that takes one; of any other it is told before anything is opened."""
    import os

    from remit.cli.project import open_directory
    from remit.cli.served import is_served
    from remit.cli.values import pairs
    from remit.core.caller import CALLER

    if CALLER in os.environ:  # an agent's own: who there is, only the owner of its tree knows
        return
    directory = open_directory(folder)
    agent, given = meant(agent, given, directory)
    known = directory.find(agent)
    if known is None:
        if is_served(folder):
            return  # its server may know
        _refuse_unloaded(agent, directory, folder)
        _refuse_unknown(agent, directory)
    pairs(given, known.spec.parameters_schema if known else None)


def _refuse_unknown(agent: str, directory: "Directory") -> None:
    """Followed by a bare word it may be a target whose name was mistyped: that says more than that the word is no pair."""
    from difflib import get_close_matches

    from remit.core.errors import Refused
    from remit.flow.guard import switched_off

    names = directory.names()
    if off := switched_off(agent, names):
        raise Refused(f"There is no agent named {agent!r}.", code="INVALID_TARGET", advice=off)
    close = get_close_matches(agent, [*names, *{name.partition(".")[0] for name in names}], n=1)
    if close:
        advice = f"Did you mean {close[0]}? `remit agents` lists all."
        raise Refused(f"There is no agent named {agent!r}.", code="INVALID_TARGET", advice=advice)


def meant(agent: str, given: list[str], directory: "Directory") -> tuple[str, list[str]]:
    """`worker read_file path=…` is `worker.read_file path=…`: the first bare word after a target.

    Of a target that is an agent itself (`researcher` is a role too) a single word is still an operation, and words are its task.
    """
    from remit.cli.values import is_bare
    from remit.core.agents import COME_WITH_REMIT
    from remit.core.errors import Refused
    from remit.tool.catalogue import Catalogue, parts_of
    from remit.tool.faults import DelegateError

    is_word = bool(given) and is_bare(given[0]) and given[0].replace("-", "_").isidentifier()
    if directory.find(agent) is not None and not (is_word and agent in COME_WITH_REMIT):
        return agent, given
    catalogue = Catalogue(directory.specs)
    target, operation = parts_of(agent)
    if target not in catalogue.targets():
        return agent, given  # nobody has this name: that is told, and recorded, like every refusal
    takes_word = operation is None and bool(given) and is_bare(given[0])
    try:
        spec = catalogue.find(target, given[0] if takes_word else operation)
    except DelegateError as error:
        raise Refused(error.message, code=error.code, advice=f"{error.advice} See `remit agents {target}`.") from None
    return spec.name, given[1:] if takes_word else given


def _key(key: str | None) -> str | None:
    from remit.core.errors import Misused

    if key is not None and not key.strip():
        raise Misused("--key is empty.", advice="Name the work, e.g. --key report-2026-01.")
    return key


def _session(folder: Path, name: str) -> str:
    from remit.cli.living import gone_among
    from remit.cli.project import find_session, need_record, open_record
    from remit.core.errors import Misused

    with open_record(folder) as found:
        store = need_record(found)
        record = find_session(store, name)
        if gone_among([record], store, folder):
            raise Misused(
                f"{record.session_id} is not settled, but its process is gone.", advice="`remit recover` goes on with it, or settles it."
            )
    return record.session_id


async def _delegate(agent: str, given: list[str], options: dict[str, Any], folder: Path, as_json: bool) -> Exit:
    from remit.app import Remit
    from remit.cli.answer import print_return
    from remit.cli.approving import person_here
    from remit.cli.live import best_show, carried_out, wait_for_resumed
    from remit.cli.living import mind_the_dead
    from remit.cli.output import console, say_json
    from remit.cli.values import pairs

    async with Remit.open(folder, recover=False, approver=person_here()) as remit:
        resumed = await mind_the_dead(remit, options["key"])
        agent, given = meant(agent, given, remit.directory)
        known = remit.directory.find(agent)
        handle: Awaited | None = None
        if known is None:
            _refuse_unloaded(agent, remit.directory, remit.root)
            handle = await _begun_there(remit, agent, given, options)
        if handle is None:
            _name_problems(remit, agent)
            _name_faulty_rules(remit)
            parameters = pairs(given, known.spec.parameters_schema if known else None)
            handle = await remit.start(agent, parameters=parameters, **options)
        outcome = await carried_out(remit, handle, best_show(as_json=as_json))
        if as_json:
            say_json(outcome.result.to_dict())
        else:
            print_return(outcome.result, console(), remit.root)
        if outcome.was_interrupted:
            return Exit.INTERRUPTED
        await wait_for_resumed(remit, [one for one in resumed if one != outcome.result.session_id], as_json=as_json)
        return exit_of_return(outcome.result)


async def _begun_there(remit: "Remit", agent: str, given: list[str], options: dict[str, Any]) -> "Awaited | None":
    """By an agent that registered with the project's server, which alone can have it work. None: nobody there has this name either."""
    import os

    from remit.cli import served
    from remit.cli.values import is_bare, pairs
    from remit.core.caller import CALLER

    if CALLER in os.environ or not served.is_served(remit.root):
        return None
    found = served.named(agent, given, await served.served_agents(remit.root))
    if found is None:
        if any(map(is_bare, given)):
            _refuse_unknown(agent, remit.directory)
        return None
    spec, rest = found
    return await served.begun_there(remit, spec.name, pairs(rest, spec.parameters_schema), options)


def _refuse_unloaded(agent: str, directory: "Directory", root: Path) -> None:
    """It is there, but faulty: that says more than that nobody has this name."""
    from remit.cli.project import why_not_loaded
    from remit.core.errors import Refused

    if fault := why_not_loaded(agent, directory, root):
        raise Refused(fault, code="INVALID_TARGET", advice="Mend it there; `remit agents` lists what is loaded.")


def _name_problems(remit: "Remit", agent: str) -> None:
    """Files that were not loaded, where they may be why the agent is missing or is not the one that was meant."""
    from remit.cli.output import say_aside

    is_known = remit.directory.find(agent) is not None
    for problem in remit.directory.problems:
        if not is_known or f"Two agents are named {agent!r}" in problem:
            say_aside(f"! {problem}")


def _name_faulty_rules(remit: "Remit") -> None:
    """A rule with a name that nobody has holds for nothing, and looks as if it did: whoever wrote it is told before something runs."""
    from remit.cli.output import say_aside
    from remit.policy.checking import check_rules
    from remit.policy.source import default_text, project_file

    rules = project_file(remit.folder).read()
    if rules.fault is not None or rules.text == default_text() or remit.settings.policy_mode == "disabled":
        return
    for problem in check_rules(rules.text, remit.directory.specs()):
        if problem.is_error:
            say_aside(f"! {rules.name}, {problem}")
