"""What the bodies of requests hold is given back, once (issue 7 item 4)."""

from collections.abc import Iterator
from typing import Any

import pytest

from remit.server.http.middleware import Bodies, Exchange
from remit.server.http.server import HttpLimits


@pytest.mark.parametrize("sizes", [(60, 0), (0, 60, 0), (0, 0, 30, 30), (0,)])
async def test_what_a_body_holds_is_given_back_once_however_it_comes(sizes: tuple[int, ...]) -> None:
    pieces: Iterator[dict[str, Any]] = iter(
        [{"type": "http.request", "body": b"x" * size, "more_body": place < len(sizes)} for place, size in enumerate(sizes, 1)]
    )

    async def receive() -> dict[str, Any]:
        return next(pieces)

    async def send(_message: Any) -> None:
        raise AssertionError

    bodies = Bodies(100)
    exchange = Exchange({"headers": [(b"transfer-encoding", b"chunked")]}, receive, send, HttpLimits(), bodies)
    exchange.most_bytes = 100
    with exchange.places:
        for _ in sizes:
            await exchange.receive()
        assert bodies.held_bytes == sum(sizes)
    assert bodies.held_bytes == 0
