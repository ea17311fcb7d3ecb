"""`coder.execute_code`: runs untrusted code in the sandbox (`remit.sandbox`)."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from remit.agents.function import agent
from remit.core.context import Context
from remit.core.errors import Misused, OutOfTime
from remit.core.languages import plain_name
from remit.system.sandbox.recipes import MEBIBYTE, MOST, Limits
from remit.system.threads import off_loop

MOST_CODE_CHARACTERS = 1_000_000
MOST_OUTPUTS = 100
DEFAULT_SECONDS = 30.0
_LEAST_SECONDS = 0.05


Language = Literal["python", "python3", "py", "javascript", "js", "node", "shell", "bash", "sh"]


def _known_name(name: object) -> object:
    """The language for any of its spellings."""
    return plain_name(name) if isinstance(name, str) else name


@agent("coder.execute_code", timeout=120, isolation="inline", effects=("execute",), acts_on={"language": "language"})
async def execute_code(
    ctx: Context,
    code: Annotated[str, Field(max_length=MOST_CODE_CHARACTERS, description="The program.")],
    language: Annotated[Language, BeforeValidator(_known_name), Field(description="Which language it is in.")] = "python",
    timeout: Annotated[float | None, Field(gt=0, description="Milliseconds that the code may run; 30000 unless given.")] = None,
    stdin: Annotated[str, Field(description="Text for its standard input.")] = "",
    files: Annotated[
        list[str] | dict[str, str] | None, Field(description="Files to take in: paths in the workspace, or names and their text.")
    ] = None,
    outputs: Annotated[
        list[str] | None, Field(max_length=MOST_OUTPUTS, description="Patterns of files to bring out; all new ones unless given.")
    ] = None,
    network: Annotated[bool, Field(description="Let it reach the network, if the policy grants it.")] = False,
    memory_mb: Annotated[int, Field(ge=16, le=MOST.memory_bytes // MEBIBYTE, description="Memory of all its processes, in MiB.")] = 512,
    disk_mb: Annotated[int, Field(ge=1, le=MOST.disk_bytes // MEBIBYTE, description="Room for its files, in MiB.")] = 256,
    processes: Annotated[int, Field(ge=1, le=MOST.processes, description="Processes and threads at a time.")] = 64,
) -> dict[str, object]:
    """Run Python, JavaScript or shell code in a sandbox: no network, no files but those taken in, limits on everything."""
    from remit.builtin.coder.execution import OutputStreams, build_execution_return, read_inputs
    from remit.system.sandbox import probe, recipes
    from remit.system.sandbox.boxes import Job
    from remit.system.sandbox.run import run

    kind = recipes.language_of(language)
    if "\0" in code:
        raise Misused("The code contains a NUL character.", advice="Send the text of a program.")
    if network:
        await ctx.permit(network=True, language=kind)
    offer = probe.required(await off_loop(probe.probe))
    inputs = await read_inputs(ctx, files)
    seconds, is_deadline = _seconds(ctx, timeout)
    job = Job(
        language=kind,
        code=code,
        stdin=stdin.encode("utf-8", "replace"),
        files=inputs,
        outputs=outputs,
        limits=Limits(seconds=seconds, memory_bytes=memory_mb * MEBIBYTE, disk_bytes=disk_mb * MEBIBYTE, processes=processes),
        network=network,
        hidden=tuple(dict.fromkeys((ctx.root, ctx.workspace))),
    )
    streams = OutputStreams(ctx.emit)
    out = ctx.scratch / "files"
    ran = await run(job, offer, hear=streams.hear, out=out)
    streams.finish()
    left = [{"name": one.name, "path": _declare(ctx, out / one.name, one.size), "sizeBytes": one.size} for one in ran.files]
    return build_execution_return(job, ran, offer, streams, left, is_deadline=is_deadline)


def _seconds(ctx: Context, timeout: float | None) -> tuple[float, bool]:
    """How long the code may run, and whether the delegation's deadline limits it: then it must report before that."""
    wanted = min(timeout / 1000 if timeout else DEFAULT_SECONDS, MOST.seconds)
    left = ctx.remaining - min(2.0, max(0.3, ctx.remaining * 0.05))
    if left < _LEAST_SECONDS:
        raise OutOfTime("There is no time left to run the code.", advice="Delegate it with a longer timeout.")
    return (wanted, False) if wanted <= left else (left, True)


def _declare(ctx: Context, path: Path, size: int) -> str:
    if size:  # an empty file proves nothing
        ctx.artifact(path, "data", "Left by the code.")
    return path.relative_to(ctx.root).as_posix() if path.is_relative_to(ctx.root) else str(path)
