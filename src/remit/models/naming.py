"""Names of models: `anthropic:claude-…`, `local:NAME`, or NAME of `[models.NAME]`, made into what is meant by them.

Reads settings and the environment and nothing else: nobody is asked, and pydantic-ai is not imported. `connecting` makes the connection,
`cli.models` lists. What the names of vendors' agent files stand for (`sonnet`, `inherit`) is `agents`' business.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal
from urllib.parse import urlsplit

from remit.core.errors import Unavailable
from remit.core.secrets import redacted_text
from remit.models.known import GATEWAY, OWN_HOSTS, PROVIDERS, Provider
from remit.settings.values import ModelAddress, Settings

LOCAL = "local"
INSTALL = "pip install 'remit[models]'"
_KINDS = {"openai": "openai-chat"}
"""What `kind` is called where it differs: `openai` in `[models]` is Chat Completions, which most servers speak."""
EXAMPLE = 'model = "anthropic:claude-sonnet-5"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """One model, as it was named and as it is reached."""

    name: str
    """As it was written."""
    provider: str
    """As pydantic-ai calls it; `local`."""
    model: str
    """The provider's own name for it."""
    url: str | None = None
    """None: the provider's own address, or what its variable of the environment says."""
    key_variables: tuple[str, ...] = ()
    """Those that may hold its key; the first that is set is taken."""
    needs_key: bool = False
    max_tokens: int | None = None
    context_tokens: int | None = None
    tools: Literal["native", "prompted"] | None = None
    """How it calls tools; None: in its own way, a local one as its template can."""
    is_named: bool = False
    """Whether it has a table `[models.NAME]`."""

    @property
    def key(self) -> str | None:
        """Never shown, never kept."""
        return os.environ[self.key_variable].strip() if self.key_variable else None

    @property
    def key_variable(self) -> str | None:
        """The one that its key is taken from."""
        return next((name for name in self.key_variables if os.environ.get(name, "").strip()), None)

    @property
    def lacks(self) -> str | None:
        """Why it cannot be asked as things stand, and what to do; None: nothing that could be seen from here."""
        if not self.needs_key or self.key:
            return None
        variables = " or ".join(self.key_variables)
        return f"{self.name} needs a key: the variable {variables} of the environment is not set."


def meant_by(settings: Settings, name: str) -> Meant:
    """Raises `Unavailable` (TOOL_UNAVAILABLE) for a name that stands for nothing, with the nearest that do."""
    name = name.strip()
    table = settings.models.get(name)
    if table is not None:
        return _from_table(name, table)
    provider, model = _split(name)
    if provider == LOCAL and model:
        return Meant(name=name, provider=LOCAL, model=model)
    known = GATEWAY if provider.startswith("gateway/") else PROVIDERS.get(provider)
    if known is not None and model:
        return Meant(
            name=name, provider=provider, model=model, url=_address(provider, known), key_variables=known.keys, needs_key=_needs(known)
        )
    raise _unknown(settings, name, provider, model)


def _split(name: str) -> tuple[str, str]:
    """`provider:model`, or `provider/model` where a provider is called so; a model's own name may hold both signs."""
    provider, sign, model = name.partition(":")
    if sign and (provider in PROVIDERS or provider == LOCAL or "/" not in provider or provider.startswith("gateway/")):
        return provider, model.strip()
    provider, _, model = name.partition("/")
    return (provider, model.strip()) if provider in PROVIDERS else ("", name)


def _from_table(name: str, table: ModelAddress) -> Meant:
    provider = _KINDS.get(table.kind, table.kind)
    model = table.model or name
    if provider == LOCAL:
        return Meant(
            name=name, provider=LOCAL, model=model, max_tokens=table.max_tokens, context_tokens=table.context_tokens, is_named=True
        )
    known = PROVIDERS[provider]
    own = table.url is None or _host(table.url) in OWN_HOSTS
    # A key goes to whom it was made for: to another address only when its variable is named beside that address.
    keys = (table.key_variable,) if table.key_variable else known.keys if own else ()
    return Meant(
        name=name,
        provider=provider,
        model=model,
        url=_address(provider, known) if table.url is None else _tidy(provider, table.url),
        key_variables=keys,
        needs_key=bool(table.key_variable) or (own and _needs(known)),
        max_tokens=table.max_tokens,
        context_tokens=table.context_tokens,
        tools=table.tools,
        is_named=True,
    )


def _needs(known: Provider) -> bool:
    """A server of one's own, named by the environment, may want none."""
    return bool(known.keys) and not known.key_is_optional and not (known.url_variable and os.environ.get(known.url_variable))


def _address(provider: str, known: Provider) -> str | None:
    """Where the environment says it is, as users of the provider's own tools expect; None: its own address."""
    said = os.environ.get(known.url_variable, "").strip() if known.url_variable else ""
    if not said and provider == "ollama":
        host = os.environ.get("OLLAMA_HOST", "").strip()
        said = (host if "//" in host else f"http://{host}") if host else ""
    return _tidy(provider, said) if said else known.url


def _tidy(provider: str, url: str) -> str:
    """The address as the provider's client wants it: people write it with and without the version."""
    url = url.strip().rstrip("/")
    if not url.lower().startswith(("http://", "https://")) or not _host(url):
        raise Unavailable(
            f"{redacted_text(url)!r} is no address of a model of the kind {provider}.",
            code="TOOL_UNAVAILABLE",
            advice='Write url = "http://HOST:PORT/v1".',
        )
    if provider == "anthropic":
        return url.removesuffix("/v1")
    if provider == "google":
        return url.removesuffix("/v1beta")
    if provider == "ollama":
        return url.removesuffix("/api") if url.endswith("/v1") else f"{url.removesuffix('/api')}/v1"
    return url


def _host(url: str) -> str:
    with suppress(ValueError):
        return (urlsplit(url).hostname or "").lower()
    return ""


def _unknown(settings: Settings, name: str, provider: str, model: str) -> Unavailable:
    name, provider, model = redacted_text(name), redacted_text(provider), redacted_text(model)  # a key that was put in the wrong place
    names = [*settings.models, *(f"{one}:" for one in PROVIDERS), f"{LOCAL}:"]
    asked = name if ":" not in name else f"{provider}:"
    close = get_close_matches(asked, names, n=1, cutoff=0.6)
    if provider in PROVIDERS and not model:
        fault = f"{name!r} names a provider and no model."
    elif provider and ":" in name:
        fault = f"{name!r} names no model: there is no provider {provider!r}."
    else:
        fault = f"{name!r} names no model: it is neither PROVIDER:MODEL nor the name of a table [models.{name or 'NAME'}]."
    hint = f" Did you mean {close[0]}{model if close[0].endswith(':') else ''}?" if close and model else ""
    own = name if name.replace("-", "").replace("_", "").isalnum() else "NAME"
    lines = f'{EXAMPLE}, or a table [models.{own}] with kind = "openai", url = "http://…/v1" and model = "…"'
    return Unavailable(f"{fault}{hint}", code="TOOL_UNAVAILABLE", advice=f"Write in remit.toml: {lines}.")
