"""What a remit says of a fault is read over every binding of A2A: over gRPC it stands in the trailers of the call."""

from typing import Any

import pytest
from a2a.utils.errors import InternalError, InvalidParamsError, InvalidRequestError

from remit.agents.a2a.task import error_of, may_pass, retry_after
from remit.core.errors import Unavailable


def by_grpc(kind: Any, *trailers: tuple[str, str]) -> Any:
    class Cause(Exception):
        def trailing_metadata(self) -> tuple[tuple[str, str], ...]:
            return trailers

    error = kind("No.")
    error.__cause__ = Cause()
    return error


@pytest.mark.parametrize(
    "error",
    [
        InvalidParamsError("No.", data={"code": "INVALID_TARGET", "recommendation": "Größer."}),
        by_grpc(InvalidParamsError, ("remit-code", "INVALID_TARGET"), ("remit-advice", "Gr%C3%B6%C3%9Fer.")),
    ],
)
def test_its_code_and_advice_come_along(error: Any) -> None:
    told = error_of(error, "far")
    assert (told.code, told.advice, may_pass(error)) == ("INVALID_TARGET", "Größer.", False)


def test_one_that_is_not_let_in_or_comes_too_often_is_told_so() -> None:
    assert "refuses our token" in error_of(by_grpc(InvalidRequestError, ("remit-code", "FORBIDDEN")), "far").message
    busy = by_grpc(InternalError, ("remit-code", "RATE_LIMITED"), ("grpc-retry-pushback-ms", "1500"))
    assert isinstance(error_of(busy, "far"), Unavailable)
    assert retry_after(busy) == 1.5
    assert retry_after(by_grpc(InternalError, ("grpc-retry-pushback-ms", "-²"))) is None
