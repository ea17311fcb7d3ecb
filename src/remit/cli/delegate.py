"""`remit delegate`: hand work to an agent of the project and wait for its return."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remit.cli import arguments
from remit.cli.approval import person_here
from remit.cli.arguments import Json, Root, Timeout, is_bare, pairs
from remit.cli.exits import Exit, exit_of_return
from remit.cli.live import best_show, carried_out, gone_among, report_dead_work, wait_for_resumed
from remit.cli.project import find_root, find_session, need_record, open_directory, open_record, why_not_loaded
from remit.cli.render import say_aside, say_json
from remit.cli.results import print_return
from remit.core.agents import BUILTIN_TARGETS, AgentSpec
from remit.core.caller_token import CALLER
from remit.core.errors import Misused, Refused, RemitError, Unavailable
from remit.core.result import Return
from remit.core.states import priority_of
from remit.server.discovery import announced

if TYPE_CHECKING:
    from remit.agents.directory import Directory
    from remit.agents.grpc.task_service import TaskService
    from remit.agents.proto.v1 import tasks_pb2 as pb
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
    timeout: Timeout = None,
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
    given = parameters or []
    if not any(map(arguments.is_bare, given)):
        for pair in given:  # one by one: whether a name may be given twice, only the agent's schema tells
            arguments.pairs([pair])  # whatever is wrongly written is found before anything is opened or recorded
    options: dict[str, Any] = {
        "timeout": arguments.seconds(timeout, "--timeout"),
        "priority": priority_of(int(priority) if priority in "01234" and priority else priority),
        "key": _key(key),
        "accept": tuple(accept or ()),
        "budget": arguments.budget(budget or []),
        "idle": arguments.seconds(idle, "--idle"),
    }
    folder = find_root(root)
    if any(map(arguments.is_bare, given)):
        _check_bare(agent, given, folder)
    if resume is not None:
        options["resume"] = _session(folder, resume)
    return asyncio.run(_delegate(agent, given, options, folder, as_json))


def _check_bare(agent: str, given: list[str], folder: Path) -> None:
    """A text alone is the task of an agent that takes one; of any other it is told before anything is opened."""
    if CALLER in os.environ:  # an agent's own: who there is, only the owner of its tree knows
        return
    directory = open_directory(folder)
    agent, given = resolve_target(agent, given, directory)
    known = directory.find(agent)
    if known is None:
        if is_served(folder):
            return  # its server may know
        _refuse_unloaded(agent, directory, folder)
        _refuse_unknown(agent, directory)
    pairs(given, known.spec.parameters_schema if known else None)


def _refuse_unknown(agent: str, directory: "Directory") -> None:
    """Followed by a bare word it may be a target whose name was mistyped: that says more than that the word is no pair."""

    from remit.runtime.accept import switched_off

    names = directory.names()
    if off := switched_off(agent, names):
        raise Refused(f"There is no agent named {agent!r}.", code="INVALID_TARGET", advice=off)
    close = get_close_matches(agent, [*names, *{name.partition(".")[0] for name in names}], n=1)
    if close:
        advice = f"Did you mean {close[0]}? `remit agents` lists all."
        raise Refused(f"There is no agent named {agent!r}.", code="INVALID_TARGET", advice=advice)


def resolve_target(agent: str, given: list[str], directory: "Directory") -> tuple[str, list[str]]:
    """`worker read_file path=…` is `worker.read_file path=…`: the first bare word after a target.

    Of a target that is an agent itself (`researcher` is a role too) a single word is still an operation, and words are its task.
    """
    is_word = bool(given) and is_bare(given[0]) and given[0].replace("-", "_").isidentifier()
    if directory.find(agent) is not None and not (is_word and agent in BUILTIN_TARGETS):
        return agent, given
    from remit.runtime.tool.delegate_requests import Catalogue, DelegateError, parts_of

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
    if key is not None and not key.strip():
        raise Misused("--key is empty.", advice="Name the work, e.g. --key report-2026-01.")
    return key


def _session(folder: Path, name: str) -> str:
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

    async with Remit.open(folder, recover=False, approver=person_here()) as remit:
        resumed = await report_dead_work(remit, options["key"])
        agent, given = resolve_target(agent, given, remit.directory)
        known = remit.directory.find(agent)
        handle: Awaited | None = None
        if known is None:
            _refuse_unloaded(agent, remit.directory, remit.root)
            handle = await _start_on_server(remit, agent, given, options)
        if handle is None:
            _name_problems(remit, agent)
            _name_faulty_rules(remit)
            parameters = pairs(given, known.spec.parameters_schema if known else None)
            handle = await remit.start(agent, parameters=parameters, **options)
        outcome = await carried_out(remit, handle, best_show(as_json=as_json))
        if as_json:
            say_json(outcome.result.to_dict())
        else:
            print_return(outcome.result, remit.root)
        if outcome.was_interrupted:
            return Exit.INTERRUPTED
        await wait_for_resumed(remit, [one for one in resumed if one != outcome.result.session_id], as_json=as_json)
        return exit_of_return(outcome.result)


async def _start_on_server(remit: "Remit", agent: str, given: list[str], options: dict[str, Any]) -> "Awaited | None":
    """By an agent that registered with the project's server, which alone can have it work. None: nobody there has this name either."""
    if CALLER in os.environ or not is_served(remit.root):
        return None
    found = named(agent, given, await served_agents(remit.root))
    if found is None:
        if any(map(is_bare, given)):
            _refuse_unknown(agent, remit.directory)
        return None
    spec, rest = found
    return await start_on_server(remit, spec.name, pairs(rest, spec.parameters_schema), options)


def _refuse_unloaded(agent: str, directory: "Directory", root: Path) -> None:
    """It is there, but faulty: that says more than that nobody has this name."""
    if fault := why_not_loaded(agent, directory, root):
        raise Refused(fault, code="INVALID_TARGET", advice="Fix that file; `remit agents` lists what is loaded.")


def _name_problems(remit: "Remit", agent: str) -> None:
    """Files that were not loaded, where they may be why the agent is missing or is not the one that was meant."""
    is_known = remit.directory.find(agent) is not None
    for problem in remit.directory.problems:
        if not is_known or f"Two agents are named {agent!r}" in problem:
            say_aside(f"! {problem}")


def _name_faulty_rules(remit: "Remit") -> None:
    """A rule with a name that nobody has holds for nothing, and looks as if it did: whoever wrote it is told before something runs."""
    from remit.policy.rules import default_text, project_file

    rules = project_file(remit.folder).read()
    if rules.fault is not None or rules.text == default_text() or remit.settings.policy_mode == "disabled":
        return
    from remit.policy.rule_check import check_rules

    for problem in check_rules(rules.text, remit.directory.specs()):
        if problem.is_error:
            say_aside(f"! {rules.name}, {problem}")


KIND = "registered"
SOURCE = "the server of this project"
LATE_SECONDS = 5.0
"""So long after its deadline a return is still waited for."""


def is_served(folder: Path) -> bool:
    """Whether a server of this project lives: costs a look at a file."""
    return announced(folder / ".remit" / "run") is not None


async def served_agents(folder: Path) -> "list[AgentSpec]":
    """Every agent of the running server; empty where there is none that answers."""
    if not is_served(folder):
        return []
    try:
        async with _service(folder) as service:
            found = await service.agents()
    except (RemitError, ModuleNotFoundError):
        return []
    return [_spec(one) for one in found]


def only_served(folder: Path, known: Collection[str]) -> "list[AgentSpec]":
    """Those of them that the project itself does not have."""
    return [spec for spec in asyncio.run(served_agents(folder)) if spec.name not in known] if is_served(folder) else []


def _spec(told: "pb.AgentInfo") -> "AgentSpec":
    from remit.agents.proto.values import dict_of

    return AgentSpec(
        name=told.name,
        description=told.description,
        timeout_seconds=told.timeout_ns / 1e9 if told.timeout_ns > 0 else None,
        kind=KIND,
        parameters_schema=dict_of(told.parameters_schema),
        source=SOURCE,
    )


def named(agent: str, given: list[str], among: "list[AgentSpec]") -> "tuple[AgentSpec, list[str]] | None":
    """`words.count …`, or `words count …`."""
    by_name = {one.name: one for one in among}
    if agent in by_name:
        return by_name[agent], given
    both = f"{agent}.{given[0]}" if given else ""
    return (by_name[both], given[1:]) if both in by_name else None


async def start_on_server(remit: "Remit", agent: str, parameters: Mapping[str, Any], options: Mapping[str, Any]) -> "ServerHandle":
    """Raises what the server refuses it with."""
    from remit.agents.proto.v1 import tasks_pb2 as pb
    from remit.agents.proto.values import nanoseconds, struct_of

    timeout, idle, limits = options["timeout"], options["idle"], options["budget"]
    config = pb.TaskConfig(
        parameters=struct_of(parameters),
        timeout_ns=nanoseconds(timeout) if timeout else 0,
        idle_ns=nanoseconds(idle) if idle else 0,
        key=options["key"] or "",
        resume=options.get("resume") or "",
        accept=options["accept"],
    )
    if limits is not None:
        config.budget.CopyFrom(struct_of({kind: value for kind, value in limits.to_dict().items() if value is not None}))
    async with _service(remit.root) as service:
        task = await service.execute(pb.ExecuteTaskRequest(agent_id=agent, priority=int(options["priority"]), config=config))  # type: ignore[arg-type]
    if task.task_id is None:
        raise Unavailable(f"The server did not begin {agent}.", advice="Its log says why.")
    return ServerHandle(remit, task.task_id)


class ServerHandle:
    """A delegation that the server runs, as a handle: its return is read off the record."""

    def __init__(self, remit: "Remit", session_id: str) -> None:
        self._remit = remit
        self.session_id = session_id

    async def result(self) -> "Return":
        record = await self._remit.describe(self.session_id)
        wait = max(0.0, record.deadline_at - time.time()) + LATE_SECONDS
        result = await self._remit.result(self.session_id, wait_seconds=wait)
        if result is None:
            raise Unavailable(f"{self.session_id} has no return yet.", advice=f"remit follow {self.session_id}")
        return result


@contextlib.asynccontextmanager
async def _service(folder: Path) -> AsyncIterator["TaskService"]:
    from remit.agents.grpc.task_service import ServiceAddress, TaskService
    from remit.server.client import discover

    found = discover(folder)
    service = TaskService(ServiceAddress(address=found.address, token=lambda: found.token))
    try:
        yield service
    finally:
        await service.close()
