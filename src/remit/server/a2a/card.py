"""The agent card, and the callers and errors of A2A requests, in the SDK's terms.

An anonymous caller on this machine sees the skills on the card; one from elsewhere sees only how to authenticate, because the names of a
project's agents say what it works on. Authenticated callers get the extended card with the agents they may use.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from a2a.server.context import ServerCallContext
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from a2a.utils import errors as sdk_errors
from starlette.requests import ClientDisconnect

from remit.core.agents import AgentSpec
from remit.core.delegate_requests import DelegateError, parts_of, signature
from remit.core.errors import Refused, RemitError
from remit.core.ids import TRACEPARENT_HEADER as TRACEPARENT
from remit.core.request_metadata import EXTENSION, CallerPosition
from remit.server.a2a.messages import MODES
from remit.server.http.handlers import while_connected
from remit.server.service import HOLD, PRINCIPAL, Call, status_of
from remit.server.tokens import Principal
from remit.system.protobuf_values import struct_of, text_of

if TYPE_CHECKING:
    from starlette.requests import Request

log = logging.getLogger("remit.server.a2a")
_ABOUT = "Hands work to agents and always gives an answer back: in time, in one checked shape, with whatever was done."
_LONGEST_DESCRIPTION = 2000
WAIT = "remit.wait"
"""Key of the state of a call: awaits something while its client is connected."""


# ---- the card


def agent_card(interfaces: Sequence[tuple[str, str]], specs: Sequence[AgentSpec]) -> AgentCard:
    """`interfaces`: bindings and their addresses, in order of preference; `specs`: the skills that the reader may see."""
    bearer = HTTPAuthSecurityScheme(scheme="bearer", description="A token made by `remit token new`.")
    extension = AgentExtension(
        uri=EXTENSION,
        description="Depth, path and remaining time of the caller's delegation, so that limits hold across remits. "
        "Time is honoured from everybody, depth and path from callers with the grant `relay`.",
        params=struct_of({"metadata": {"depth": "integer", "path": "list of names", "timeLeftMs": "number"}}),
    )
    return AgentCard(
        name="remit",
        description=_ABOUT,
        version=version("remit"),
        provider=AgentProvider(organization="remit", url="https://remit.dev"),
        supported_interfaces=[AgentInterface(url=url, protocol_binding=name, protocol_version="1.0") for name, url in interfaces],
        capabilities=AgentCapabilities(streaming=True, push_notifications=False, extended_agent_card=True, extensions=[extension]),
        security_schemes={"bearer": SecurityScheme(http_auth_security_scheme=bearer)},
        security_requirements=[SecurityRequirement(schemes={"bearer": StringList()})],
        default_input_modes=MODES,
        default_output_modes=MODES,
        skills=[_skill(spec) for spec in specs] or [_any_skill()],
    )


def _skill(spec: AgentSpec) -> AgentSkill:
    target, operation = parts_of(spec.name)
    takes_words = "task" in spec.parameters_schema.get("properties", {})
    words = " ".join(part for part in (spec.description.strip(), f"Takes {signature(spec)}.") if part)
    return AgentSkill(
        id=spec.name,
        name=spec.name if operation is None else operation.replace("_", " "),
        description=text_of(words)[:_LONGEST_DESCRIPTION],
        tags=[target, spec.kind, *spec.languages],
        input_modes=MODES if takes_words else MODES[1:],
        output_modes=MODES,
    )


def _any_skill() -> AgentSkill:
    words = f"{_ABOUT} The extended card, for authenticated callers, has a skill for each agent."
    return AgentSkill(id="delegate", name="delegate work", description=words, tags=["delegation"], input_modes=MODES, output_modes=MODES)


# ---- callers: authenticated before, by `http.middleware`


class HttpCalls(DefaultServerCallContextBuilder):
    def build(self, request: "Request") -> ServerCallContext:
        built = super().build(request)
        known = {name: request.scope.get(name) for name in (PRINCIPAL, HOLD)}
        built.state.update(known, **{WAIT: partial(while_connected, request)})
        return built


def call_of(context: ServerCallContext, *, session: str | None = None, position: CallerPosition | None = None) -> Call:
    """Raises `Refused` if the request was not authenticated."""
    principal = context.state.get(PRINCIPAL)
    if not isinstance(principal, Principal):
        raise Refused("The request is not authenticated.", code="UNAUTHENTICATED", advice="Send a token: Authorization: Bearer ….")
    return Call.of(principal, "a2a", context.state["headers"].get(TRACEPARENT), session, position)


# ---- errors


@contextlib.contextmanager
def sdk_error() -> Iterator[None]:
    """Convert remit errors to the SDK's, by the one table (`service.status_of`), with remit's code in the data."""
    try:
        yield
    except RemitError as error:
        data: dict[str, Any] = {"code": error.code}
        if error.advice:
            data["recommendation"] = error.advice
        if isinstance(error, DelegateError) and error.details:
            data["details"] = dict(error.details)
        kind: type[sdk_errors.A2AError] = getattr(sdk_errors, status_of(error).a2a)
        raise kind(message=str(error), data=data) from error
    except (sdk_errors.A2AError, ClientDisconnect):
        raise
    except Exception as error:
        log.error("An A2A request failed.", exc_info=error)
        raise sdk_errors.InternalError("Internal server error. The server's log has the details.") from None
