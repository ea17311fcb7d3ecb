"""One run of untrusted code: its input files, its output, and how it ended, as a return."""

import codecs
import os
import signal
from collections.abc import Callable
from typing import Any

from remit.builtin.worker.workspace import act_at, build_return, error_dict
from remit.core.context import Context
from remit.core.errors import Misused
from remit.core.policy import Effect
from remit.core.text import plural
from remit.system.beneath import Place, Root
from remit.system.sandbox.boxes import Job
from remit.system.sandbox.probe import Offer
from remit.system.sandbox.recipes import MEBIBYTE, is_plain
from remit.system.sandbox.run import RunResult

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
    job: Job, ran: RunResult, offer: Offer, streams: OutputStreams, files: list[dict[str, Any]], *, is_deadline: bool
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
