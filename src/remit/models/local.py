"""`LocalModels`: models that run on this machine, each in a process of its own, started when it is first asked and shared by all who ask.

Knows processes and files, no conversation: `asking` speaks to the address it gives like to any other server. The process can be neither
orphaned (see `local_server`) nor reached by others than those who have the key, which is made anew for each and never leaves memory.
"""

import asyncio
import contextlib
import importlib.util
import json
import os
import secrets
import sys
from collections import deque
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from remit.core.errors import Unavailable
from remit.core.secret_looks import is_secret_name
from remit.models.known import PROVIDERS
from remit.models.local_files import Weights, find
from remit.models.question import Purse
from remit.settings import Settings
from remit.settings.values import ModelAddress
from remit.system.prctl import padded
from remit.system.processes import MARK
from remit.system.threads import off_loop

INSTALL = "pip install 'remit[local]'"
MOST_THREADS = 8
_END_SECONDS = 5.0
_TAIL_LINES = 20
_KEYS = frozenset(name for known in PROVIDERS.values() for name in known.keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a local model answers."""

    url: str
    """Of OpenAI's protocol, with `/v1`."""
    key: str = field(repr=False)
    context_tokens: int
    tools: Literal["native", "prompted"]
    """How it calls tools; prompted where its template knows none."""


class LocalModels:
    def __init__(self, settings: Settings | None = None, root: Path | None = None, *, mark: str = "") -> None:
        """`root`: of the project, for paths; `mark`: by which its processes are found if we die and the kernel does not end them."""
        self._declared = {name: one for name, one in (settings or Settings()).models.items() if one.kind == "local"}
        self._root = root or Path.cwd()
        self._mark = mark
        self._keys = frozenset(one.key_variable for one in (settings or Settings()).models.values() if one.key_variable)
        self._running: dict[tuple[Path, int], _Running] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        """On which the processes are waited for; whoever asks on another one has it done there."""
        self._is_closed = False

    async def address(self, model: str, purse: Purse) -> Address:
        """Of `model`: NAME of `[models.NAME]`, a file, or the name of one that was added. Loads it where it does not run.

        Raises `Unavailable`: TOOL_UNAVAILABLE where a person must do something, AGENT_UNAVAILABLE where it did not come up in time.
        """
        home = self._home()
        if home is not asyncio.get_running_loop():
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.address(model, purse), home))
        declared = self._meant(model)
        weights = await off_loop(find, declared.model or model, self._root)
        must_be_installed()
        context_tokens = weights.context_tokens(declared.context_tokens)
        running = self._of((weights.file, context_tokens), weights)
        if not running.is_up:
            purse.progress(f"Loading the local model {weights.name} …")
        url = await running.wait(purse.remaining)
        tools = declared.tools or ("native" if weights.head.calls_tools else "prompted")
        return Address(url=f"{url}/v1", key=running.key, context_tokens=context_tokens, tools=tools)

    async def close(self) -> None:
        """End them all, at once: they keep nothing."""
        self._is_closed = True
        if self._loop is None or self._loop is not asyncio.get_running_loop():
            for one in self._running.values():
                one.kill()
            return
        running, self._running = list(self._running.values()), {}
        await asyncio.gather(*(one.end() for one in running))

    def _home(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or not self._loop.is_running():  # processes of a loop that is gone ended with it: nobody holds their input
            self._loop = asyncio.get_running_loop()
            self._running.clear()
        return self._loop

    def _meant(self, model: str) -> ModelAddress:
        if model in self._declared:
            return self._declared[model]
        return next((one for one in self._declared.values() if one.model == model), ModelAddress(kind="local", model=model))

    def _of(self, which: tuple[Path, int], weights: Weights) -> "_Running":
        if self._is_closed:
            raise Unavailable("The local models of this project are closed.", code="TOOL_UNAVAILABLE", advice="Open the project again.")
        running = self._running.get(which)
        if running is None or running.has_ended:
            running = self._running[which] = _Running(weights, which[1], environment_for(self._mark, self._keys))
        return running


def must_be_installed() -> None:
    """Raises `Unavailable` with the line to type."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise Unavailable("Running a local model needs the package xllamacpp.", code="TOOL_UNAVAILABLE", advice=f"{INSTALL}.")


class _Running:
    """One process, from its start to its end; whoever needs it waits for the same start."""

    def __init__(self, weights: Weights, context_tokens: int, environment: Mapping[str, str]) -> None:
        self.key = secrets.token_urlsafe(32)
        self._weights = weights
        self._context_tokens = context_tokens
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._listening: asyncio.Task[None] | None = None
        self._start = asyncio.create_task(self._started())
        self._start.add_done_callback(_look_at_error)  # everybody may have stopped waiting

    @property
    def is_up(self) -> bool:
        return self._start.done() and not self.has_ended

    @property
    def has_ended(self) -> bool:
        if self._process is not None and self._process.returncode is not None:
            return True
        return self._start.done() and (self._start.cancelled() or self._start.exception() is not None)

    async def wait(self, seconds: float) -> str:
        """Its address. Whoever stops waiting does not stop its loading: the next one finds it further."""
        done, _ = await asyncio.wait([self._start], timeout=max(0.0, seconds))
        if not done:
            raise Unavailable(
                f"The local model {self._weights.name} was not loaded within the {seconds:.0f} s there were.",
                advice="It goes on loading while this project is open; give it more time, or take a smaller one.",
            )
        return self._start.result()

    async def end(self) -> None:
        self._start.cancel()
        await asyncio.wait([self._start], timeout=_END_SECONDS)
        self.kill()
        process = self._process
        if process is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _END_SECONDS)
        if self._listening is not None:
            self._listening.cancel()

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _started(self) -> str:
        process = self._process = await asyncio.create_subprocess_exec(
            # Without the current folder on its path: a project may hold a file of any name.
            sys.executable, "-P", "-m", "remit.models.local_server",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True, env=self._environment,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        self._listening = asyncio.create_task(self._listen())
        try:
            process.stdin.write((json.dumps(self._order()) + "\n").encode())
            answer = await process.stdout.readline()
        except ConnectionError:
            answer = b""
        said = _read(answer)
        if "url" not in said:
            await self._failed(process, said)
        return str(said["url"])

    async def _failed(self, process: asyncio.subprocess.Process, said: Mapping[str, Any]) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _END_SECONDS)
        self.kill()
        if said.get("missing"):
            raise Unavailable(str(said["error"]), code="TOOL_UNAVAILABLE", advice=f"{INSTALL}.")
        why = next((line for line in self._tail if "error" in line), str(said.get("error") or f"its process ended ({process.returncode})"))
        raise Unavailable(
            f"The local model {self._weights.name} could not be loaded: {_plain(why)}",
            code="TOOL_UNAVAILABLE",
            advice=f"See that {self._weights.file} is whole and that there is memory for it, or take another one.",
        )

    def _order(self) -> dict[str, Any]:
        return {
            "parent": os.getpid(),
            "file": str(self._weights.file),
            "key": self.key,
            "context_tokens": self._context_tokens,
            "reply_tokens": min(self._context_tokens, max(256, self._context_tokens // 4)),
            "threads": threads(),
        }

    async def _listen(self) -> None:
        """Its log is read, so that it never waits for us; the last of it tells why it failed."""
        assert self._process is not None
        assert self._process.stderr is not None
        while line := await self._process.stderr.read(4096):
            self._tail.extend(line.decode(errors="replace").splitlines())


def threads() -> int:
    """As many as there are processors for us but one, bounded. Where others work too, one more would make it slower: all wait for the
    thread that waits for its turn."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:
        count = os.cpu_count() or 1
    return max(1, min(MOST_THREADS, count - 1))


def environment_for(mark: str, keys: Set[str]) -> dict[str, str]:
    """Ours without anybody's key: it asks nobody."""
    kept = {name: value for name, value in os.environ.items() if name not in _KEYS | keys and not is_secret_name(name)}
    return {**kept, **({MARK: padded(mark)} if mark else {})}


def _read(answer: bytes) -> dict[str, Any]:
    try:
        said = json.loads(answer)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _plain(line: str) -> str:
    """A line of the server's log without its clock, letter and module."""
    return line.rpartition("error loading model: ")[2].strip()[:300]


def _look_at_error(task: "asyncio.Task[str]") -> None:
    if not task.cancelled():
        task.exception()
