"""Connections to models: pydantic-ai's objects, created on first use, each with remit's own HTTP client.

Retries of the providers' clients are off (`client` fails over itself), redirects are not followed (a key would be sent along), proxies come
from the environment. A connection belongs to its event loop. Used by `client`."""

import asyncio
import importlib
import inspect
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.core.errors import Unavailable
from remit.core.model_messages import SpendSink
from remit.core.redaction import REDACTED, SecretValues, redact_text, register_secrets
from remit.core.settings import Settings
from remit.models.local import Endpoint, LocalModels
from remit.models.providers import INSTALL, LOCAL, PROVIDERS, ModelRef
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from httpx2 import AsyncClient
    from pydantic_ai.models import Model


CONNECT_SECONDS = 10.0
_NO_KEY = "no-key"
"""Sent to a server without authentication; its client requires a key."""
_CLOSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    meant: ModelRef
    model: "Model[Any]"
    url: str
    """Its URL, for messages."""
    is_ours: bool
    """Whether it uses remit's HTTP client, which sees every byte; otherwise only whole events are seen."""
    idle_seconds: float
    calls_tools: bool = True
    key: str | None = field(default=None, repr=False)
    held: SecretValues | None = field(default=None, repr=False)
    """Keeps its key redacted from everything stored."""


class Connections:
    """The connections of one project. They belong to the event loop that first uses them."""

    def __init__(self, settings: Settings, root: Path | None = None) -> None:
        self._idle_seconds = settings.model_idle_seconds
        self._lock = asyncio.Lock()
        self._client: AsyncClient | None = None
        self._open: dict[tuple[ModelRef, Endpoint], Connection] = {}
        self._local = LocalModels(root)
        self._is_closed = False

    async def to(self, model: ModelRef, sink: SpendSink) -> Connection:
        """Raises `Unavailable` (TOOL_UNAVAILABLE) if a key, a package or a setting is missing."""
        if model.lacks:
            raise Unavailable(model.lacks, code="TOOL_UNAVAILABLE", advice=f"Set {model.key_variables[0]}, and try again.")
        endpoint = Endpoint(url=model.url, key=model.key)
        if model.provider == LOCAL:
            endpoint = await self._local.address(model.model, model.context_tokens, sink)
        async with self._lock:
            known = self._open.get((model, endpoint))
            if known is None:
                # Importing the libraries takes a second or two, so it happens on a thread.
                known = self._open[model, endpoint] = await off_loop(self._connect, model, endpoint)
            if self._is_closed:
                await self.close()
                raise Unavailable("The models of this project are closed.", advice="Open the project again.")
        return known

    async def close(self) -> None:
        self._is_closed = True
        self._open.clear()
        await self._local.close()
        client, self._client = self._client, None
        if client is not None:
            with suppress(RuntimeError, OSError, TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await client.aclose()

    def _connect(self, meant: ModelRef, endpoint: Endpoint) -> Connection:
        key = endpoint.key
        try:
            importlib.import_module("remit.models.stream")
            self._client = self._client or _client(self._idle_seconds)
            model, is_ours = _model(meant, endpoint, self._client)
        except ImportError as error:
            raise missing(meant, error) from None
        except Exception as error:  # noqa: BLE001 - a provider's client may raise anything when it is created
            text = str(error).partition(" To try Pydantic AI")[0]
            words = f"{meant.name} cannot be reached as configured: {redact_text(text.replace(key, REDACTED) if key else text)}"
            raise Unavailable(words, code="TOOL_UNAVAILABLE", advice=f"See docs/reference/models.md for {meant.name}.") from None
        url = endpoint.url or ""
        with suppress(AttributeError, RuntimeError):
            url = str(model.base_url or "") or url
        held = register_secrets({"api_key": key}) if key else None
        return Connection(
            meant=meant, model=model, url=url, is_ours=is_ours, idle_seconds=self._idle_seconds, calls_tools=endpoint.calls_tools, key=key,
            held=held,
        )  # fmt: skip


def missing(meant: ModelRef, error: ImportError | None = None) -> Unavailable:
    known = PROVIDERS.get(meant.provider)
    command = f"pip install 'pydantic-ai-slim[{known.extra}]'" if known is not None and known.extra else INSTALL
    what = f" ({error.name})" if error is not None and error.name else ""
    return Unavailable(f"{meant.name} needs a package that is not installed{what}.", code="TOOL_UNAVAILABLE", advice=f"Run {command}.")


def _client(idle_seconds: float) -> "AsyncClient":
    import httpx2

    from remit.system.http import PLAIN, bound_by

    timeout = httpx2.Timeout(connect=min(CONNECT_SECONDS, idle_seconds), read=idle_seconds, write=idle_seconds, pool=CONNECT_SECONDS)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=30)
    past_proxies = {f"all://{host}": None for host in ("localhost", "127.0.0.1", "[::1]")}  # a local server is not behind a proxy
    hooks = {"response": [bound_by(httpx2.AsyncByteStream)]}
    return httpx2.AsyncClient(timeout=timeout, limits=limits, follow_redirects=False, mounts=past_proxies, headers=PLAIN, event_hooks=hooks)


def _model(meant: ModelRef, endpoint: Endpoint, client: "AsyncClient") -> "tuple[Model[Any], bool]":
    from pydantic_ai.models import infer_model

    provider = "openai-chat" if meant.provider == LOCAL else meant.provider
    ours = False

    def made(name: str) -> Any:
        nonlocal ours
        built, ours = _provider(name, endpoint.url, endpoint.key, client)
        return built

    return infer_model(f"{provider}:{meant.model}", provider_factory=made), ours


def _provider(name: str, url: str | None, key: str | None, client: "AsyncClient") -> tuple[Any, bool]:
    """pydantic-ai's provider, with the options it accepts."""
    from pydantic_ai.providers import infer_provider_class

    kind = infer_provider_class(name)
    takes = inspect.signature(kind.__init__).parameters
    given: dict[str, Any] = {"base_url": url, "api_base": url, "azure_endpoint": url, "http_client": client}
    if PROVIDERS[name].keys:  # otherwise it finds its own credentials; like Azure without a key
        given["api_key"] = key or (None if name.startswith("azure") else _NO_KEY)
    arguments = {word: value for word, value in given.items() if word in takes and value is not None}
    return kind(**arguments), "http_client" in arguments
