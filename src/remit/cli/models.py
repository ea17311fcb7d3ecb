"""`remit models`: list the configured language models, or test which of them answer. Keys are never shown."""

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.results import say_document
from remit.core.errors import RemitError, Unavailable
from remit.core.model_messages import Question, UserMessage
from remit.core.redaction import redact_text
from remit.core.settings import Settings
from remit.models.client import Models
from remit.models.local import find_weights
from remit.models.prices import context_of, price_for
from remit.models.providers import LOCAL, PROVIDERS, ModelRef, resolve_model

NONE_YET = """No language model is configured. Everything but the assistant and agents that need a model works without one.
In remit.toml, with the key in the environment (ANTHROPIC_API_KEY, OPENAI_API_KEY, GOOGLE_API_KEY …):

    model = "anthropic:claude-sonnet-5"

or a GGUF file on this machine: model = "local:/path/to/file.gguf"
"""
QUESTION = "Answer with one word: yes."
MAX_TOKENS = 16
"""The smallest limit that every provider accepts."""
Facts = dict[str, Any]


def models(project: Project) -> Exit:
    """List the language models; `remit models test` asks each of them."""
    found = listed(project.settings, project.root)
    keys = [{"variable": variable, "providers": providers} for variable, providers in keys_present().items()]
    shown = [{**one, "key": _key(one), "price": price_words(one["price"])} for one in found]
    hidden = ("source", "url", "key_variables", "key_set")
    rows = [{name: value for name, value in one.items() if name not in hidden} for one in shown]
    text = None if not found else lambda: say_document({"models": rows, "keys in the environment": keys})
    return project.answer({"models": found, "keys": keys}, text or NONE_YET.rstrip())


def _key(one: Facts) -> str:
    if one["key_set"]:
        return f"{one['key_variables'][0]} is set"
    return f"{one['key_variables'][0]} not set" if one["key_variables"] else ""


def price_words(price: Facts | None) -> str:
    """Per million tokens: `3.00 in, 15.00 out`"""
    return "unknown" if price is None else f"{price['input']:.2f} in, {price['output']:.2f} out"


def listed(settings: Settings, root: Path) -> list[Facts]:
    """The models of the setting `model`, in order, then other declared models."""
    places = {name: number for number, name in enumerate(settings.model, 1)}
    return [_described(settings, root, name, places.get(name)) for name in dict.fromkeys((*settings.model, *settings.models))]


def _described(settings: Settings, root: Path, name: str, place: int | None) -> Facts:
    meant, fault, advice = None, None, None
    try:
        meant = resolve_model(settings, name)
        if meant.provider == LOCAL:
            find_weights(meant.model, root)
        elif meant.lacks:
            fault, advice = meant.lacks, f"Set {meant.key_variables[0]}."
    except Unavailable as error:
        fault, advice = error.message, error.advice
    source = settings.source_of("model" if place is not None else f"models.{name}")
    return {"name": name, "place": place, "source": source, **_address(settings, meant), "fault": fault, "advice": advice}


def _address(settings: Settings, meant: ModelRef | None) -> Facts:
    price = None if meant is None else price_for(settings, meant)
    return {
        "provider": meant.provider if meant else None,
        "model": meant.model if meant else None,
        "url": redact_text(meant.url) if meant and meant.url else None,
        "key_variables": list(meant.key_variables) if meant else [],
        "key_set": bool(meant and meant.key),
        "price": price._asdict() if price else None,
        "context_tokens": context_of(meant) if meant else None,
    }


def keys_present() -> dict[str, list[str]]:
    """Environment variables that contain a provider's key, and the providers that read them."""
    readers: dict[str, list[str]] = {}
    for provider, known in PROVIDERS.items():
        for variable in known.keys:
            if os.environ.get(variable, "").strip():
                readers.setdefault(variable, []).append(provider)
    return readers


# ---- do they answer?


def try_each(
    project: Project,
    name: Annotated[str | None, Argument(metavar="NAME", help="Only this model.")] = None,
    seconds: Annotated[float, Option(metavar="N", min=0.1, max=600, help="How long to wait for each.")] = 30.0,
) -> Exit:
    """Ask each model a short question and show which answer: exit 0 or 1."""
    settings = project.settings
    names = [name] if name is not None else [one["name"] for one in listed(settings, project.root)]
    tried = try_models(settings, project.root, names, seconds)
    code = Exit.FAILED if any(one["fault"] for one in tried) else Exit.OK
    return project.answer({"models": tried}, None if tried else NONE_YET.rstrip(), code)


def try_models(settings: Settings, root: Path, names: Sequence[str], seconds: float) -> list[Facts]:
    """Try each model separately, without failover; results in order."""
    return asyncio.run(_try_all(settings, root, names, seconds)) if names else []


async def _try_all(settings: Settings, root: Path, names: Sequence[str], seconds: float) -> list[Facts]:
    models = Models(settings, root)
    try:
        return list(await asyncio.gather(*(_try(models, name, seconds) for name in names)))
    finally:
        await models.close()


class _Meter:
    """Takes the spending of a question, which belongs to no delegation."""

    def __init__(self, seconds: float) -> None:
        self._ends_at = time.monotonic() + seconds

    @property
    def remaining(self) -> float:
        return max(0.0, self._ends_at - time.monotonic())

    def spend(self, *, tokens: int = 0, cost: float = 0.0) -> None:
        """The answer has the figures."""

    def progress(self, message: str, fraction: float | None = None) -> None:
        """Not shown."""


async def _try(models: Models, name: str, seconds: float) -> Facts:
    began = time.monotonic()
    tried: Facts = {"name": name, "answers": False, "said": None, "input_tokens": 0, "output_tokens": 0, "cost": None}
    fault: str | None = None
    advice: str | None = None
    try:
        question = Question(choice=models.choice(name), messages=(UserMessage(text=QUESTION),), max_tokens=MAX_TOKENS)
        asked = await asyncio.wait_for(models.ask(_Meter(seconds), question), seconds + 1)
        said = " ".join(asked.reply.text.split())[:80]
        tried |= {
            "answers": True,
            "said": said,
            "input_tokens": asked.input_tokens,
            "output_tokens": asked.output_tokens,
            "cost": asked.cost,
        }
    except (TimeoutError, RemitError) as error:
        if isinstance(error, TimeoutError) or error.code == "TIMEOUT":
            fault = f"It did not answer within {seconds:g} s."
        else:
            fault, advice = error.message, error.advice
    return tried | {"seconds": round(time.monotonic() - began, 3), "fault": fault, "advice": advice}
