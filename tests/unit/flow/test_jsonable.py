"""Values of agents are converted to JSON in bounded time, or refused."""

import dataclasses
import itertools
import time
from typing import Any

import pytest
from pydantic import BaseModel

from remit import Failed
from remit.core.jsonable import clean_text, to_jsonable
from support.pace import allowed


@dataclasses.dataclass
class Box:
    inside: Any


class Model(BaseModel):
    inside: Any


def doubled(times: int) -> list[Any]:
    """Small in memory, 2**times values when written out."""
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
def test_iterator_is_refused_at_any_depth(endless: Any) -> None:
    with pytest.raises(Failed, match="may never end"):
        to_jsonable(endless)


@pytest.mark.parametrize("vast", [doubled(60), [1] * 10_000_000, ["x" * 1_000_000] * 1000, Box(doubled(60))])
def test_value_that_explodes_when_written_is_refused_quickly(vast: Any) -> None:
    began = time.monotonic()
    with pytest.raises(Failed, match="hand over a file"):
        to_jsonable(vast)
    assert time.monotonic() - began < allowed(3)


def test_cyclic_value_is_refused() -> None:
    circle: list[Any] = []
    circle.extend([circle, circle])
    with pytest.raises(Failed, match="nested deeper"):
        to_jsonable(circle)


@pytest.mark.parametrize("secret", ["rmt_" + "a" * 16, "rmtk_" + "a" * 43, "rmd_" + "a" * 60])
def test_shortest_secrets_are_redacted_anywhere(secret: str) -> None:
    assert clean_text(secret) == "[token]"
    assert to_jsonable({secret: [secret, (secret,), {"a": f"x {secret} y"}]}) == {"[token]": ["[token]", ["[token]"], {"a": "x [token] y"}]}
