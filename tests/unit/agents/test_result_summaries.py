"""Summaries of large results never exceed the requested length."""

import asyncio
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from remit import Unavailable
from remit.core.model_messages import Answer, Reply, SpendSink
from remit.models.questions import summarize


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
    remaining = 600.0

    def spend(self, *, tokens: int = 0, cost: float = 0.0) -> None: ...
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
