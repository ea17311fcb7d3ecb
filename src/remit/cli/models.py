"""`remit models`: list the configured language models, or test which of them answer. Keys are never shown."""

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from rich.text import Text
from typer import Argument, Option

from remit.cli.events import SpendMeter
from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.render import console, cut, duration, harmless, money, say, spent, table
from remit.core.errors import RemitError, Unavailable
from remit.core.model_messages import Question, UserMessage
from remit.core.redaction import redact_text
from remit.core.settings import Price, Settings
from remit.models.client import Models
from remit.models.local import DEFAULT_CONTEXT_TOKENS, find_weights
from remit.models.prices import context_of, price_for
from remit.models.providers import LOCAL, PROVIDERS, ModelRef, resolve_model

NONE_YET = """No language model is configured. Everything but the assistant and agents that need a model works without one.
In remit.toml, with the key in the environment (ANTHROPIC_API_KEY, OPENAI_API_KEY, GOOGLE_API_KEY …):

    model = "anthropic:claude-sonnet-5"

or a GGUF file on this machine: model = "local:/path/to/file.gguf"
"""


def models(project: Project) -> Exit:
    """List the language models; `remit models test` asks each of them."""
    found, keys = listed(project.settings, project.root), list(keys_present())

    def shown() -> None:
        if found:
            _print(found)
        else:
            say(NONE_YET.rstrip())
        if keys:
            say("\nKeys in the environment: " + ", ".join(f"{variable} ({', '.join(providers)})" for variable, providers in keys))

    known = [{"variable": variable, "providers": providers} for variable, providers in keys]
    return project.answer({"models": [one.to_dict() for one in found], "keys": known}, shown)


def _print(found: "list[ConfiguredModel]") -> None:
    shown = table("", "name", "provider", "model", "key", "price per million", "context", folding=("name", "model", "key"))
    for one in found:
        meant = one.meant
        shown.add_row(
            "" if one.place is None else str(one.place),
            Text(harmless(one.name), style="red" if one.fault else ""),
            meant.provider if meant else "-",
            harmless(meant.model) if meant else "-",
            _key(one),
            price_words(one.price) if meant else "-",
            f"{one.context_tokens:,}" if one.context_tokens else "unknown",
        )
    console().print(shown)
    _print_faults(found)
    order = [one.name for one in found if one.place is not None]
    if len(order) > 1:
        say(f"Used in this order, the next when one fails: {', '.join(order)}.")
    elif not order:
        say('No default model is set, so only agents that name a model use one. Set it: model = "NAME" in remit.toml.')


def _key(one: "ConfiguredModel") -> str:
    meant = one.meant
    if meant is None or not meant.key_variables:
        return "-"
    if meant.key_variable:
        return f"{meant.key_variable} is set"
    return f"{meant.key_variables[0]} not set" if meant.needs_key else "-"


def price_words(price: "Price | None") -> str:
    """`3.00 in, 15.00 out`"""
    if price is None:
        return "unknown"
    return "free" if not price.input and not price.output else f"{money(price.input)} in, {money(price.output)} out"


# ---- do they answer?


def try_each(
    project: Project,
    name: Annotated[str | None, Argument(metavar="NAME", help="Only this model.")] = None,
    seconds: Annotated[float, Option(metavar="N", min=0.1, max=600, help="How long to wait for each.")] = 30.0,
) -> Exit:
    """Ask each model a short question and show which answer: exit 0 or 1."""
    settings = project.settings
    names = [name] if name is not None else [one.name for one in listed(settings, project.root)]
    tried = try_models(settings, project.root, names, seconds)

    def shown() -> None:
        rows = table("name", "answers", "took", "spent", "it said", shrinking=("it said",))
        for one in tried:
            used = spent(one.input_tokens + one.output_tokens, one.cost or 0.0)
            rows.add_row(harmless(one.name), "no" if one.fault else "yes", duration(one.seconds), used or "-", cut(one.said))
        console().print(rows)
        _print_faults(tried)

    code = Exit.FAILED if any(one.fault for one in tried) else Exit.OK
    return project.answer({"models": [one.to_dict() for one in tried]}, shown if tried else NONE_YET.rstrip(), code)


def _print_faults(found: "Sequence[ConfiguredModel | Trial]") -> None:
    for one in found:
        if one.fault:
            say(f"{one.name}: {harmless(one.fault.removeprefix(f'{one.name} '))} {harmless(one.advice)}".rstrip())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredModel:
    """A model that the settings name."""

    name: str
    place: int | None
    """Position in the setting `model`, from 1; None: declared but not in it."""
    source: str
    """Where it is configured."""
    meant: ModelRef | None = None
    price: Price | None = None
    context_tokens: int | None = None
    fault: str = ""
    """Why it cannot be used, with advice."""
    advice: str = ""

    @property
    def is_local(self) -> bool:
        return self.meant is not None and self.meant.provider == LOCAL

    def to_dict(self) -> dict[str, Any]:
        meant, price = self.meant, self.price
        return {
            "name": self.name,
            "place": self.place,
            "source": self.source,
            "provider": meant.provider if meant else None,
            "model": meant.model if meant else None,
            "url": redact_text(meant.url) if meant and meant.url else None,
            "key_variables": list(meant.key_variables) if meant else [],
            "key_set": bool(meant and meant.key),
            "price": price._asdict() if price else None,
            "context_tokens": self.context_tokens,
            "fault": self.fault or None,
            "advice": self.advice or None,
        }


def listed(settings: Settings, root: Path) -> list[ConfiguredModel]:
    """The models of the setting `model`, in order, then other declared models."""
    places = {name: number for number, name in enumerate(settings.model, 1)}
    return [_listed(settings, root, name, places.get(name)) for name in dict.fromkeys((*settings.model, *settings.models))]


def keys_present() -> Iterator[tuple[str, list[str]]]:
    """Environment variables that contain a provider's key, and the providers that read them."""
    readers: dict[str, list[str]] = {}
    for provider, known in PROVIDERS.items():
        for variable in known.keys:
            readers.setdefault(variable, []).append(provider)
    yield from ((variable, providers) for variable, providers in readers.items() if os.environ.get(variable, "").strip())


def _listed(settings: Settings, root: Path, name: str, place: int | None) -> ConfiguredModel:
    found = ConfiguredModel(name=name, place=place, source=settings.source_of("model" if place is not None else f"models.{name}"))
    try:
        meant = resolve_model(settings, name)
        found = replace(found, meant=meant)
        if meant.provider == LOCAL:
            find_weights(meant.model, root)
    except Unavailable as error:
        return replace(found, fault=error.message, advice=error.advice)
    default = DEFAULT_CONTEXT_TOKENS if meant.provider == LOCAL else None
    return replace(
        found,
        price=price_for(settings, meant),
        context_tokens=context_of(meant) or default,
        fault=meant.lacks or "",
        advice=f"Set {meant.key_variables[0]}." if meant.lacks else "",
    )


QUESTION = "Answer with one word: yes."
MAX_TOKENS = 16
"""The smallest limit that every provider accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    name: str
    seconds: float
    said: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    fault: str = ""
    """Why it did not answer; empty if it did."""
    advice: str = ""

    def to_dict(self) -> dict[str, Any]:
        empty_as_null = {name: getattr(self, name) or None for name in ("said", "fault", "advice")}
        return asdict(self) | {"answers": not self.fault, "seconds": round(self.seconds, 3)} | empty_as_null


def try_models(settings: Settings, root: Path, names: Sequence[str], seconds: float) -> list[Trial]:
    """Try each model separately, without failover; results in order."""
    return asyncio.run(_try_all(settings, root, names, seconds)) if names else []


async def _try_all(settings: Settings, root: Path, names: Sequence[str], seconds: float) -> list[Trial]:
    models = Models(settings, root)
    await asyncio.to_thread(_import_for, settings, names)
    try:
        return list(await asyncio.gather(*(_try(models, name, seconds) for name in names)))
    finally:
        await models.close()


def _import_for(settings: Settings, names: Sequence[str]) -> None:
    """Import the provider clients first: an import takes a second, which must not count as the model's time."""
    for name in names:
        with suppress(RemitError, ImportError, ValueError):
            provider = resolve_model(settings, name).provider
            from pydantic_ai.providers import infer_provider_class

            infer_provider_class("openai" if provider == LOCAL else provider)


async def _try(models: Any, name: str, seconds: float) -> Trial:
    began = time.monotonic()
    try:
        question = Question(choice=models.choice(name), messages=(UserMessage(text=QUESTION),), max_tokens=MAX_TOKENS)
        asked = await asyncio.wait_for(models.ask(SpendMeter(seconds), question), seconds + 1)
    except TimeoutError:
        return Trial(name=name, seconds=time.monotonic() - began, fault=f"It did not answer within {seconds:g} s.")
    except RemitError as error:
        fault = f"It did not answer within {seconds:g} s." if error.code == "TIMEOUT" else _alone(error.message, name)
        return Trial(
            name=name, seconds=time.monotonic() - began, fault=fault, advice="" if "remit doctor" in error.advice else error.advice
        )
    return Trial(
        name=name,
        seconds=time.monotonic() - began,
        said=" ".join(asked.reply.text.split())[:80],
        input_tokens=asked.input_tokens,
        output_tokens=asked.output_tokens,
        cost=asked.cost,
    )


def _alone(message: str, name: str) -> str:
    """The message without the model's name, which is shown beside it."""
    return message.removeprefix("The model did not answer. ").removeprefix(f"{name}: ")
