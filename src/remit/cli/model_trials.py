"""Trying models: each is asked one small question, all at once, and none is waited for longer than it is given. For `remit models test`
and `remit doctor`; spends a few tokens of each, and says how many."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.core.errors import RemitError
from remit.settings.values import Settings

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
    from remit.models.providers import LOCAL, meant_by

    for name in names:
        with suppress(RemitError, ImportError, ValueError):
            provider = meant_by(settings, name).provider
            from pydantic_ai.providers import infer_provider_class

            infer_provider_class("openai" if provider == LOCAL else provider)


async def _try(models: Any, name: str, seconds: float) -> Trial:
    from remit.models.messages import Question, Said

    began = time.monotonic()
    try:
        question = Question(choice=models.choice(name), messages=(Said(text=QUESTION),), max_tokens=MAX_TOKENS)
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
