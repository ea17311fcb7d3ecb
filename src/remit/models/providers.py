"""Model names: `anthropic:claude-…`, `local:FILE`, or NAME of `[models.NAME]`, resolved to a provider, an address and a key.

The table of providers repeats what pydantic-ai knows, so that a name can be resolved without importing it."""

import os
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from urllib.parse import urlsplit

from remit.core.errors import Unavailable
from remit.core.redaction import redact_text
from remit.core.settings import ModelAddress, Settings


@dataclass(frozen=True, slots=True)
class Provider:
    keys: tuple[str, ...] = ()
    """Environment variables with its key; empty: it finds its own credentials."""
    url_variable: str | None = None
    """Environment variable with its address, if not the default."""
    url: str | None = None
    """Default address; None: its client knows."""
    key_is_optional: bool = False
    extra: str | None = None
    """Extra of pydantic-ai-slim that it needs beyond `remit[models]`."""


_OPENAI = Provider(("OPENAI_API_KEY",), "OPENAI_BASE_URL")

PROVIDERS: dict[str, Provider] = {
    "anthropic": Provider(("ANTHROPIC_API_KEY",), "ANTHROPIC_BASE_URL"),
    "openai": _OPENAI,
    "openai-chat": _OPENAI,
    "openai-responses": _OPENAI,
    "google": Provider(("GOOGLE_API_KEY", "GEMINI_API_KEY"), "GOOGLE_GEMINI_BASE_URL"),
    "ollama": Provider(("OLLAMA_API_KEY",), "OLLAMA_BASE_URL", "http://localhost:11434/v1", key_is_optional=True),
    "vllm": Provider(("VLLM_API_KEY",), "VLLM_BASE_URL", "http://localhost:8000/v1", key_is_optional=True),
    "litellm": Provider(("LITELLM_API_KEY",), "LITELLM_BASE_URL", "http://localhost:4000", key_is_optional=True),
    "groq": Provider(("GROQ_API_KEY",), "GROQ_BASE_URL", extra="groq"),
    "mistral": Provider(("MISTRAL_API_KEY",), extra="mistral"),
    "xai": Provider(("XAI_API_KEY",), extra="xai"),
    "cohere": Provider(("CO_API_KEY",), "CO_BASE_URL", extra="cohere"),
    "huggingface": Provider(("HF_TOKEN",), extra="huggingface"),
    "azure": Provider(("AZURE_OPENAI_API_KEY",), "AZURE_OPENAI_ENDPOINT", key_is_optional=True),
    "bedrock": Provider(extra="bedrock"),
    "google-cloud": Provider(),
    **{
        name: Provider((f"{name.upper()}_API_KEY",))
        for name in ("openrouter", "deepseek", "together", "fireworks", "cerebras", "moonshotai", "sambanova", "alibaba", "github", "zai")
    },
}
"""The most used ones; any other is reached by its OpenAI-compatible address."""
OWN_HOSTS = frozenset({"api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com"})
"""Hosts that the usual keys of the kinds of `[models]` belong to."""


# ---- names


LOCAL = "local"
INSTALL = "pip install 'remit[models]'"
_KINDS = {"openai": "openai-chat"}
"""Provider of a `kind`, if different: `openai` in `[models]` is Chat Completions, which most servers speak."""
EXAMPLE = 'model = "anthropic:claude-sonnet-5"'


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRef:
    """One model, by its configured name and its address."""

    name: str
    """As it was written."""
    provider: str
    """As pydantic-ai calls it; `local`."""
    model: str
    """The provider's own name for it."""
    url: str | None = None
    """None: the provider's own address, or that of its environment variable."""
    key_variables: tuple[str, ...] = ()
    """Variables with its key; the first that is set is used."""
    needs_key: bool = False
    max_tokens: int | None = None
    context_tokens: int | None = None
    is_named: bool = False
    """Whether it has a table `[models.NAME]`."""

    @property
    def key(self) -> str | None:
        """Never shown, never stored."""
        return os.environ[self.key_variable].strip() if self.key_variable else None

    @property
    def key_variable(self) -> str | None:
        """The variable that provides its key."""
        return next((name for name in self.key_variables if os.environ.get(name, "").strip()), None)

    @property
    def lacks(self) -> str | None:
        """Why it cannot be used, with advice; None: no visible fault."""
        if not self.needs_key or self.key:
            return None
        variables = " or ".join(self.key_variables)
        return f"{self.name} needs a key: the variable {variables} of the environment is not set."


def resolve_model(settings: Settings, name: str) -> ModelRef:
    """Raises `Unavailable` (TOOL_UNAVAILABLE) for an unknown name, with the nearest known ones."""
    name = name.strip()
    table = settings.models.get(name)
    provider, model = _split(name) if table is None else (_KINDS.get(table.kind, table.kind), table.model or name)
    if not model or (provider not in PROVIDERS and provider != LOCAL):
        raise _unknown(settings, name, provider, model)
    known, given = PROVIDERS.get(provider, Provider()), table or ModelAddress()  # a local model has no key
    own = given.url is None or _host(given.url) in OWN_HOSTS
    # A key is sent only to its provider: to another address only if its variable is named beside that address.
    keys = (given.key_variable,) if given.key_variable else known.keys if own else ()
    return ModelRef(
        name=name,
        provider=provider,
        model=model,
        url=_address(provider, known) if given.url is None else _normalise_url(provider, given.url),
        key_variables=keys,
        needs_key=bool(given.key_variable) or (own and _needs_key(known)),
        max_tokens=given.max_tokens,
        context_tokens=given.context_tokens,
        is_named=table is not None,
    )


def _split(name: str) -> tuple[str, str]:
    """`provider:model`, or `provider/model` if a provider has that name; a model's own name may contain both characters."""
    provider, sign, model = name.partition(":")
    if sign and (provider in PROVIDERS or provider == LOCAL or "/" not in provider):
        return provider, model.strip()
    provider, _, model = name.partition("/")
    return (provider, model.strip()) if provider in PROVIDERS else ("", name)


def _needs_key(known: Provider) -> bool:
    """A private server, named by the environment, may need none."""
    return bool(known.keys) and not known.key_is_optional and not (known.url_variable and os.environ.get(known.url_variable))


def _address(provider: str, known: Provider) -> str | None:
    """The address from the environment, as users of the provider's own tools expect; None: its default."""
    said = os.environ.get(known.url_variable, "").strip() if known.url_variable else ""
    return _normalise_url(provider, said) if said else known.url


def _normalise_url(provider: str, url: str) -> str:
    """The address in the form of the provider's client: people write it with and without the version."""
    url = url.strip().rstrip("/")
    if not url.lower().startswith(("http://", "https://")) or not _host(url):
        raise Unavailable(
            f"{redact_text(url)!r} is not the address of a model of the kind {provider}.",
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
    name, provider, model = redact_text(name), redact_text(provider), redact_text(model)  # a key in the wrong place
    names = [*settings.models, *(f"{one}:" for one in PROVIDERS), f"{LOCAL}:"]
    close = get_close_matches(f"{provider}:" if ":" in name else name, names, n=1)
    hint = f" Did you mean {close[0]}{model if close[0].endswith(':') else ''}?" if close and model else ""
    table = f'or a table [models.{name or "NAME"}] with kind = "openai", url = "http://…/v1" and model = "…"'
    fault = f"{name!r} names no model: it is neither PROVIDER:MODEL of a known provider nor the name of a table of [models].{hint}"
    return Unavailable(fault, code="TOOL_UNAVAILABLE", advice=f"Write in remit.toml: {EXAMPLE}, {table}.")
