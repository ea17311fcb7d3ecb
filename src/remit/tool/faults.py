"""What is wrong with a request, told before anything runs (S5.3): a code, words, and as data what would be allowed."""

from collections.abc import Mapping
from typing import Any

from remit.core.errors import Misused


class DelegateError(Misused):
    """`code` is INVALID_TARGET, INVALID_OPERATION or INVALID_PARAMETERS; `details` names what is allowed, for programs."""

    def __init__(self, message: str, *, code: str | None = None, advice: str = "", details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, code=code, advice=advice)
        self.details: Mapping[str, Any] = details or {}

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a chunk or an answer (S5.4): code, message, details, recommendation."""
        return {"code": self.code, "message": self.message, "details": dict(self.details), "recommendation": self.advice}
