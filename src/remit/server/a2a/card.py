"""The agent card, and the callers and errors of A2A requests, in the SDK's terms.

An anonymous caller on this machine sees the skills on the card; one from elsewhere sees only how to authenticate, because the names of a
project's agents say what it works on. Authenticated callers get the extended card with the agents they may use.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import grpc.aio
from a2a.auth.user import UnauthenticatedUser, User
from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.server.routes.common import ServerCallContextBuilder
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
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, VERSION_HEADER

from remit.agents.proto.metadata import EXTENSION, CallerPosition
from remit.agents.proto.values import struct_of, text_of
from remit.core.agents import AgentSpec
from remit.core.delegate_requests import DelegateError, parts_of, signature
from remit.core.errors import Refused, RemitError
from remit.core.ids import TRACEPARENT_HEADER as TRACEPARENT
from remit.server.service import PRINCIPAL, Call, status_of
from remit.server.tokens import Principal

if TYPE_CHECKING:
    import grpc.aio
    from starlette.requests import Request


from remit.server.a2a.messages import MODES

log = logging.getLogger("remit.server.a2a")
JSON_RPC, REST, GRPC = "JSONRPC", "HTTP+JSON", "GRPC"
_ABOUT = "Hands work to agents and always gives an answer back: in time, in one checked shape, with whatever was done."
_LONGEST_DESCRIPTION = 2000


# ---- the card


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Contents of the card besides the skills."""

    interfaces: Sequence[tuple[str, str]]
    """Bindings and their addresses, in order of preference."""
    shows_skills: bool = True
    """Whether anonymous callers see the skills."""


def public_card(facts: Facts, specs: Sequence[AgentSpec]) -> AgentCard:
    return extended_card(facts, specs if facts.shows_skills else ())


def extended_card(facts: Facts, specs: Sequence[AgentSpec]) -> AgentCard:
    bearer = HTTPAuthSecurityScheme(scheme="bearer", description="A token made by `remit token new`.")
    schemes = {"bearer": SecurityScheme(http_auth_security_scheme=bearer)}
    extension = AgentExtension(
        uri=EXTENSION,
        description="Depth, path and remaining time of the caller's delegation, so that limits hold across remits. "
        "Time is honoured from everybody, depth and path from callers with the grant `relay`.",
        params=struct_of({"metadata": {"depth": "integer", "path": "list of names", "timeLeftMs": "number"}}),
    )
    interfaces = facts.interfaces
    return AgentCard(
        name="remit",
        description=_ABOUT,
        version=version("remit"),
        provider=AgentProvider(organization="remit", url="https://remit.dev"),
        supported_interfaces=[AgentInterface(url=url, protocol_binding=name, protocol_version="1.0") for name, url in interfaces],
        capabilities=AgentCapabilities(streaming=True, push_notifications=False, extended_agent_card=True, extensions=[extension]),
        security_schemes=schemes,
        security_requirements=[SecurityRequirement(schemes={name: StringList()}) for name in schemes],
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


# ---- callers: authenticated before, by `http.middleware` or `grpc.auth_interceptor`


class Caller(User):
    """A principal as the SDK's user."""

    def __init__(self, principal: Principal) -> None:
        self._principal = principal

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return self._principal.name


class HttpCalls(ServerCallContextBuilder):
    def build(self, request: "Request") -> ServerCallContext:
        headers = {name.lower(): value for name, value in request.headers.items()}
        return _context(request.scope.get(PRINCIPAL), headers, request.headers.getlist(HTTP_EXTENSION_HEADER))


class GrpcCalls:
    def build(self, context: "grpc.aio.ServicerContext[Any, Any]") -> ServerCallContext:
        """Raises the SDK's error for another version; the SDK checks it for the other bindings. Without one it is 0.3."""
        from remit.server.grpc.auth_interceptor import current_call

        given = [(name.lower(), value) for name, value in context.invocation_metadata() or () if isinstance(value, str)]
        asked = dict(given).get(VERSION_HEADER.lower()) or PROTOCOL_VERSION_0_3
        if asked.partition(".")[0] != PROTOCOL_VERSION_1_0.partition(".")[0]:
            raise sdk_errors.VersionNotSupportedError(f"A2A version {asked[:40]} is not supported. Supported: {PROTOCOL_VERSION_1_0}.")
        return _context(current_call().principal, dict(given), [value for name, value in given if name == HTTP_EXTENSION_HEADER.lower()])


def _context(principal: Principal | None, headers: dict[str, str], extensions: list[str]) -> ServerCallContext:
    user = UnauthenticatedUser() if principal is None else Caller(principal)
    state = {"headers": headers, PRINCIPAL: principal}
    return ServerCallContext(state=state, user=user, requested_extensions=get_requested_extensions(extensions))


def call_of(context: ServerCallContext, *, session: str | None = None, position: CallerPosition | None = None) -> Call:
    """Raises `Refused` if the request was not authenticated."""
    principal = context.state.get(PRINCIPAL)
    if not isinstance(principal, Principal):
        raise Refused("The request is not authenticated.", code="UNAUTHENTICATED", advice="Send a token: Authorization: Bearer ….")
    return Call.of(principal, "a2a", position or CallerPosition(), context.state["headers"].get(TRACEPARENT), session)


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
        if (seconds := getattr(error, "retry_after_seconds", None)) is not None:
            data["retryAfterSeconds"] = seconds
        kind: type[sdk_errors.A2AError] = getattr(sdk_errors, status_of(error).a2a)
        raise kind(message=str(error), data=data) from error
    except sdk_errors.A2AError:
        raise
    except Exception as error:
        log.error("An A2A request failed.", exc_info=error)
        raise sdk_errors.InternalError("Internal server error. The server's log has the details.") from None
