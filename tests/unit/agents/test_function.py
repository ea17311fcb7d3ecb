"""`@agent`: declarations, validation of parameters against the signature, and the function itself."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from remit import Context, Isolation, Misused, agent
from remit.core.agents import Answers


class Point(BaseModel):
    x: int
    y: int = Field(default=0, ge=0)


@agent("reader", timeout=5, description="Reads.")
async def reader(ctx: Context, path: Path, point: Point, limit: int = 3) -> str:
    return f"{path} {point.x} {limit}"


def faults_of(parameters: dict[str, Any]) -> Misused:
    with pytest.raises(Misused) as caught:
        reader.check(parameters)
    assert caught.value.code == "INVALID_PARAMETERS"
    return caught.value


def test_each_fault_is_named_with_the_valid_parameters() -> None:
    error = faults_of({"pth": "a", "point": {"x": "no", "y": -1}, "limit": 2})
    for word in (
        "path: it is required",
        "pth: there is no such parameter (did you mean path?)",
        "point.x must be a valid integer",
        "point.y must be",
    ):
        assert word in error.message
    assert error.advice == "reader takes path, point, limit."


def test_isolation_is_derived_from_the_function() -> None:
    @agent
    def plain_one() -> None:
        """What it does.

        And more.
        """

    @agent("named", isolation="process", answers="return")
    async def other() -> None: ...

    assert (plain_one.spec.name, plain_one.spec.isolation, plain_one.spec.description) == ("plain_one", Isolation.THREAD, "What it does.")
    assert (other.spec.isolation, other.spec.answers) == (Isolation.PROCESS, Answers.RETURN)


async def _takes_none() -> None: ...


def _generator() -> Any:
    yield 1


async def _async_generator() -> Any:
    yield 1


def _sync() -> None: ...


async def _positional(x: int, /) -> None: ...


@pytest.mark.parametrize(
    ("function", "declared"),
    [
        (_generator, {}),
        (_async_generator, {}),
        (_sync, {"isolation": "inline"}),
        (_takes_none, {"isolation": "thread"}),
        (_takes_none, {"isolation": "cage"}),
        (_takes_none, {"timeout": -1}),
        (_takes_none, {"timeout": "soon"}),
        (_takes_none, {"idle": 0}),
        (_takes_none, {"answers": "maybe"}),
        (_positional, {}),
        (42, {}),
    ],
)
def test_invalid_declaration_is_refused(function: Any, declared: dict[str, Any]) -> None:
    with pytest.raises(Misused):
        agent("name", **declared)(function)
