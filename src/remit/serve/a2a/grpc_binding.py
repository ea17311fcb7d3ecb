"""The gRPC binding of A2A: the SDK's, which tells of an error only which one of A2A's it is. Our own code and advice go along here too.

In the trailers, under the names that the gRPC door uses (`proto.metadata`); over the other bindings they stand in the error's data.
"""

from typing import Any
from urllib.parse import quote

import grpc.aio
from a2a.server.request_handlers.grpc_handler import GrpcHandler
from a2a.utils.errors import A2AError

from remit.proto.metadata import ADVICE, CODE, PUSHBACK
from remit.serve.grpc.errors import printable, short


class GrpcBinding(GrpcHandler):
    async def abort_context(self, error: A2AError, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        data = error.data if isinstance(error.data, dict) else {}
        told: list[tuple[str, str]] = []
        if isinstance(code := data.get("code"), str):
            told.append((CODE, quote(code, safe=" ")))
        if isinstance(advice := data.get("recommendation"), str):
            told.append((ADVICE, printable(advice)))
        if isinstance(wait := data.get("retryAfterSeconds"), int | float):
            told.append((PUSHBACK, str(int(1000 * wait) + 1)))
        context.set_trailing_metadata((*(context.trailing_metadata() or ()), *told))
        error.message = short(error.message)  # it is metadata too, of which clients take 8 KiB
        await super().abort_context(error, context)
