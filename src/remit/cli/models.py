"""`remit models`: list the configured language models, or test which of them answer. Keys are named, never shown."""

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import typer

from remit.cli.arguments import Json, Root
from remit.cli.exits import Exit
from remit.cli.project import find_root
from remit.cli.render import console, cut, duration, money, printable, say, say_json, spent, table
from remit.core.errors import Misused, RemitError, Unavailable
from remit.core.redaction import redact_text
from remit.core.settings import Price, Settings
from remit.models.local import DEFAULT_CONTEXT_TOKENS, find_weights
from remit.models.pricing import price_for
from remit.models.providers import LOCAL, PROVIDERS, ModelRef, resolve_model

ACTIONS = ("list", "test")
NONE_YET = """No language model is configured. Everything but the assistant and agents that need a model works without one.
In remit.toml, with the key in the environment (ANTHROPIC_API_KEY, OPENAI_API_KEY, GOOGLE_API_KEY …):

    model = "anthropic:claude-sonnet-5"

or a GGUF file on this machine: model = "local:/path/to/file.gguf"
"""


def models(
    action: Annotated[
        str, typer.Argument(metavar="[list|test]", help="`list` shows the configured models, `test` asks each.", show_default=False)
    ] = "list",
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Model to test.", show_default=False)] = None,
    seconds: Annotated[float, typer.Option(metavar="N", min=0.1, max=600, help="With test: how long each is waited for.")] = 30.0,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """List the language models, or test which of them answer."""
    if action == "list" and name is None:
        return _list(find_root(root), as_json=as_json)
    if action == "add-local":
        raise Misused(
            "`remit models add-local` was removed: a local model is any GGUF file.",
            advice='Download one, and write model = "local:/path/to/file.gguf" in remit.toml. Models added earlier keep working.',
        )
    if action == "test":
        return _test(find_root(root), name, seconds, as_json=as_json)
    known = " or ".join(f"`remit models {one}`" for one in ACTIONS)
    raise Misused(f"Unknown: remit models {action}{'' if name is None else f' {name}'}.", advice=f"Use {known}.")


# ---- what there is


def _list(root: Path, *, as_json: bool) -> Exit:
    from remit.system.settings_files import load_settings

    settings = load_settings(root)
    found, keys = listed(settings, root), list(keys_present())
    if as_json:
        say_json(
            {
                "models": [one.to_dict() for one in found],
                "keys": [{"variable": variable, "providers": providers} for variable, providers in keys],
            }
        )
        return Exit.OK
    if found:
        _print(found)
    else:
        say(NONE_YET.rstrip())
    if keys:
        say()
        say("Keys in the environment: " + ", ".join(f"{variable} ({', '.join(providers)})" for variable, providers in keys))
    return Exit.OK


def _print(found: "list[Listed]") -> None:
    from rich.text import Text

    shown = table("", "name", "provider", "model", "key", "price per million", "context", folding=("name", "model", "key"))
    for one in found:
        meant = one.meant
        shown.add_row(
            "" if one.place is None else str(one.place),
            Text(printable(one.name), style="red" if one.fault else ""),
            meant.provider if meant else "-",
            printable(meant.model) if meant else "-",
            _key(one),
            price_words(one.price) if meant else "-",
            f"{one.context_tokens:,}" if one.context_tokens else "unknown",
        )
    console().print(shown)
    for one in found:
        if one.fault:
            say(f"{one.name}: {printable(one.fault.removeprefix(f'{one.name} '))} {printable(one.advice)}".rstrip())
    order = [one.name for one in found if one.place is not None]
    if len(order) > 1:
        say(f"Asked in this order, the next when one fails: {', '.join(order)}.")
    elif not order:
        say('None of them is asked unless an agent names it: write model = "NAME" in remit.toml.')


def _key(one: "Listed") -> str:
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


def _test(root: Path, name: str | None, seconds: float, *, as_json: bool) -> Exit:
    from remit.system.settings_files import load_settings

    settings = load_settings(root)
    names = [name] if name is not None else [one.name for one in listed(settings, root)]
    tried = try_models(settings, root, names, seconds)
    answering = bool(tried) and not any(one.fault for one in tried)
    if as_json:
        say_json({"models": [one.to_dict() for one in tried]})
        return Exit.OK if answering or not tried else Exit.FAILED
    if not tried:
        say(NONE_YET.rstrip())
        return Exit.OK
    shown = table("name", "answers", "took", "spent", "it said", shrinking=("it said",))
    for one in tried:
        used = spent(one.input_tokens + one.output_tokens, one.cost or 0.0)
        shown.add_row(printable(one.name), "no" if one.fault else "yes", duration(one.seconds), used or "-", cut(one.said))
    console().print(shown)
    for one in tried:
        if one.fault:
            say(f"{one.name}: {printable(one.fault.removeprefix(f'{one.name} '))} {printable(one.advice)}".rstrip())
    return Exit.OK if answering else Exit.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A model that the settings name."""

    name: str
    place: int | None
    """Which one it is in the setting `model`, from 1; None: it is only declared."""
    source: str
    """Where it was said."""
    meant: ModelRef | None = None
    price: Price | None = None
    context_tokens: int | None = None
    fault: str = ""
    """Why it cannot be asked as things stand, and what to do about it."""
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
            "price": {"input": price.input, "output": price.output, "cached": price.cached} if price else None,
            "context_tokens": self.context_tokens,
            "fault": self.fault or None,
            "advice": self.advice or None,
        }


def listed(settings: Settings, root: Path) -> list[Listed]:
    """Those of the setting `model`, in its order, then those that are declared beside them."""
    places = {name: number for number, name in enumerate(settings.model, 1)}
    return [_listed(settings, root, name, places.get(name)) for name in dict.fromkeys((*settings.model, *settings.models))]


def keys_present() -> Iterator[tuple[str, list[str]]]:
    """Variables of the environment that hold a provider's key, by name, and the providers that read them."""
    readers: dict[str, list[str]] = {}
    for provider, known in PROVIDERS.items():
        for variable in known.keys:
            readers.setdefault(variable, []).append(provider)
    yield from ((variable, providers) for variable, providers in readers.items() if os.environ.get(variable, "").strip())


def _listed(settings: Settings, root: Path, name: str, place: int | None) -> Listed:
    source = settings.source_of("model" if place is not None else f"models.{name}")
    try:
        meant = resolve_model(settings, name)
        context_tokens, fault, advice = meant.context_tokens, meant.lacks or "", f"Set {meant.key_variables[0]}." if meant.lacks else ""
        if meant.provider == LOCAL:
            find_weights(meant.model, root)
            context_tokens = meant.context_tokens or DEFAULT_CONTEXT_TOKENS
    except Unavailable as error:
        return Listed(name=name, place=place, source=source, meant=_or_none(settings, name), fault=error.message, advice=error.advice)
    return Listed(
        name=name,
        place=place,
        source=source,
        meant=meant,
        price=price_for(settings, meant),
        context_tokens=context_tokens or _known_context(meant.provider, meant.model),
        fault=fault,
        advice=advice,
    )


def _or_none(settings: Settings, name: str) -> ModelRef | None:
    with suppress(Unavailable):
        return resolve_model(settings, name)
    return None


@lru_cache(maxsize=256)
def _known_context(provider: str, model: str) -> int | None:
    """Of the same table as the prices."""
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return None
    with suppress(LookupError, ValueError):
        _, found = get_snapshot().find_provider_model(model, provider=None, provider_id=provider.partition("-")[0], provider_api_url=None)
        return found.context_window
    return None


QUESTION = "Answer with one word: yes."
MAX_TOKENS = 16
"""As few as every provider allows to be asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    name: str
    seconds: float
    said: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    fault: str = ""
    """Why it did not answer; empty: it did."""
    advice: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "answers": not self.fault,
            "seconds": round(self.seconds, 3),
            "said": self.said or None,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost": self.cost,
            "fault": self.fault or None,
            "advice": self.advice or None,
        }


class _Pocket:
    """What a trial draws on: nobody's budget, and a time of its own."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def remaining(self) -> float:
        return self._end - time.monotonic()

    def spend(self, *, tokens: int = 0, cost: float = 0.0) -> None:
        """What is spent is told with the answer."""

    def progress(self, message: str, fraction: float | None = None) -> None:
        """Nobody looks on."""


def try_models(settings: Settings, root: Path, names: Sequence[str], seconds: float) -> list[Trial]:
    """Each by itself, without failing over; in their order."""
    return asyncio.run(_try_all(settings, root, names, seconds)) if names else []


async def _try_all(settings: Settings, root: Path, names: Sequence[str], seconds: float) -> list[Trial]:
    from remit.models.client import Models

    models = Models(settings, root)
    await asyncio.to_thread(_import_for, settings, names)
    try:
        return list(await asyncio.gather(*(_try(models, name, seconds) for name in names)))
    finally:
        await models.close()


def _import_for(settings: Settings, names: Sequence[str]) -> None:
    """The clients of their providers: that takes a second or more, which is no model's fault. What is missing is told by the trial."""
    from remit.models.providers import LOCAL, resolve_model

    for name in names:
        with suppress(RemitError, ImportError, ValueError):
            provider = resolve_model(settings, name).provider
            from pydantic_ai.providers import infer_provider_class

            infer_provider_class("openai" if provider == LOCAL else provider)


async def _try(models: Any, name: str, seconds: float) -> Trial:
    from remit.models.messages import Question, UserMessage

    began = time.monotonic()
    try:
        question = Question(choice=models.choice(name), messages=(UserMessage(text=QUESTION),), max_tokens=MAX_TOKENS)
        asked = await asyncio.wait_for(models.ask(_Pocket(seconds), question), seconds + 1)
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
    """Of one model the reason is enough; its name stands beside it."""
    return message.removeprefix("The model did not answer. ").removeprefix(f"{name}: ")
