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
from remit.core.settings import ModelAddress, Settings
from remit.system.interpreter import BASIC, TOOLCHAINS, listed_environment
from remit.system.threads import off_loop

INSTALL = "pip install 'remit[local]'"
DEFAULT_CONTEXT_TOKENS = 8192
"""Default context size; llama.cpp lowers it to the model's own."""
_ACCELERATORS = ("CUDA_*", "NVIDIA_*", "HIP_*", "ROCR_*", "HSA_*", "VK_*", "GGML_*", "LLAMA_*", "OMP_*", "OPENBLAS_*", "MKL_*")
_ADVICE = 'Download a GGUF file, and write model = "local:/path/to/file.gguf" in remit.toml.'


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address of a model; of a local one known once it runs."""

    url: str | None
    key: str | None = field(repr=False)
    context_tokens: int | None = None
    calls_tools: bool = True
    """False: its chat template has no tools."""


def find_weights(model: str, root: Path) -> Path:
    """The GGUF file of `model`, relative to the project; a bare name is a file in `$XDG_DATA_HOME/remit/models`.

    Raises `Unavailable` (TOOL_UNAVAILABLE) with advice."""
    data = os.environ.get("XDG_DATA_HOME", "")
    folder = (Path(data) if os.path.isabs(data) else Path.home() / ".local" / "share") / "remit" / "models"
    is_path = "/" in model or model.startswith("~") or model.lower().endswith(".gguf")
    path = root / Path(model).expanduser() if is_path else folder / f"{model}.gguf"
    try:
        if not path.is_file():
            raise Unavailable(f"The local model {model!r} does not exist: no file {path}.", code="TOOL_UNAVAILABLE", advice=_ADVICE)
        with path.open("rb") as file:
            is_gguf = file.read(4) == b"GGUF"
    except OSError as error:
        raise Unavailable(f"Cannot read {path}: {error.strerror}.", code="TOOL_UNAVAILABLE", advice="Check its permissions.") from None
    if not is_gguf:
        raise Unavailable(f"{path} is not a GGUF file.", code="TOOL_UNAVAILABLE", advice=_ADVICE)
    return path


class LocalModels:
    """The local models of one project. They belong to the event loop that first uses them."""

    def __init__(self, settings: Settings | None = None, root: Path | None = None) -> None:
        settings = settings or Settings()
        self._declared = {name: one for name, one in settings.models.items() if one.kind == "local"}
        self._root = root or Path.cwd()
        self._servers: dict[tuple[Path, int], _Server] = {}
        self._is_closed = False

    async def address(self, model: str, sink: SpendSink) -> Endpoint:
        """Address of `model`: NAME of `[models.NAME]`, a file, or a file's name in the models folder. Starts it if it does not run.

        Raises `Unavailable`: TOOL_UNAVAILABLE if a person must fix something, AGENT_UNAVAILABLE if it did not load in time.
        """
        found = (one for name, one in self._declared.items() if model in (name, one.model))
        declared = next(found, ModelAddress(kind="local", model=model))
        path = await off_loop(find_weights, declared.model or model, self._root)
        if importlib.util.find_spec("xllamacpp") is None:
            raise Unavailable("Running a local model needs the package xllamacpp.", code="TOOL_UNAVAILABLE", advice=f"{INSTALL}.")
        if self._is_closed:
            raise Unavailable("The local models of this project are closed.", code="TOOL_UNAVAILABLE", advice="Open the project again.")
        key = path, declared.context_tokens or DEFAULT_CONTEXT_TOKENS
        server = self._servers.get(key)
        if server is None or server.has_ended:
            server = self._servers[key] = _Server(*key)
            sink.progress(f"Loading the local model {path.stem} …")
        done, _ = await asyncio.wait([server.loading], timeout=max(0.0, sink.remaining))
        if not done:
            raise Unavailable(
                f"The local model {path.stem} was not loaded within {sink.remaining:.0f} s.",
                advice="It continues to load while this project is open: give it more time, or use a smaller model.",
            )
        facts = server.loading.result()
        calls_tools = facts["has_tools"] if declared.tools is None else declared.tools == "native"
        tokens = int(facts["context_tokens"])
        return Endpoint(url=f"{facts['url']}/v1", key=server.key, context_tokens=tokens, calls_tools=calls_tools)

    async def close(self) -> None:
        """End all processes."""
        self._is_closed = True
        servers, self._servers = list(self._servers.values()), {}
        for one in servers:
            await one.stop()


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
        raise Unavailable(
            f"The local model {self._path.stem} could not be loaded: {reason.strip()[:300]}",
            code="TOOL_UNAVAILABLE",
            advice=f"Check that {self._path} is complete and fits into memory, or use another model.",
        )
