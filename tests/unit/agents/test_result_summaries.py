"""Summaries of large results never exceed the requested length."""

import asyncio
from typing import Any
from unittest.mock import AsyncMock, Mock

from hypothesis import given
from hypothesis import strategies as st

from remit import Unavailable
from remit.core.model_messages import Answer, Reply
from remit.models.questions import summarize


@given(
    text=st.text(max_size=4000) | st.integers(0, 400_000).map(lambda n: "line of text\n" * (n // 13)),
    characters=st.integers(0, 5000),
    says=st.none() | st.text(max_size=9000),
)
def test_summary_never_exceeds_the_requested_length(text: str, characters: int, says: str | None) -> None:
    write = AsyncMock(
        return_value=Answer(reply=Reply(text=says or "")), side_effect=None if says is not None else Unavailable("Nobody answers.")
    )
    model: Any = Mock(is_configured=lambda: True, write=write)
    for models in (None, model):
        made = asyncio.run(summarize(models, Mock(remaining=600.0), text, characters=characters))
        assert len(made) <= characters
        assert made == text or len(text) > characters
    assert write.await_count <= 1
