"""Summaries of large results never exceed the requested length."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from remit import Settings, Unavailable
from remit.core.model_messages import Answer, Reply, SpendSink
from remit.core.settings import ModelAddress
from remit.models.client import Models
from remit.models.questions import summarize
from remit.testing import Say, ScriptedModels


class Writer:
    """A model with a fixed answer, or one that fails."""

    def __init__(self, says: str | None) -> None:
        self.says, self.asked = says, 0

    def is_configured(self) -> bool:
        return True

    async def write(self, spending: SpendSink, prompt: str, *, instructions: str = "", schema: Mapping[str, Any] | None = None) -> Answer:
        self.asked += 1
        if self.says is None:
            raise Unavailable("Nobody answers.")
        return Answer(reply=Reply(text=self.says))


class Spending:
    def __init__(self) -> None:
        self.tokens, self._ends = 0, time.monotonic() + 600

    @property
    def remaining(self) -> float:
        return self._ends - time.monotonic()

    def spend(self, *, tokens: int = 0, cost: float = 0.0) -> None:
        self.tokens += tokens

    def progress(self, message: str, fraction: float | None = None) -> None: ...


@given(
    text=st.text(max_size=4000) | st.integers(0, 400_000).map(lambda n: "line of text\n" * (n // 13)),
    characters=st.integers(0, 5000),
    says=st.none() | st.text(max_size=9000),
)
def test_summary_never_exceeds_the_requested_length(text: str, characters: int, says: str | None) -> None:
    model = Writer(says)
    for models in (None, model):
        made = asyncio.run(summarize(models, Spending(), text, characters=characters))
        assert len(made) <= characters
        assert made == text or len(text) > characters
    assert model.asked <= 1


async def test_summary_by_a_model_says_so() -> None:
    text = "ERROR in line 7\n" * 6000
    async with ScriptedModels(lambda request: Say("Everything failed in line 7.").using(100, 10)) as server:
        models = Models(Settings(model=("m",), models={"m": ModelAddress(kind="openai", url=server.openai_url, model="m")}))
        drawn = Spending()
        made = await summarize(models, drawn, text, characters=1000, about="a test run")
        await models.close()
    assert made == f"[Summary by a model of {len(text):,} characters]\nEverything failed in line 7."
    assert (len(server.requests), drawn.tokens) == (1, 110)
