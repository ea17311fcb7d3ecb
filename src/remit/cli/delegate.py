"""`remit delegate`: hand work to an agent of the project and wait for its return."""

import asyncio
import os
from collections.abc import Collection
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from remit.cli import arguments, completion
from remit.cli.arguments import Timeout, is_bare, pairs
from remit.cli.exits import Exit, exit_of_return
from remit.cli.live import await_result, best_show, lost_sessions, report_dead_work, wait_for_resumed
from remit.cli.project import Project, find_session
from remit.cli.render import say_aside, say_json
from remit.core.agents import BUILTIN_TARGETS
from remit.core.errors import Misused, Refused
from remit.core.ids import CALLER
from remit.core.states import priority_of

if TYPE_CHECKING:
    from remit.agents.directory import Directory
    from remit.app import Remit
    from remit.core.context import Handle

AgentName = Annotated[
    str, Argument(metavar="AGENT", help="Its name, or a target and its operation: see `remit agents`.", autocompletion=completion.agents)
]
Parameters = Annotated[
    list[str] | None,
    Argument(
        metavar="OPERATION|NAME=VALUE",
        help="JSON where it is JSON, else text; a list of texts also as NAME=a,b or repeated. NAME=@FILE reads a file. "
        "A text alone is the task.",
        autocompletion=completion.parameters,
    ),
]


def delegate(
    project: Project,
    agent: AgentName,
    parameters: Parameters = None,
    timeout: Timeout = None,
    priority: Annotated[str, Option(help="low, normal, high or critical; or 1 to 4.")] = "normal",
    key: Annotated[str | None, Option(help="Idempotency key: the same key is never run twice.")] = None,
    accept: Annotated[
        list[str] | None, Option(metavar="COMMAND", help="Must exit 0 afterwards for it to count as completed; repeatable.")
    ] = None,
    budget: Annotated[
        list[str] | None, Option(metavar="KIND=LIMIT", help="For the whole tree: delegations, alive, tokens, cost, seconds; repeatable.")
    ] = None,
    idle: Annotated[str | None, Option(metavar="SECONDS", help="Stop it after this long without an event.")] = None,
    cache: Annotated[str | None, Option(metavar="off|refresh|1h", help="Use no earlier result, replace it, or use one this old.")] = None,
    resume: Annotated[
        str | None, Option(metavar="SESSION", help="Resume from the checkpoint and the finished children of this one.")
    ] = None,
) -> Exit:
    """Hand work to an agent and wait for its return, which arrives by the deadline whatever the agent does."""
    given = parameters or []
    if key is not None and not key.strip():
        raise Misused("--key is empty.", advice="Name the work, e.g. --key report-2026-01.")
    options: dict[str, Any] = {
        "timeout": arguments.seconds(timeout, "--timeout"),
        "priority": priority_of(int(priority) if priority in tuple("01234") else priority),
        "key": key,
        "accept": tuple(accept or ()),
        "budget": arguments.budget(budget or []),
        "idle": arguments.seconds(idle, "--idle"),
        "cache": cache,
    }
    if any(map(is_bare, given)):
        _check_bare(agent, given, project)
    for pair in given if not any(map(is_bare, given)) else ():  # one by one: only the agent's schema tells whether a name may be repeated
        pairs([pair])  # faults are found before anything is opened or recorded
    if resume is not None:
        options["resume"] = stopped_session(project, resume)
    return asyncio.run(start_and_show(project, agent, given, options))


def _check_bare(agent: str, given: list[str], project: Project) -> None:
    """A bare text is the task of an agent that takes one. Any other agent refuses it before anything is opened."""
    if CALLER in os.environ:  # only the owner of a tree knows its agents
        return
    agent, given = resolve_target(agent, given, project.directory)
    known = project.directory.find(agent)
    if known is None:
        _refuse_unknown(project, agent, project.directory)
    pairs(given, known.spec.parameters_schema if known else None)


def _refuse_unknown(project: Project, agent: str, directory: "Directory") -> None:
    """For a declared but faulty agent, report its fault; for a mistyped name, the one that is meant."""
    if fault := project.why_not_loaded(agent, directory):
        raise Refused(fault, code="INVALID_TARGET", advice="Fix that file; `remit agents` lists what is loaded.")
    if advice := advice_for_unknown(agent, directory.names()):
        raise Refused(f"There is no agent named {agent!r}.", code="INVALID_TARGET", advice=advice)


def close_match(name: str, known: Collection[str]) -> str:
    return f"Did you mean {close[0]}?" if (close := get_close_matches(name, known, n=1)) else ""


def advice_for_unknown(agent: str, names: Collection[str]) -> str:
    """The agent or target that is meant; empty if unknown."""
    close = close_match(agent, [*names, *{name.partition(".")[0] for name in names}])
    return f"{close} `remit agents` lists all." if close else ""


def resolve_target(agent: str, given: list[str], directory: "Directory") -> tuple[str, list[str]]:
    """`worker read_file path=…` becomes `worker.read_file path=…`: the first bare word after a target is its operation.

    After a target that is also an agent (`researcher` is a role too) a single word is still an operation; several words are its task."""
    is_word = bool(given) and is_bare(given[0]) and given[0].replace("-", "_").isidentifier()
    if directory.find(agent) is not None and not (is_word and agent in BUILTIN_TARGETS):
        return agent, given
    from remit.core.delegate_requests import Catalogue, DelegateError, parts_of

    catalogue = Catalogue(directory.specs)
    target, operation = parts_of(agent)
    if target not in catalogue.targets():
        return agent, given  # an unknown agent is refused and recorded like any other refusal
    takes_word = operation is None and bool(given) and is_bare(given[0])
    try:
        spec = catalogue.find(target, given[0] if takes_word else operation)
    except DelegateError as error:
        raise Refused(error.message, code=error.code, advice=f"{error.advice} See `remit agents {target}`.") from None
    return spec.name, given[1:] if takes_word else given


def stopped_session(project: Project, name: str) -> str:
    with project.store() as store:
        record = find_session(store, name)
        if lost_sessions([record], store, project.root):
            raise Misused(
                f"{record.session_id} is not settled, but its process is gone.", advice="`remit recover` resumes it, or settles it."
            )
    return record.session_id


async def start_and_show(project: Project, agent: str, given: list[str], options: dict[str, Any]) -> Exit:
    async with project.open() as remit:
        resumed = await report_dead_work(remit, options.get("key"))
        agent, given = resolve_target(agent, given, remit.directory)
        known = remit.directory.find(agent)
        for problem in remit.directory.problems:
            say_aside(f"! {problem}")
        if known is None and (fault := project.why_not_loaded(agent, remit.directory)):
            raise Refused(fault, code="INVALID_TARGET", advice="Fix that file; `remit agents` lists what is loaded.")
        _print_faulty_rules(remit)
        parameters = pairs(given, known.spec.parameters_schema if known else None)
        handle = await remit.start(agent, parameters=parameters, **options)
        return await show_return(project, remit, handle, resumed)


async def show_return(project: Project, remit: "Remit", handle: "Handle", resumed: list[str]) -> Exit:
    """Wait for the return and print it; then for what was resumed when the project was opened."""
    show = best_show(as_json=project.as_json)
    result, was_interrupted = await await_result(remit, lambda: [handle.session_id], handle.result(), show)
    if project.as_json:
        say_json(result.to_dict())
    else:
        from remit.cli.results import print_return

        print_return(result, remit.root)
    if was_interrupted:
        return Exit.INTERRUPTED
    await wait_for_resumed(remit, [one for one in resumed if one != result.session_id], as_json=project.as_json)
    return exit_of_return(result)


def _print_faulty_rules(remit: "Remit") -> None:
    """Warn before a run about rules with misspelt names: they match nothing."""
    from remit.policy.rules import default_text, project_file

    rules = project_file(remit.folder, remit.trust).read()
    if rules.fault is not None or rules.text == default_text() or remit.settings.policy_mode == "disabled":
        return
    from remit.policy.rule_check import check_rules

    for problem in check_rules(rules.text, remit.directory.specs()):
        if problem.is_error:
            say_aside(f"! {rules.name}, {problem}")
