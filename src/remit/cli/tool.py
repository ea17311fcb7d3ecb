"""`remit tool` and `remit validate`: call the delegate tool from the command line, and check a return or a parameter document."""

import asyncio
import json
from typing import Annotated, Any

from typer import Argument, Option

from remit.cli.arguments import read_input
from remit.cli.exits import Exit, exit_of_ending
from remit.cli.live import on_interrupt, report_dead_work
from remit.cli.project import Project
from remit.cli.render import claim_stdout, say_aside, say_json, say_json_line
from remit.core.delegate_requests import Catalogue, DelegateError, json_text, tool_definition
from remit.core.delegate_results import DelegateResult
from remit.core.errors import InvalidReturn, Misused
from remit.core.result import Status, StopReason
from remit.runtime.tool.delegate_tool import DelegateTool
from remit.runtime.validate import check_return


def tool(project: Project) -> Exit:
    """The delegate tool for programs: `remit tool schema` prints its JSON schema, `remit tool call` calls it."""
    raise Misused("`remit tool` needs a subcommand.", advice="Use `remit tool schema` or `remit tool call JSON`.")


def schema(project: Project) -> Exit:
    """Print the name, description and JSON schema of the delegate tool."""
    say_json(tool_definition(Catalogue(project.directory.specs)))
    for problem in project.directory.problems:
        say_aside(f"! {problem}")
    return Exit.OK


def call(
    project: Project,
    request: Annotated[
        str, Argument(metavar="JSON|@FILE|-", help="target, operation, parameters, timeout (ms), priority; from a file, or from stdin.")
    ],
    stream: Annotated[bool, Option("--stream", help="One line of JSON for each chunk as it arrives.")] = False,
) -> Exit:
    """Call the delegate tool. Always answers in JSON; with --json errors do too."""
    return asyncio.run(_call(project, _document(request), streams=stream))


async def _call(project: Project, arguments: Any, *, streams: bool) -> Exit:
    """The first Ctrl-C cancels the delegation, whose last chunk then follows."""
    claim_stdout()
    async with project.open() as remit:
        await report_dead_work(remit)
        interrupted, started = asyncio.Event(), asyncio.get_running_loop().create_future()

        async def cancel() -> None:
            await interrupted.wait()
            await remit.cancel(await started, "interrupted at the terminal")

        cancelling = asyncio.ensure_future(cancel())
        last: DelegateResult | None = None
        try:
            with on_interrupt(interrupted.set):
                async for chunk in DelegateTool(remit).stream(arguments):
                    if not started.done():
                        started.set_result(chunk.task_id)
                    last = chunk.result
                    if streams:
                        say_json_line(json_text(chunk.to_dict()))
        except DelegateError as error:
            say_json_line(json_text({"error": error.to_dict()}, indent=None if streams else 2))
            return Exit.USAGE
        finally:
            cancelling.cancel()
        assert last is not None  # a stream ends with the result
        if not streams:
            say_json_line(last.to_json(indent=2))
        return Exit.INTERRUPTED if interrupted.is_set() else _exit(last)


def _exit(result: "DelegateResult") -> Exit:
    """The exit code, as in `remit delegate`."""
    status, reason = result.metadata.status, result.metadata.stop_reason
    if status is None or reason is None:  # there is no return
        return Exit.UNAVAILABLE if result.error is not None and result.error.code == "AGENT_UNAVAILABLE" else Exit.FAILED
    return exit_of_ending(Status(status), StopReason(reason))


def _document(text: str) -> Any:
    """Parse JSON from the command line, a file, or stdin."""
    try:
        return json.loads(read_input(text.removeprefix("@")) if text == "-" or text.startswith("@") else text)
    except (ValueError, RecursionError) as error:
        raise Misused(f"The arguments are not JSON: {error}.", advice="Put the whole object between single quotes, or use @FILE.") from None


def validate(
    project: Project,
    file: Annotated[str, Argument(metavar="FILE", help="The return, as JSON or text that contains it; - reads stdin.")],
    session: Annotated[str | None, Option(metavar="ID", help="The session id that the return must have.")] = None,
) -> Exit:
    """Check a return against the return format: exit 0 or 1, one fault per line."""
    try:
        checked = check_return(read_input(file), session, project.root)
    except InvalidReturn as invalid:
        return project.answer({"valid": False, "faults": list(invalid.faults)}, "\n".join(invalid.faults), Exit.FAILED)
    for warning in checked.warnings if not project.as_json else ():
        say_aside(f"warning: {warning}")
    document = {"valid": True, "faults": [], "warnings": list(checked.warnings), "return": checked.to_dict()}
    return project.answer(document, f"valid: {checked.status}")
