"""Model names: provider, missing keys, prices, and files of local models. No model is called."""

import os
from pathlib import Path
from typing import Any

import pytest

from remit import Settings, Unavailable
from remit.core.settings import ModelAddress, Price
from remit.models.client import Models
from remit.models.local import find_weights
from remit.models.prices import price_for
from remit.models.providers import PROVIDERS, resolve_model

VARIABLES = {name for known in PROVIDERS.values() for name in (*known.keys, known.url_variable) if name}


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("anthropic:claude-sonnet-5", "anthropic", "claude-sonnet-5"),
        ("anthropic/claude-sonnet-5", "anthropic", "claude-sonnet-5"),
        (" openai:gpt-5 ", "openai", "gpt-5"),
        ("openrouter:meta/llama:free", "openrouter", "meta/llama:free"),
        ("openrouter/meta/llama:free", "openrouter", "meta/llama:free"),
        ("ollama:qwen3:8b", "ollama", "qwen3:8b"),
        ("local:/models/a.gguf", "local", "/models/a.gguf"),
    ],
)
def test_name_has_provider_and_model(name: str, provider: str, model: str) -> None:
    found = resolve_model(Settings(), name)
    assert (found.provider, found.model) == (provider, model)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("antropic:claude", "Did you mean anthropic:claude?"),
        ("fat", "Did you mean fast?"),
        ("openai:", "names no model"),
        ("gpt-5", "names no model"),
        ("elevenlabs:x", "neither PROVIDER:MODEL of a known provider"),
    ],
)
def test_unknown_name_is_reported_with_the_nearest_and_the_settings_to_add(name: str, words: str) -> None:
    with pytest.raises(Unavailable) as unknown:
        resolve_model(Settings(models={"fast": ModelAddress()}), name)
    assert unknown.value.code == "TOOL_UNAVAILABLE"
    assert words in str(unknown.value)
    assert "[models." in unknown.value.advice


def test_missing_keys_are_named_by_their_variables() -> None:
    with pytest.raises(Unavailable) as none:
        Models(Settings(model=("anthropic:claude-sonnet-5", "google:gemini-2.5-pro"))).choice()
    assert none.value.code == "TOOL_UNAVAILABLE"
    assert "ANTHROPIC_API_KEY" in none.value.message
    assert "GOOGLE_API_KEY or GEMINI_API_KEY" in none.value.message


def test_one_key_is_enough_and_the_model_of_the_agent_takes_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "x")
    models = Models(Settings(model=("anthropic:claude-sonnet-5", "google:gemini-2.5-pro"), sources={"model": "env REMIT_MODEL"}))
    assert models.choice().names == ("anthropic:claude-sonnet-5", "google:gemini-2.5-pro")
    assert models.choice().source == "env REMIT_MODEL"
    assert models.choice("google:gemini-2.5-flash").names == ("google:gemini-2.5-flash",)
    assert models.choice(["google:a", "google:a", "google:b"]).names == ("google:a", "google:b")


def test_default_key_is_sent_to_no_other_host_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    tables = {
        "elsewhere": ModelAddress(kind="openai", url="https://models.example/v1"),
        "named": ModelAddress(kind="openai", url="https://models.example/v1", key_variable="OPENAI_API_KEY"),
        "own": ModelAddress(kind="openai-responses", url="https://api.openai.com/v1"),
        "home": ModelAddress(kind="openai"),
    }
    keys = {name: resolve_model(Settings(models=tables), name).key for name in tables}
    assert keys == {"elsewhere": None, "named": "sk-mine", "own": "sk-mine", "home": "sk-mine"}
    assert "sk-mine" not in repr([resolve_model(Settings(models=tables), name) for name in tables])


@pytest.mark.parametrize(
    ("kind", "written", "url"),
    [
        ("anthropic", "http://h:1/v1/", "http://h:1"),
        ("google", "http://h:1/v1beta", "http://h:1"),
        ("ollama", "http://h:1", "http://h:1/v1"),
        ("ollama", "http://h:1/api", "http://h:1/v1"),
        ("ollama", "http://h:1/v1", "http://h:1/v1"),
        ("openai", "http://h:1/v1/", "http://h:1/v1"),
    ],
)
def test_base_urls_are_accepted_in_common_forms(kind: Any, written: str, url: str) -> None:
    assert resolve_model(Settings(models={"m": ModelAddress(kind=kind, url=written)}), "m").url == url


def test_prices_are_from_settings_then_known_then_unknown() -> None:
    tables = {
        "proxy": ModelAddress(kind="openai", url="http://h/v1", model="gpt-5"),
        "mine": ModelAddress(kind="anthropic", model="claude-haiku-4-5"),
    }
    settings = Settings(models=tables, prices={"openai:gpt-5": Price(input=7, output=8), "odd": Price(input=1, output=1)})
    assert price_for(settings, "openai:gpt-5") == Price(input=7, output=8)
    known = price_for(settings, "anthropic:claude-haiku-4-5")
    assert known is not None
    assert known.output > known.input > 0
    assert price_for(settings, "mine") == known
    assert price_for(settings, "proxy") is None
    assert price_for(settings, "ollama:qwen3") is None
    assert price_for(settings, "nobody:knows") is None
    assert price_for(settings, "local:x") == Price(input=0, output=0)
    assert price_for(settings, "odd") == Price(input=1, output=1)


def test_weights_are_found_by_path(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF weights")
    assert find_weights("m.gguf", tmp_path) == tmp_path / "m.gguf"
    assert find_weights(str(tmp_path / "m.gguf"), Path("/")) == tmp_path / "m.gguf"


@pytest.mark.parametrize("model", ["no/such.gguf", ".", "bad.gguf", "pipe.gguf"])
def test_missing_or_invalid_weights_are_reported_with_advice(tmp_path: Path, model: str) -> None:
    (tmp_path / "bad.gguf").write_text("hello")
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(Unavailable) as raised:
        find_weights(model, tmp_path)
    assert raised.value.code == "TOOL_UNAVAILABLE"
    assert "GGUF" in raised.value.advice
