"""`remit tool` and `remit validate`: the delegate tool from the command line, and checking a return or a parameter document."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remit.cli.approval import person_here
from remit.cli.arguments import Json, Root
from remit.cli.exits import Exit, exit_of_ending
from remit.cli.live import on_interrupt, report_dead_work
from remit.cli.project import find_root, open_directory
from remit.cli.render import claim_stdout, printable, say, say_aside, say_json, say_json_line
from remit.core.errors import InvalidReturn, Misused
from remit.core.result import Status, StopReason

if TYPE_CHECKING:
    from remit.app import Remit
    from remit.runtime.tool.delegate_results import Chunk, DelegateResult


LARGEST_BYTES = 64 * 1024 * 1024


def tool(
    what: Annotated[str, typer.Argument(metavar="schema|call", help="Print the tool's schema, or call it.", show_default=False)],
    arguments: Annotated[
        str | None,
        typer.Argument(
            metavar="[JSON|@FILE|-]",
            help="Of call: target, operation, parameters, timeout (ms), priority; from a file, or from stdin.",
            show_default=False,
        ),
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Of call: a line of JSON for each chunk, as it comes.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Of schema: without conditions, as vendors of models want it.")] = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """The delegate tool for programs: its JSON schema, and calls in JSON. Always answers in JSON; with --json errors do too."""
    if what not in ("schema", "call"):
        raise Misused(f"There is no `remit tool {what[:40]}`.", advice="Use `remit tool schema` or `remit tool call JSON`.")
    if what == "schema":
        return _schema(find_root(root), plain=plain)
    if arguments is None:
        advice = 'Write e.g. remit tool call \'{"target": "worker", "operation": "read_file", "parameters": {"path": "README.md"}}\''
        raise Misused("`remit tool call` needs its arguments.", advice=advice)

    return asyncio.run(_call(find_root(root), _document(arguments), streams=stream))


def _schema(folder: "Path", *, plain: bool) -> Exit:
    from remit.runtime.tool.delegate_requests import Catalogue, tool_definition
    from remit.system.settings_files import load_settings

    directory = open_directory(folder)
    say_json(tool_definition(Catalogue(directory.specs), None if plain else load_settings(folder).limits_for))
    for problem in directory.problems:
        say_aside(f"! {printable(problem)}")
    return Exit.OK


async def _call(folder: "Path", arguments: Any, *, streams: bool) -> Exit:
    from remit.app import Remit
    from remit.runtime.tool.delegate_requests import DelegateError, json_text
    from remit.runtime.tool.delegate_tool import DelegateTool

    claim_stdout()
    async with Remit.open(folder, recover=False, approver=person_here()) as remit:
        await report_dead_work(remit)
        interrupted = asyncio.Event()
        last: DelegateResult | None = None
        try:
            async for chunk in _cancelling(remit, DelegateTool(remit).stream(arguments), interrupted):
                last = chunk.result
                if streams:
                    say_json_line(json_text(chunk.to_dict()))
        except DelegateError as error:
            say_json_line(json_text({"error": error.to_dict()}, indent=None if streams else 2))
            return Exit.USAGE
        assert last is not None  # a stream ends with the result
        if not streams:
            say_json_line(last.to_json(indent=2))
        return Exit.INTERRUPTED if interrupted.is_set() else _exit(last)


async def _cancelling(remit: "Remit", chunks: "AsyncIterator[Chunk]", interrupted: "asyncio.Event") -> "AsyncIterator[Chunk]":
    """The chunks; the first Ctrl-C cancels the delegation, whose last chunk then comes soon."""
    task_id: str | None = None
    cancelling: list[asyncio.Future[Any]] = []

    def cancel() -> None:
        interrupted.set()
        if task_id is not None:
            cancelling.append(asyncio.ensure_future(remit.cancel(task_id, "interrupted at the terminal")))

    with on_interrupt(cancel):
        async for chunk in chunks:
            task_id = chunk.task_id
            if interrupted.is_set() and not cancelling and chunk.result is None:
                cancel()
            yield chunk
        if cancelling:
            await asyncio.wait(cancelling, timeout=5)


def _exit(result: "DelegateResult") -> Exit:
    """As `remit delegate` ends."""
    status, reason = result.metadata.status, result.metadata.stop_reason
    if status is None or reason is None:  # there is no return
        return Exit.UNAVAILABLE if result.error is not None and result.error.code == "AGENT_UNAVAILABLE" else Exit.FAILED
    return exit_of_ending(Status(status), StopReason(reason))


def _document(text: str) -> Any:
    """JSON, as it was written on the command line, in a file, or on stdin."""
    try:
        if text == "-":
            text = sys.stdin.buffer.read(LARGEST_BYTES).decode()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
        return json.loads(text)
    except OSError as error:
        raise Misused(f"{text[1:]} cannot be read: {error.strerror or error}.", advice="Name a file after the @.") from None
    except UnicodeDecodeError:
        raise Misused("The arguments are not UTF-8 text.", advice="Write them as JSON in UTF-8.") from None
    except (ValueError, RecursionError) as error:
        raise Misused(f"The arguments are not JSON: {error}.", advice="Put the whole object between single quotes, or use @FILE.") from None


def validate(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The return, as JSON or text that holds it; - reads stdin.")],
    session: Annotated[str | None, typer.Option(metavar="ID", help="The session id the return must carry.", show_default=False)] = None,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Check a return against the contract: exit 0 or 1, each fault on a line."""
    from remit.runtime.validate import check_return

    folder = find_root(root)
    try:
        checked = check_return(_read(file), session, folder)
    except InvalidReturn as invalid:
        if as_json:
            say_json({"valid": False, "faults": list(invalid.faults)})
        for fault in invalid.faults if not as_json else ():
            say(fault)
        return Exit.FAILED
    if as_json:
        say_json({"valid": True, "faults": [], "warnings": list(checked.warnings), "return": checked.to_dict()})
        return Exit.OK
    for warning in checked.warnings:
        say_aside(f"warning: {warning}")
    say(f"valid: {checked.status}")
    return Exit.OK


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise Misused(f"{file} cannot be read: {error.strerror or error}.", advice="Name the file of the return, or - for stdin.") from None
