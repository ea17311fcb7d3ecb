"""The operations that tell how this server stands: its agents, its metrics, whether it lives and takes work."""

from starlette.requests import Request
from starlette.responses import Response

from remit.access.visitor import Doing
from remit.core.errors import Misused, Refused
from remit.serve.http.models import MetricsQuery, NoQuery
from remit.serve.http.operations import JSON
from remit.serve.http.reading import call_of
from remit.serve.http.views import agent_view
from remit.serve.service import Service
from remit.tool.speaking import json_text


async def list_agents(service: Service, request: Request, query: NoQuery) -> Response:
    """List the agents that the caller may use, each with what it takes."""
    settings = service.remit.settings
    return _json({"agents": [agent_view(spec, settings) for spec in service.agents(call_of(request))]})


async def get_agent(service: Service, request: Request, query: NoQuery) -> Response:
    """Look at one agent: what it does, the JSON schema of its parameters, its time limits."""
    name = request.path_params["name"]
    for spec in service.agents(call_of(request)):
        if spec.name == name:
            return _json(agent_view(spec, service.remit.settings))
    raise Misused(f"There is no agent {name[:80]}.", code="INVALID_TARGET", advice="GET /v1/agents lists those you may use.")


async def get_metrics(service: Service, request: Request, query: MetricsQuery) -> Response:
    """The metrics of delegation as JSON, whoever asked for the work: needs the grant `metrics`."""
    visitor = call_of(request).visitor
    if not visitor.may(Doing.METRICS):
        raise Refused(f"{visitor.principal} may not see metrics.", code="FORBIDDEN", advice="`remit token new --may metrics` grants it.")
    return _json((await service.remit.metrics(query.since)).to_dict())


async def lives(service: Service, request: Request, query: NoQuery) -> Response:
    """Whether this server lives."""
    return _json({"status": "ok"})


async def is_ready(service: Service, request: Request, query: NoQuery) -> Response:
    """Whether this server takes work: 503 once it stops."""
    return _json({"status": "stopping"}, 503) if service.is_stopping else _json({"status": "ok"})


def _json(document: object, status: int = 200) -> Response:
    return Response(json_text(document), status, media_type=JSON)
