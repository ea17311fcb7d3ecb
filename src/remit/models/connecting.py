"""Connections to models: pydantic-ai's objects, made when a model is first asked, each with one HTTP client of ours.

Retries of the providers' clients are off (`asking` fails over itself), redirects are not followed (a key would go along), proxies are
those of the environment. A connection belongs to the event loop it was made on. Used by `asking`.
"""

import asyncio
import inspect
import weakref
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from remit.core.errors import Unavailable
from remit.core.secrets import Held, hold_secrets
from remit.models.known import PROVIDERS
from remit.models.naming import INSTALL, LOCAL, Meant
from remit.models.question import Purse

if TYPE_CHECKING:
    from httpx2 import AsyncClient
    from pydantic_ai.models import Model

CONNECT_SECONDS = 10.0
LOCAL_PATIENCE = 5
"""A model on this machine reads a long prompt in silence: it may be silent so many times longer than another."""
_NO_KEY = "no-key"
"""What a server that wants none is sent; its client insists on one."""
_CLOSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    meant: Meant
    model: "Model[Any]"
    url: str
    """Where it answers, for messages."""
    is_ours: bool
    """Whether it goes through our HTTP client, which hears every byte; else only whole events are heard."""
    idle_seconds: float
    held: Held | None = field(default=None, repr=False)
    """Its key is struck out of all that is written down, as long as this lives."""


class Address(Protocol):
    """Where a model of this machine answers."""

    @property
    def url(self) -> str: ...
    @property
    def key(self) -> str: ...


class LocalOnes(Protocol):
    """Models of this machine: `models.local.LocalModels`."""

    async def address(self, model: str, purse: Purse) -> Address: ...
    async def close(self) -> None: ...


@dataclass(slots=True)
class _OnLoop:
    """What belongs to one event loop."""

    clients: "dict[float, AsyncClient]" = field(default_factory=dict)
    made: dict[tuple[Meant, str | None, str | None], Connection] = field(default_factory=dict)


class Connections:
    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _OnLoop] = weakref.WeakKeyDictionary()
        self._local: LocalOnes | None = None

    async def to(self, meant: Meant, purse: Purse) -> Connection:
        """Raises `Unavailable` (TOOL_UNAVAILABLE): a key, a package or a setting is missing, said in words."""
        if meant.lacks:
            raise Unavailable(meant.lacks, code="TOOL_UNAVAILABLE", advice=f"Set {meant.key_variables[0]}, and try again.")
        loop = asyncio.get_running_loop()
        here = self._loops.setdefault(loop, _OnLoop())
        url, key = meant.url, meant.key
        if meant.provider == LOCAL:
            address = await self._at_local(meant, purse)
            url, key = address.url, address.key
        known = here.made.get((meant, url, key))
        if known is None:
            # The library takes most of a second to import: not on the event loop, where others would stand still.
            await asyncio.to_thread(_imported, meant)
            known = here.made[meant, url, key] = self._made(here, meant, url, key)
        return known

    async def close(self) -> None:
        """Of this loop and of others that still run; those of loops that are gone went with them."""
        running = asyncio.get_running_loop()
        for loop, there in list(self._loops.items()):
            for client in there.clients.values():
                with suppress(RuntimeError, OSError, TimeoutError):
                    if loop is running:
                        async with asyncio.timeout(_CLOSE_SECONDS):
                            await client.aclose()
                    elif loop.is_running():
                        asyncio.run_coroutine_threadsafe(client.aclose(), loop)
        self._loops.clear()
        local, self._local = self._local, None
        if local is not None:
            await local.close()

    async def _at_local(self, meant: Meant, purse: Purse) -> Address:
        if self._local is None:
            from remit.models.local import LocalModels

            self._local = LocalModels()
        return await self._local.address(meant.model, purse)

    def _made(self, here: _OnLoop, meant: Meant, url: str | None, key: str | None) -> Connection:
        from pydantic_ai.exceptions import UserError

        idle = self._idle_seconds * (LOCAL_PATIENCE if meant.provider == LOCAL else 1)
        client = here.clients.get(idle)
        if client is None:
            client = here.clients[idle] = _client(idle)
        try:
            model, is_ours = _model(meant, url, key, client)
        except UserError as error:
            raise Unavailable(
                _plain(str(error), key), code="TOOL_UNAVAILABLE", advice=f"See docs/reference/models.md for {meant.name}."
            ) from None
        held = hold_secrets({"api_key": key}) if key else None
        return Connection(meant=meant, model=model, url=_url_of(model) or url or "", is_ours=is_ours, idle_seconds=idle, held=held)


def _imported(meant: Meant) -> None:
    """The library and the provider's client. Raises `Unavailable` with the command that installs them."""
    try:
        import pydantic_ai.direct
        import pydantic_ai.models
        from pydantic_ai.providers import infer_provider_class

        if meant.provider == LOCAL:
            infer_provider_class("openai")
        else:
            infer_provider_class(meant.provider)
    except ValueError:
        raise Unavailable(
            f"{meant.name}: the installed pydantic-ai knows no provider {meant.provider!r}.",
            code="TOOL_UNAVAILABLE",
            advice=f"Run {INSTALL}.",
        ) from None
    except ImportError as error:
        raise missing(meant, error) from None


def missing(meant: Meant, error: ImportError | None = None) -> Unavailable:
    known = PROVIDERS.get(meant.provider)
    command = f"pip install 'pydantic-ai-slim[{known.extra}]'" if known is not None and known.extra else INSTALL
    what = f" ({error.name})" if error is not None and error.name else ""
    return Unavailable(f"{meant.name} needs a package that is not installed{what}.", code="TOOL_UNAVAILABLE", advice=f"Run {command}.")


def _client(idle_seconds: float) -> "AsyncClient":
    import httpx2

    timeout = httpx2.Timeout(connect=min(CONNECT_SECONDS, idle_seconds), read=idle_seconds, write=idle_seconds, pool=CONNECT_SECONDS)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=30)
    return httpx2.AsyncClient(timeout=timeout, limits=limits, follow_redirects=False, headers={"user-agent": "remit"})


def _model(meant: Meant, url: str | None, key: str | None, client: "AsyncClient") -> "tuple[Model[Any], bool]":
    from pydantic_ai.models import infer_model

    provider = "openai-chat" if meant.provider == LOCAL else meant.provider
    ours = False

    def made(name: str) -> Any:
        nonlocal ours
        built, ours = _provider(name, url, key, client)
        return built

    try:
        return infer_model(f"{provider}:{meant.model}", provider_factory=made), ours
    except ImportError as error:
        raise missing(meant, error) from None


def _provider(name: str, url: str | None, key: str | None, client: "AsyncClient") -> tuple[Any, bool]:
    """pydantic-ai's provider, given of ours what it takes."""
    from pydantic_ai.providers import infer_provider, infer_provider_class

    if name.startswith("gateway/"):
        return infer_provider(name), False
    kind = infer_provider_class(name)
    takes = inspect.signature(kind.__init__).parameters
    given: dict[str, Any] = {"base_url": url, "api_base": url, "azure_endpoint": url, "http_client": client}
    if PROVIDERS[name].keys:  # else it finds its credentials in ways of its own; as Azure does where there is no key
        given["api_key"] = key or (None if name.startswith("azure") else _NO_KEY)
    arguments = {word: value for word, value in given.items() if word in takes and value is not None}
    return kind(**arguments), "http_client" in arguments


def _url_of(model: "Model[Any]") -> str:
    with suppress(AttributeError, RuntimeError):
        return str(model.base_url or "")
    return ""


def _plain(text: str, key: str | None) -> str:
    text = text.partition(" To try Pydantic AI")[0]
    return text.replace(key, "[redacted]") if key else text
