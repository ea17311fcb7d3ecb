"""The OpenAPI 3.1 document of the REST API, made from the operations and the models that carry them out. Nothing in it is written twice."""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from remit.serve.http.models import Problem
from remit.serve.http.operations import COMMON, JSON, Answer, Header, Operation
from remit.serve.http.problems import MEDIA_TYPE

_REFERENCE = "#/components/schemas/{model}"
_IN_PATH = re.compile(r"\{(\w+)\}")
_CREDENTIALS = {
    "token": {"type": "http", "scheme": "bearer", "description": "`remit token new` makes one."},
    "certificate": {"type": "mutualTLS"},
}
_RETRY = Header(name="Retry-After", words="Seconds after which to try again.", schema={"type": "integer"})
_CHALLENGE = Header(name="WWW-Authenticate", words="RFC 6750.")
_REFUSAL_HEADERS = {401: (_CHALLENGE,), 429: (_RETRY,), 503: (_RETRY,)}


def document_of(operations: Sequence[Operation]) -> dict[str, Any]:
    models, references = _schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, models, references)
    queries = {operation.query.__name__ for operation in operations}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "remit",
            "version": version("remit"),
            "description": "Hand work to any agent and always get an answer back.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": {name: schema for name, schema in models.items() if name not in queries},
            "securitySchemes": _CREDENTIALS,
        },
        "security": [{name: []} for name in _CREDENTIALS],
    }


def _schemas(operations: Sequence[Operation]) -> tuple[dict[str, Any], dict[type[BaseModel], dict[str, Any]]]:
    used: set[type[BaseModel]] = {Problem, *(operation.query for operation in operations)}
    for operation in operations:
        used |= {operation.body} if operation.body is not None else set()
        used |= {model for answer in operation.answers.values() for model in answer.media.values()}
    named = sorted(used, key=lambda model: model.__name__)
    made, document = models_json_schema([(model, "validation") for model in named], ref_template=_REFERENCE)
    return document["$defs"], {model: schema for (model, _), schema in made.items()}  # type: ignore[misc]


def _described(operation: Operation, models: Mapping[str, Any], references: Mapping[type[BaseModel], Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.words.partition(". ")[0].rstrip("."),
        "description": operation.words,
        "parameters": _parameters(operation, models),
        "responses": _responses(operation, references),
    }
    if operation.body is not None:
        is_needed = any(field.is_required() for field in operation.body.model_fields.values())
        described["requestBody"] = {"required": is_needed, "content": {JSON: {"schema": references[operation.body]}}}
    if operation.is_open:
        described["security"] = []
    return described


def _parameters(operation: Operation, models: Mapping[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1, "maxLength": 200}}
        for name in _IN_PATH.findall(operation.path)
    ]
    query = models[operation.query.__name__]
    for name, schema in query.get("properties", {}).items():
        plain = _without_null(schema)
        words = {"description": plain.pop("description")} if "description" in plain else {}
        found.append({"name": name, "in": "query", **words, "schema": plain})
    found += [{"name": one.name, "in": "header", "description": one.words, "schema": dict(one.schema)} for one in operation.headers]
    return found


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A query says nothing by leaving it out: there is no null in it."""
    plain = {name: value for name, value in schema.items() if name != "title" and not (name == "default" and value is None)}
    choices = [one for one in plain.get("anyOf", ()) if one.get("type") != "null"]
    return {**{name: value for name, value in plain.items() if name != "anyOf"}, **choices[0]} if len(choices) == 1 else plain


def _responses(operation: Operation, references: Mapping[type[BaseModel], Any]) -> dict[str, Any]:
    found = {str(status): _response(answer, references) for status, answer in operation.answers.items()}
    refusal = references[Problem]
    for status in sorted({*COMMON, *operation.refused}):
        headers = _headers(_REFUSAL_HEADERS.get(status, ()))
        content = {MEDIA_TYPE: {"schema": refusal}}
        found.setdefault(str(status), {"description": HTTPStatus(status).phrase, "content": content, **headers})
    return found


def _response(answer: Answer, references: Mapping[type[BaseModel], Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"description": answer.words, **_headers(answer.headers)}
    if answer.media:
        described["content"] = {media: {"schema": references[model]} for media, model in answer.media.items()}
    if answer.links:
        described["links"] = {name: {"operationId": name, "parameters": {"taskId": where}} for name, where in answer.links.items()}
    return described


def _headers(headers: Sequence[Header]) -> dict[str, Any]:
    return {"headers": {one.name: {"description": one.words, "schema": dict(one.schema)} for one in headers}} if headers else {}
