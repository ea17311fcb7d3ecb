"""Shared parts of the engine suite: the list of checks, opening a Remit, waiting for a condition."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from remit import Remit, Return


class OpenRemit(Protocol):
    """Opens the runtime under test on `root`; every call opens the same project. `settings` as in `remit.toml`."""

    def __call__(self, root: Path, agents: list[Any], **settings: Any) -> AbstractAsyncContextManager[Remit]: ...


Check = Callable[[OpenRemit, Path], Awaitable[None]]

ENGINE_CHECKS: list[Check] = []
DURABILITY_CHECKS: list[Check] = []
"""Promises that an engine without a durable record cannot keep. Also among `ENGINE_CHECKS`."""


def promise(check: Check) -> Check:
    ENGINE_CHECKS.append(check)
    return check


def durable(check: Check) -> Check:
    DURABILITY_CHECKS.append(check)
    return check


SOON_SECONDS = 30.0
"""How long a check waits for a required event; normally much shorter."""


async def until(holds: Callable[[], bool], seconds: float = SOON_SECONDS) -> None:
    """Wait until `holds()`, polled often."""
    end = asyncio.get_running_loop().time() + seconds
    while not holds():
        assert asyncio.get_running_loop().time() < end, "it did not happen in time"
        await asyncio.sleep(0.005)


def code_of(result: Return) -> str:
    """The code of the first error; a return without one breaks the promise."""
    assert result.errors, f"no error in {result}"
    return result.errors[0].code


E = TypeVar("E", bound=BaseException)


async def raised(kind: type[E], waiting: Awaitable[object]) -> E:
    """The error that `waiting` must end with."""
    try:
        await waiting
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")
