"""What an agent hands over is read in bounded time, or refused: nothing it makes can hold the orchestrator up."""

import dataclasses
import itertools
import time
from typing import Any

import pytest
from pydantic import BaseModel

from remit.core.errors import Failed
from remit.flow.plain import plain, shown, weigh


@dataclasses.dataclass
class Box:
    inside: Any


class Model(BaseModel):
    inside: Any


def doubled(times: int) -> list[Any]:
    """Small in memory, 2**times on paper."""
    value: list[Any] = []
    for _ in range(times):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    "endless",
    [
        itertools.count(),
        {"a": [itertools.repeat(1)]},
        Box(itertools.cycle([1])),
        Model(inside=itertools.count()),
        Box(Model(inside={"deep": iter([1])})),
    ],
    ids=["bare", "in a list", "in a dataclass", "in a model", "deep"],
)
def test_an_iterator_is_refused_however_it_is_wrapped(endless: Any) -> None:
    with pytest.raises(Failed, match="may never end"):
        plain(endless)


@pytest.mark.parametrize("vast", [doubled(60), [1] * 10_000_000, ["x" * 1_000_000] * 1000, Box(doubled(60))])
def test_what_is_small_in_memory_and_vast_on_paper_is_refused_quickly(vast: Any) -> None:
    began = time.monotonic()
    with pytest.raises(Failed, match="hand over a file"):
        plain(vast)
    assert time.monotonic() - began < 3


def test_what_holds_itself_is_refused() -> None:
    circle: list[Any] = []
    circle.extend([circle, circle])
    with pytest.raises(Failed, match="nested deeper"):
        plain(circle)


def test_ordinary_values_come_out_as_json_holds_them() -> None:
    given = {"a": (1, 2.5, None), "b": Box([Model(inside="x")]), 3: {True}}
    assert plain(given) == {"a": [1, 2.5, None], "b": {"inside": [{"inside": "x"}]}, "3": [True]}
    weigh(given)


def test_what_cannot_be_shown_is_named_instead() -> None:
    assert shown([1, "a"]) == "[1, 'a']"
    assert "that cannot be shown: more than" in shown(doubled(60))
