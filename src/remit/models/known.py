"""The providers pydantic-ai speaks to: where each one's key stands, and its address. A table of facts, checked against the installed
package by a test; kept here so that a name can be judged without importing it. Used by `naming`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Provider:
    keys: tuple[str, ...] = ()
    """Variables that hold its key; none: it finds its credentials in ways of its own."""
    url_variable: str | None = None
    """The variable that says where it answers, if it is not at home."""
    url: str | None = None
    """Where it is taken to be; None: its client knows."""
    key_is_optional: bool = False
    extra: str | None = None
    """What of pydantic-ai-slim it needs beyond `remit[models]`."""


_OPENAI = Provider(("OPENAI_API_KEY",), "OPENAI_BASE_URL")

PROVIDERS: dict[str, Provider] = {
    "anthropic": Provider(("ANTHROPIC_API_KEY",), "ANTHROPIC_BASE_URL"),
    "openai": _OPENAI,
    "openai-chat": _OPENAI,
    "openai-responses": _OPENAI,
    "google": Provider(("GOOGLE_API_KEY", "GEMINI_API_KEY"), "GOOGLE_GEMINI_BASE_URL"),
    "google-cloud": Provider(),
    "ollama": Provider(("OLLAMA_API_KEY",), "OLLAMA_BASE_URL", "http://localhost:11434/v1", key_is_optional=True),
    "vllm": Provider(("VLLM_API_KEY",), "VLLM_BASE_URL", "http://localhost:8000/v1", key_is_optional=True),
    "litellm": Provider(("LITELLM_API_KEY",), "LITELLM_BASE_URL", "http://localhost:4000", key_is_optional=True),
    "openrouter": Provider(("OPENROUTER_API_KEY",)),
    "groq": Provider(("GROQ_API_KEY",), "GROQ_BASE_URL", extra="groq"),
    "mistral": Provider(("MISTRAL_API_KEY",), extra="mistral"),
    "deepseek": Provider(("DEEPSEEK_API_KEY",)),
    "xai": Provider(("XAI_API_KEY",), extra="xai"),
    "together": Provider(("TOGETHER_API_KEY",)),
    "fireworks": Provider(("FIREWORKS_API_KEY",)),
    "cerebras": Provider(("CEREBRAS_API_KEY",)),
    "cohere": Provider(("CO_API_KEY",), "CO_BASE_URL", extra="cohere"),
    "huggingface": Provider(("HF_TOKEN",), extra="huggingface"),
    "moonshotai": Provider(("MOONSHOTAI_API_KEY",), "MOONSHOTAI_BASE_URL"),
    "nebius": Provider(("NEBIUS_API_KEY",)),
    "ovhcloud": Provider(("OVHCLOUD_API_KEY",)),
    "alibaba": Provider(("ALIBABA_API_KEY", "DASHSCOPE_API_KEY")),
    "sambanova": Provider(("SAMBANOVA_API_KEY",), "SAMBANOVA_BASE_URL"),
    "heroku": Provider(("HEROKU_INFERENCE_KEY",), "HEROKU_INFERENCE_URL"),
    "github": Provider(("GITHUB_API_KEY",)),
    "github-copilot": Provider(),
    "vercel": Provider(("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN")),
    "crusoe": Provider(("CRUSOE_API_KEY",)),
    "meta": Provider(("META_API_KEY",)),
    "zai": Provider(("ZAI_API_KEY",)),
    "typesafe": Provider(("TYPESAFE_API_KEY",), "TYPESAFE_BASE_URL"),
    "system-one": Provider(("SYSTEM_ONE_API_KEY",), "SYSTEM_ONE_BASE_URL", key_is_optional=True),
    "snowflake": Provider(("SNOWFLAKE_TOKEN",)),
    "azure": Provider(("AZURE_OPENAI_API_KEY",), "AZURE_OPENAI_ENDPOINT", key_is_optional=True),
    "azure-responses": Provider(("AZURE_OPENAI_API_KEY",), "AZURE_OPENAI_ENDPOINT", key_is_optional=True),
    "bedrock": Provider(extra="bedrock"),
    "bedrock-mantle": Provider(extra="bedrock"),
    "openai-codex": Provider(),
    "openai-chatgpt": Provider(),
}
GATEWAY = Provider(("PYDANTIC_AI_GATEWAY_API_KEY", "PAIG_API_KEY"))
"""`gateway/PROVIDER:MODEL`."""
NOT_FOR_WORDS = frozenset({"elevenlabs", "voyageai", "sentence-transformers", "openai-decisions"})
"""Providers of pydantic-ai that answer no question in words."""
OWN_HOSTS = frozenset({"api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com"})
"""Where the usual keys of the kinds of `[models]` belong."""
