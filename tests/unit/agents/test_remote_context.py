"""Operations of a context over RPC: every context has all of them, and nothing else is callable."""

from typing import Any, cast

import pytest

from remit import BlockingContext, Context, Failed, Misused
from remit.agents.remote_context import OPERATIONS, ContextService, RemoteBackend
from remit.core.context import ContextBackend
from remit.runtime.local_context import LocalBackend


@pytest.mark.parametrize("context", [Context, BlockingContext, LocalBackend])
def test_every_context_has_every_operation(context: type) -> None:
    assert [name for name in OPERATIONS if not hasattr(context, name)] == []
    assert OPERATIONS.keys() >= {"delegate", "start", "gather", "progress", "emit", "artifact", "spend", "checkpoint", "scratch", "budget"}


class Breaking:
    """A backend whose operations raise."""

    async def checkpoint(self, value: Any) -> None:
        raise KeyError("colour")

    def spend(self, tokens: int, cost: float) -> None:
        raise TypeError("tokens is not a number")


@pytest.mark.parametrize(
    ("name", "body", "error"),
    [
        ("__init__", {}, Misused),
        ("delegation", {}, Misused),
        ("printed", {"text": "x"}, Misused),
        ("delegate", {"request": {"agent": 5, "parameters": {}}}, Misused),
        ("delegate", {"request": {"agent": "a", "parameters": {}, "deps": 1}}, Misused),
        ("delegate", {"request": {"agent": "a", "parameters": {}}, "deps": 1}, Misused),
        ("permitted", {"paths": "/etc"}, Misused),
        ("permit", {"action": "x", "facts": {1: 2}}, Misused),
        ("artifact", {"path": 5, "type": "data", "summary": ""}, Misused),
        ("result", {"session_id": "sess_1700000000_aaaaaa"}, Misused),
        ("next", {"nonsense": 1}, Misused),
        ("spend", {"tokens": "x", "cost": 0}, Misused),
        ("checkpoint", {"value": 1}, Failed),
    ],
)
async def test_invalid_call_is_answered_with_an_error_of_remit(name: str, body: dict[str, Any], error: type[Exception]) -> None:
    service = ContextService(cast("ContextBackend", Breaking()))
    with pytest.raises(error):
        await service.answer(name, body)
    with pytest.raises(Misused):
        service.take(name, body)


def test_remote_backend_has_no_other_operation() -> None:
    backend = RemoteBackend.__new__(RemoteBackend)
    assert not hasattr(backend, "nonsense")
