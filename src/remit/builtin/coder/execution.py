"""One run of untrusted code: its input files, its output, and how it ended, as a return."""

import codecs
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from remit.builtin.worker.workspace import act_at, build_return, error_dict, format_size
from remit.core.context import Context
from remit.core.errors import Misused
from remit.core.policy import Effect
from remit.core.text import plural
from remit.system.beneath import Place, Root
from remit.system.sandbox.boxes import Job
from remit.system.sandbox.probe import Offer
from remit.system.sandbox.recipes import MEBIBYTE
from remit.system.sandbox.run import RunResult
from remit.system.sandbox.wire import LeftFile, is_plain

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionResult:
    job: Job
    ran: RunResult
    offer: Offer
    stdout: str
    stderr: str
    is_deadline: bool
    """Whether its time limit was the rest of the delegation's time."""

    @property
    def hits(self) -> list[str]:
        ended = self.ran.ended
        tail = self.stderr[-2000:] if ended.exit_code != 0 else ""
        seen = [name for name, signs in _SIGNS.items() if any(sign in tail for sign in signs)]
        cut = ["output"] if self.ran.is_cut else []
        return sorted({*ended.hits, *seen, *cut, *([ended.killed_by] if ended.killed_by else [])})

    def as_return(self, declare: Callable[[LeftFile], str]) -> dict[str, Any]:
        ended = self.ran.ended
        files = [{"name": left.name, "path": declare(left), "sizeBytes": left.size} for left in ended.files]
        status, errors = self._verdict()
        summary = f"{self._describe_end()} {self._describe_output(len(files))}"
        notes = [
            f"Files: {', '.join(left.name for left in ended.files[:5])}." if ended.files else "",
            f"{plural(ended.left_there, 'file')} stayed in the sandbox." if ended.left_there else "",
        ]
        return build_return(summary, self._data(files), *filter(None, notes), status=status, errors=errors)

    def _verdict(self) -> tuple[str, list[dict[str, Any]]]:
        ended = self.ran.ended
        if ended.killed_by == "time":
            advice = "Give the delegation a longer timeout." if self.is_deadline else "Give it more milliseconds in timeout, or less to do."
            return "partial", [error_dict("timeout", "TIMEOUT", self._describe_end(), advice)]
        if ended.killed_by:
            return "failed", [error_dict("execution", LIMIT_EXCEEDED, self._describe_end(), _MORE[ended.killed_by])]
        if ended.exit_code == 0:
            return "completed", []
        hits = [hit for hit in self.hits if hit != "output"]
        message = self._describe_end() + (f" It ran into the limit of {hits[0]}." if hits else "")
        last = self.stderr.strip().rpartition("\n")[2][:300]
        advice = _MORE[hits[0]] if hits else "Read stderr in the data, fix the code and run it again."
        advice += "" if hits or self.job.network else " The sandbox has no network."
        return "failed", [error_dict("execution", LIMIT_EXCEEDED if hits else "BUILD_ERROR", f"{message} {last}".rstrip(), advice)]

    def _describe_end(self) -> str:
        ended, name = self.ran.ended, _NAMES[self.job.language]
        took = f"{ended.milliseconds / 1000:,.2f} s"
        if ended.killed_by:
            return f"The {name} code was ended after {took}: {self._describe_limit(ended.killed_by)}."
        if ended.signal:
            return f"The {name} code was ended by {_signal(ended.signal)} after {took}."
        return f"The {name} code ended with exit code {ended.exit_code} after {took}."

    def _describe_limit(self, limit: str) -> str:
        limits = self.job.limits
        return {
            "time": f"it may run for {limits.seconds:g} s",
            "memory": f"all its processes may use {limits.memory_bytes // MEBIBYTE} MB of memory together",
            "processes": f"it may have {limits.processes} processes",
            "output": f"it wrote without end, and {format_size(limits.output_bytes)} are kept",
            "disk": f"its files may use {limits.disk_bytes // MEBIBYTE} MB, and be {limits.files:,} in number",
        }[limit]

    def _describe_output(self, files: int) -> str:
        streams = [
            f"{plural(len(text), 'character')} to {name}" for name, text in (("stdout", self.stdout), ("stderr", self.stderr)) if text
        ]
        written = f"It wrote {' and '.join(streams)}" if streams else "It wrote nothing"
        cut = ", more than is kept" if self.ran.is_cut else ""
        return f"{written}{cut}, and left {plural(files, 'file') if files else 'no files'}."

    def _data(self, files: list[dict[str, Any]]) -> dict[str, Any]:
        ended, limits = self.ran.ended, self.job.limits
        return {
            "language": self.job.language,
            "exitCode": ended.exit_code,
            "signal": _signal(ended.signal) if ended.signal else None,
            "stdout": self.stdout,
            "stderr": self.stderr,
            "truncated": self.ran.is_cut,
            "durationMs": ended.milliseconds,
            "timedOut": ended.killed_by == "time",
            "killedBy": ended.killed_by or None,
            "limitsHit": self.hits,
            "peakMemoryBytes": ended.peak_bytes or None,  # a run too short to be measured
            "files": files,
            "filesNotBroughtOut": ended.left_there,
            "sandbox": {
                "stack": self.offer.stack,
                "bubblewrap": self.offer.has_bubblewrap,
                "landlock": self.offer.landlock,
                "seccomp": self.offer.seccomp,
                "network": self.job.network,
                "limits": {
                    "timeoutMs": int(limits.seconds * 1000),
                    "memoryBytes": limits.memory_bytes,
                    "processes": limits.processes,
                    "outputBytes": limits.output_bytes,
                    "diskBytes": limits.disk_bytes,
                },
            },
        }


_MORE = {
    "memory": "Give it more in memory_mb, or have the code use less.",
    "processes": "Give it more in processes, or have the code start fewer.",
    "output": "Have the code write to a file, which is brought out whole.",
    "disk": "Give it more in disk_mb, or have the code write less.",
}


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
