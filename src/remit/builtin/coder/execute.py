"""`coder.execute_code`: runs untrusted code in the sandbox (`remit.system.sandbox`).

It is loaded to list the agents; what runs the sandbox is loaded by the first call."""

import codecs
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from remit.agents.function import agent
from remit.builtin.worker.workspace import act_at, build_return, error_dict
from remit.core.context import Context
from remit.core.errors import Misused, OutOfTime
from remit.core.languages import plain_name
from remit.core.policy import Effect
from remit.core.text import plural
from remit.system.beneath import Place, Root
from remit.system.sandbox.recipes import MEBIBYTE, MOST, Limits, is_plain, language_of
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.system.sandbox.boxes import Job
    from remit.system.sandbox.probe import Offer
    from remit.system.sandbox.run import RunResult

MOST_CODE_CHARACTERS = 1_000_000
MOST_OUTPUTS = 100
DEFAULT_SECONDS = 30.0
_LEAST_SECONDS = 0.05
MOST_FILES = 200
MOST_BYTES = 64 * MEBIBYTE
LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
_NAMES = {"python": "Python", "javascript": "JavaScript", "shell": "shell"}
_SIGNS = {
    "memory": ("MemoryError", "JavaScript heap out of memory", "Cannot allocate memory", "Array buffer allocation failed"),
    "processes": ("Resource temporarily unavailable", "can't start new thread", "EAGAIN"),
    "disk": ("No space left on device", "File too large", "ENOSPC", "EFBIG"),
}
"""Last output of a program that hit a limit: then the limit is the reason."""

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
    from remit.system.sandbox import probe
    from remit.system.sandbox.boxes import Job
    from remit.system.sandbox.run import run

    kind = language_of(language)
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


# ---- files taken in


async def read_inputs(ctx: Context, files: list[str] | dict[str, str] | None) -> dict[str, bytes]:
    """Contents by the names that they get inside."""
    if not files:
        return {}
    if len(files) > MOST_FILES:
        raise Misused(f"{len(files)} input files are too many.", advice=f"At most {MOST_FILES}; put them into an archive.")
    held: dict[str, bytes] = {}
    for name in files:
        if isinstance(files, dict):
            held[_check_name(name)] = files[name].encode("utf-8", "surrogatepass")
        else:
            await ctx.permit(path=name, effects=("execute", "read"))
            held |= await act_at(ctx, name, Effect.READ, _read)
        if sum(map(len, held.values())) > MOST_BYTES:
            raise Misused("The files to take in are too large.", advice=f"At most {MOST_BYTES // MEBIBYTE} MB together.")
    return held


def _check_name(name: str) -> str:
    plain = name.removeprefix("./")
    if not is_plain(plain):
        raise Misused(f"{name!r} cannot be the name of a file to take in.", advice="Use a path below the work folder, without .. in it.")
    return plain


def _read(root: Root, place: Place) -> dict[str, bytes]:
    with os.fdopen(place.open_file(), "rb") as file:
        content = file.read(MOST_BYTES + 1)
    return {_check_name(place.path): content}


# ---- output


class OutputStreams:
    """The output of the code as text: streamed while it runs, and kept. The sandbox bounds it."""

    def __init__(self, emit: Callable[[Any], None]) -> None:
        self._emit = emit
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": decoder("replace"), "stderr": decoder("replace")}  # a character may be cut in two
        self._texts: dict[str, list[str]] = {"stdout": [], "stderr": []}

    def hear(self, stream: str, data: bytes) -> None:
        self._keep(stream, self._decoders[stream].decode(data))

    def finish(self) -> None:
        for stream, decoder in self._decoders.items():
            self._keep(stream, decoder.decode(b"", final=True))

    def text(self, stream: str) -> str:
        return "".join(self._texts[stream])

    def _keep(self, stream: str, text: str) -> None:
        if text:
            self._texts[stream].append(text)
            self._emit({"stream": stream, "text": text})


# ---- how it ended


_ENDED = {
    "time": ("it may run for {0.seconds:g} s", ""),
    "memory": ("all its processes may use {0.memory_bytes:,} bytes of memory", "Give it more in memory_mb, or have the code use less."),
    "processes": ("it may have {0.processes} processes", "Give it more in processes, or have the code start fewer."),
    "output": ("{0.output_bytes:,} bytes of its output are kept", "Have the code write to a file, which is brought out whole."),
    "disk": (
        "its files may use {0.disk_bytes:,} bytes, and be {0.files:,} in number", "Give it more in disk_mb, or have the code write less.",
    ),
}  # fmt: skip
"""What each limit allows, and what to do about it."""


def build_execution_return(
    job: "Job", ran: "RunResult", offer: "Offer", streams: OutputStreams, files: list[dict[str, Any]], *, is_deadline: bool
) -> dict[str, Any]:
    """`is_deadline`: whether the time limit was the rest of the delegation's time."""
    limits, stderr = job.limits, streams.text("stderr")
    tail = stderr[-2000:] if ran.exit_code != 0 else ""
    seen = {name for name, signs in _SIGNS.items() if any(sign in tail for sign in signs)}
    hits = sorted({*ran.hits, *seen, *(["output"] if ran.is_cut else []), *([ran.killed_by] if ran.killed_by else [])})
    how = f"ended with exit code {ran.exit_code}"
    if ran.killed_by:
        how = f"was ended: {_ENDED[ran.killed_by][0].format(limits)}"
    elif ran.signal:
        how = f"was ended by {_signal(ran.signal)}"
    summary = f"The {_NAMES[job.language]} code {how}. It took {ran.milliseconds / 1000:,.2f} s and left {plural(len(files), 'file')}."
    status, errors = "completed", []
    if ran.killed_by == "time":
        advice = "Give the delegation a longer timeout." if is_deadline else "Give it more milliseconds in timeout, or less to do."
        status, errors = "partial", [error_dict("timeout", "TIMEOUT", summary, advice)]
    elif ran.killed_by or ran.exit_code != 0:
        hit = ran.killed_by or next((one for one in hits if one != "output"), "")
        last = "" if ran.killed_by else stderr.strip().rpartition("\n")[2][:300]
        advice = "Read stderr in the data, fix the code and run it again." + ("" if job.network else " The sandbox has no network.")
        message = f"{summary} {f'It ran into the limit of {hit}. ' if hit and not ran.killed_by else ''}{last}".rstrip()
        code, advice = (LIMIT_EXCEEDED, _ENDED[hit][1]) if hit else ("BUILD_ERROR", advice)
        status, errors = "failed", [error_dict("execution", code, message, advice)]
    data = {
        "language": job.language,
        "exitCode": ran.exit_code,
        "signal": _signal(ran.signal) if ran.signal else None,
        "stdout": streams.text("stdout"),
        "stderr": stderr,
        "truncated": ran.is_cut,
        "durationMs": ran.milliseconds,
        "timedOut": ran.killed_by == "time",
        "killedBy": ran.killed_by or None,
        "limitsHit": hits,
        "peakMemoryBytes": ran.peak_bytes or None,  # a run too short to be measured
        "files": files,
        "filesNotBroughtOut": ran.left_there,
        "sandbox": {
            "stack": offer.stack,
            "network": job.network,
            "limits": {
                "timeoutMs": int(limits.seconds * 1000),
                "memoryBytes": limits.memory_bytes,
                "processes": limits.processes,
                "outputBytes": limits.output_bytes,
                "diskBytes": limits.disk_bytes,
            },
        },
    }
    return build_return(summary, data, status=status, errors=errors)


def _signal(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
