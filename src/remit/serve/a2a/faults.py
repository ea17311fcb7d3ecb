"""Our errors as those of the SDK, by the one table (`serve.statuses`). Our own code goes along, so that a client need not guess back."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from a2a.utils import errors as theirs

from remit.core.errors import RemitError
from remit.serve.statuses import status_of
from remit.tool.faults import DelegateError

log = logging.getLogger("remit.serve.a2a")


def fault_of(error: RemitError) -> theirs.A2AError:
    kind: type[theirs.A2AError] = getattr(theirs, status_of(error).a2a)
    data: dict[str, Any] = {"code": error.code}
    if error.advice:
        data["recommendation"] = error.advice
    if isinstance(error, DelegateError) and error.details:
        data["details"] = dict(error.details)
    if (seconds := getattr(error, "retry_after_seconds", None)) is not None:
        data["retryAfterSeconds"] = seconds
    return kind(message=str(error), data=data)


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Around whatever a request does."""
    try:
        yield
    except RemitError as error:
        raise fault_of(error) from error
    except theirs.A2AError:
        raise
    except Exception as error:
        log.error("A request of A2A failed here.", exc_info=error)
        raise theirs.InternalError("Something went wrong here. The server's log has it.") from None
