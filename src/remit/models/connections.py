"""Connections to models: pydantic-ai's objects, made when a model is first asked, each with one HTTP client of ours.

Retries of the providers' clients are off (`client` fails over itself), redirects are not followed (a key would go along), proxies are
those of the environment. A connection belongs to the event loop it was made on. Used by `client`.
"""

import asyncio
import inspect
import sys
import weakref
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from remit.core.errors import Unavailable
from remit.core.redaction import REDACTED, SecretValues, redact_text, register_secrets
from remit.core.settings import Settings
from remit.models.messages import SpendSink
from remit.models.providers import INSTALL, LOCAL, PROVIDERS, ModelRef
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from httpx2 import AsyncClient
    from pydantic_ai.models import Model

    from remit.models.local import LocalModels


CONNECT_SECONDS = 10.0
LOCAL_PATIENCE = 5
"""A model on this machine reads a long prompt in silence: it may be silent so many times longer than another."""
_NO_KEY = "no-key"
"""What a server that wants none is sent; its client insists on one."""
_CLOSE_SECONDS = 2.0
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    meant: ModelRef
    model: "Model[Any]"
    url: str
    """Where it answers, for messages."""
    is_ours: bool
    """Whether it goes through our HTTP client, which hears every byte; else only whole events are heard."""
    idle_seconds: float
    is_prompted: bool = False
    """Whether it calls tools by JSON in words; see `prompted`."""
    context_tokens: int | None = None
    """How much it can read at once, where that is known."""
    key: str | None = field(default=None, repr=False)
    held: SecretValues | None = field(default=None, repr=False)
    """Its key is struck out of all that is written down, as long as this lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reached:
    """Where and how, once it is known: of a local model when it runs."""

    url: str | None
    key: str | None = field(repr=False)
    context_tokens: int | None = None
    is_prompted: bool = False


@dataclass(slots=True)
class _OnLoop:
    """What belongs to one event loop."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    clients: "dict[float, AsyncClient]" = field(default_factory=dict)
    made: dict[tuple[ModelRef, "_Reached"], Connection] = field(default_factory=dict)
    end: AsyncGenerator[None, None] | None = field(default=None, repr=False)

    async def begin(self) -> None:
        """A generator that is under way is closed by its loop when that ends (`asyncio.run` sees to it), and with it what it holds: no
        socket is left to the garbage."""
        self.end = self._until_the_end()
        await anext(self.end)

    async def _until_the_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self.shut()

    async def shut(self) -> None:
        self.made.clear()
        while self.clients:
            _, client = self.clients.popitem()
            with suppress(RuntimeError, OSError, TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await client.aclose()


class Connections:
    def __init__(self, settings: Settings, root: Path | None = None) -> None:
        self._settings, self._root = settings, root
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _OnLoop] = weakref.WeakKeyDictionary()
        self._local: LocalModels | None = None
        self._is_closed = False

    async def to(self, meant: ModelRef, purse: SpendSink) -> Connection:
        """Raises `Unavailable` (TOOL_UNAVAILABLE): a key, a package or a setting is missing, said in words."""
        if meant.lacks:
            raise Unavailable(meant.lacks, code="TOOL_UNAVAILABLE", advice=f"Set {meant.key_variables[0]}, and try again.")
        if "pydantic_ai" not in sys.modules and await is_refused(meant.url):
            # Known in a moment, where the libraries take seconds: a server of this machine that was not started.
            raise Unavailable(redact_text(nobody_at(meant.url or "")))
        reached = await self._reached(meant, purse)
        here = await self._here()
        async with here.lock:
            known = here.made.get((meant, reached))
            if known is None:
                # The libraries take a second or two to import: not on the event loop, where others would stand still.
                known = here.made[meant, reached] = await off_loop(self._made, here, meant, reached)
            if self._is_closed:  # meanwhile
                await here.shut()
                raise _closed()
        return known

    def context_tokens(self, meant: ModelRef) -> int | None:
        """Of a model that has been reached, where it says so itself."""
        made = (one for there in list(self._loops.values()) for one in list(there.made.values()))
        return next((one.context_tokens for one in made if one.meant == meant and one.context_tokens), None)

    async def close(self) -> None:
        """Of this loop and of others that still run; those of loops that are gone went with them. Nobody is reached afterwards."""
        self._is_closed = True
        running = asyncio.get_running_loop()
        for loop, there in list(self._loops.items()):
            if there.end is not None and loop is running:
                await there.end.aclose()
            elif there.end is not None and loop.is_running():
                asyncio.run_coroutine_threadsafe(_ended(there.end), loop)
        self._loops.clear()
        local, self._local = self._local, None
        if local is not None:
            await local.close()

    async def _here(self) -> _OnLoop:
        """What belongs to this loop. What belonged to loops that are gone is forgotten."""
        if self._is_closed:
            raise _closed()
        loop = asyncio.get_running_loop()
        here = self._loops.get(loop)
        if here is None:
            for other in [one for one in self._loops if one.is_closed()]:
                self._loops.pop(other, None)
            here = self._loops[loop] = _OnLoop()
            await here.begin()
        return here

    async def _reached(self, meant: ModelRef, purse: SpendSink) -> _Reached:
        if meant.provider != LOCAL:
            return _Reached(url=meant.url, key=meant.key, context_tokens=meant.context_tokens, is_prompted=meant.tools == "prompted")
        if self._local is None:
            from remit.models.local import LocalModels

            self._local = LocalModels(self._settings, self._root)
        address = await self._local.address(meant.name if meant.is_named else meant.model, purse)
        return _Reached(url=address.url, key=address.key, context_tokens=address.context_tokens, is_prompted=address.tools == "prompted")

    def _made(self, here: _OnLoop, meant: ModelRef, reached: _Reached) -> Connection:
        _imported(meant)
        key, idle = reached.key, self._settings.model_idle_seconds * (LOCAL_PATIENCE if meant.provider == LOCAL else 1)
        client = here.clients.get(idle)
        if client is None:
            client = here.clients[idle] = _client(idle)
        try:
            model, is_ours = _model(meant, reached.url, key, client)
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - making a provider's client is their code, and may want anything
            words = f"{meant.name} cannot be reached as it is set up: {_plain(str(error), key)}"
            raise Unavailable(words, code="TOOL_UNAVAILABLE", advice=f"See docs/reference/models.md for {meant.name}.") from None
        return Connection(
            meant=meant,
            model=model,
            url=_url_of(model) or reached.url or "",
            is_ours=is_ours,
            idle_seconds=idle,
            is_prompted=reached.is_prompted,
            context_tokens=reached.context_tokens,
            key=key,
            held=register_secrets({"api_key": key}) if key else None,
        )


def _closed() -> Unavailable:
    return Unavailable("The models of this project are closed.", advice="Open the project again.")


async def _ended(end: AsyncGenerator[None, None]) -> None:
    await end.aclose()


def _imported(meant: ModelRef) -> None:
    """The library and the provider's client. Raises `Unavailable` with the command that installs them."""
    try:
        from pydantic_ai.providers import infer_provider_class

        import remit.models.stream  # noqa: F401 - imported here, on a thread, so that the loop finds it there

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


async def is_refused(url: str | None) -> bool:
    """Whether nobody listens at an address of this machine; no other is tried, as there may be a proxy in between."""
    try:
        where = urlsplit(url or "")
        host, port = where.hostname, where.port or (443 if where.scheme == "https" else 80)
    except ValueError:
        return False
    if host not in _THIS_MACHINE:
        return False
    try:
        async with asyncio.timeout(1.0):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    writer.close()
    return False


def nobody_at(where: str) -> str:
    return f"nobody answers at {where}: is the server running there, and the network up?"


def missing(meant: ModelRef, error: ImportError | None = None) -> Unavailable:
    known = PROVIDERS.get(meant.provider)
    command = f"pip install 'pydantic-ai-slim[{known.extra}]'" if known is not None and known.extra else INSTALL
    what = f" ({error.name})" if error is not None and error.name else ""
    return Unavailable(f"{meant.name} needs a package that is not installed{what}.", code="TOOL_UNAVAILABLE", advice=f"Run {command}.")


def _client(idle_seconds: float) -> "AsyncClient":
    import httpx2

    from remit.models.stream import PLAIN, bound

    timeout = httpx2.Timeout(connect=min(CONNECT_SECONDS, idle_seconds), read=idle_seconds, write=idle_seconds, pool=CONNECT_SECONDS)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=30)
    past_proxies = {f"all://{host}": None for host in ("localhost", "127.0.0.1", "[::1]")}  # a server of this machine is not behind one
    return httpx2.AsyncClient(
        timeout=timeout, limits=limits, follow_redirects=False, mounts=past_proxies, headers=PLAIN, event_hooks={"response": [bound]}
    )


def _model(meant: ModelRef, url: str | None, key: str | None, client: "AsyncClient") -> "tuple[Model[Any], bool]":
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
    return redact_text(text.replace(key, REDACTED) if key else text)
