"""Local models: a GGUF file, loaded by llama.cpp in its own process on loopback, behind a random key.

The first question starts the process; all share it, and it ends with the project (`local_server`). Everything else treats it like any
OpenAI-compatible server. A model that already runs elsewhere does not need this: name its address in `[models.NAME]`."""

import asyncio
import contextlib
import importlib.util
import json
import os
import secrets
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remit.core.errors import Unavailable
from remit.core.model_messages import SpendSink
from remit.system.interpreter import BASIC, TOOLCHAINS, listed_environment
from remit.system.threads import off_loop

DEFAULT_CONTEXT_TOKENS = 8192
"""Default context size; llama.cpp lowers it to the model's own."""
_ACCELERATORS = ("CUDA_*", "NVIDIA_*", "HIP_*", "ROCR_*", "HSA_*", "VK_*", "GGML_*", "LLAMA_*", "OMP_*", "OPENBLAS_*", "MKL_*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address of a model; of a local one known once it runs."""

    url: str | None
    key: str | None = field(repr=False)
    context_tokens: int | None = None
    calls_tools: bool = True
    """False: its chat template has no tools."""


def find_weights(model: str, root: Path) -> Path:
    """The GGUF file at the path `model`, relative to the project. Raises `Unavailable` (TOOL_UNAVAILABLE) with advice."""
    path, fault = root / Path(model).expanduser(), ""
    try:
        if not path.is_file():
            fault = "does not exist"
        elif path.open("rb").read(4) != b"GGUF":
            fault = "is not a GGUF file"
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    if fault:
        advice = 'Download a GGUF file, and write model = "local:/path/to/file.gguf" in remit.toml.'
        raise Unavailable(f"The local model {path} {fault}.", code="TOOL_UNAVAILABLE", advice=advice)
    return path


class LocalModels:
    """The local models of the project at `root`. They belong to the event loop that first uses them."""

    def __init__(self, root: Path | None) -> None:
        self._root = root or Path.cwd()
        self._servers: dict[tuple[Path, int], _Server] = {}

    async def address(self, model: str, context_tokens: int | None, sink: SpendSink) -> Endpoint:
        """The address of the model in the file `model`, which is started if it does not run.

        Raises `Unavailable`: TOOL_UNAVAILABLE if a person must fix something, AGENT_UNAVAILABLE if it did not load in time."""
        path = await off_loop(find_weights, model, self._root)
        if importlib.util.find_spec("xllamacpp") is None:
            message = "Running a local model needs the package xllamacpp."
            raise Unavailable(message, code="TOOL_UNAVAILABLE", advice="pip install 'remit[local]'.")
        key = path, context_tokens or DEFAULT_CONTEXT_TOKENS
        server = self._servers.get(key)
        if server is None or server.has_ended:
            server = self._servers[key] = _Server(*key)
            sink.progress(f"Loading the local model {path.stem} …")
        done, _ = await asyncio.wait([server.loading], timeout=max(0.0, sink.remaining))
        if not done:
            advice = "It continues to load while this project is open: give it more time, or use a smaller model."
            raise Unavailable(f"The local model {path.stem} was not loaded within {sink.remaining:.0f} s.", advice=advice)
        facts = server.loading.result()
        return Endpoint(
            url=f"{facts['url']}/v1", key=server.key, context_tokens=facts["context_tokens"], calls_tools=facts["has_tools"]
        )  # fmt: skip

    async def close(self) -> None:
        """End all processes."""
        while self._servers:
            await self._servers.popitem()[1].stop()


class _Server:
    """One server process, from start to end. All callers wait for the same start, which goes on without them."""

    def __init__(self, path: Path, context_tokens: int) -> None:
        self.key = secrets.token_urlsafe(32)
        self._path = path
        self._order = {"parent": os.getpid(), "file": str(path.resolve()), "key": self.key, "context_tokens": context_tokens}
        self._process: asyncio.subprocess.Process | None = None
        self.loading: asyncio.Task[dict[str, Any]] = asyncio.create_task(self._load())
        """The report of the loaded process."""
        self.loading.add_done_callback(lambda one: one.cancelled() or one.exception())  # no caller may be left to receive the error

    @property
    def has_ended(self) -> bool:
        return self.loading.done() and (self._process is None or self._process.returncode is not None)

    async def stop(self) -> None:
        self.loading.cancel()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def _load(self) -> dict[str, Any]:
        with tempfile.TemporaryFile() as log:
            self._process = process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-m", "remit.models.local_server",
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True, cwd="/",
                env=listed_environment((*BASIC, *TOOLCHAINS, *_ACCELERATORS)),
            )  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(self._order).encode() + b"\n")
            answer: Any = {}
            with contextlib.suppress(OSError, ValueError):
                answer = json.loads(await process.stdout.readline())
            if "url" in answer:
                return dict(answer)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            log.seek(0)
            lines = log.read(1 << 20).decode(errors="replace").splitlines()
        error = str(answer.get("error") or f"its process ended with code {process.returncode}")
        reason = next((line.rpartition("error loading model: ")[2] for line in lines if "error" in line), error)
        advice = f"Check that {self._path} is complete and fits into memory, or use another model."
        message = f"The local model {self._path.stem} could not be loaded: {reason.strip()[:300]}"
        raise Unavailable(message, code="TOOL_UNAVAILABLE", advice=advice)
