"""Streams that are left in the middle, closed there and then, and not when somebody collects what was left."""

import contextlib
from collections.abc import AsyncIterator
from typing import TypeVar

T = TypeVar("T")


@contextlib.asynccontextmanager
async def closing(stream: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    try:
        yield stream
    finally:
        if (close := getattr(stream, "aclose", None)) is not None:
            await close()
