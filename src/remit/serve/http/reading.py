"""What a request says: its body as JSON, its query, and what comes along in headers. Judged by the models; raises what goes back.

Strict where programs differ: UTF-8 only, no NaN, no name twice, no half characters, no nesting without end.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from remit.core.errors import RemitError
from remit.core.tracing import parse
from remit.flow.plain import weigh
from remit.serve.http.entering import VISITOR
from remit.serve.http.problems import HttpRefused
from remit.serve.service import Call
from remit.system.threads import off_loop
from remit.tool.faults import DelegateError

DOOR = "http"
JSON = "application/json"
SMALL_BYTES = 64 * 1024
"""What is larger is read beside the loop: a few megabytes of empty lists take a while."""
Model = TypeVar("Model", bound=BaseModel)


async def body_of(request: Request, model: type[Model]) -> Model:
    """The body, which may be left out where nothing in it is needed."""
    raw = await request.body()
    if not raw and all(not field.is_required() for field in model.model_fields.values()) and "content-type" not in request.headers:
        return model()
    if request.headers.get("content-encoding", "identity") != "identity":
        raise _wrong_media("Bodies are taken as they are, not packed.", "accept-encoding", "identity")
    media, _, options = request.headers.get("content-type", "").partition(";")
    charset = options.strip().lower()
    if media.strip().lower() != JSON or (charset and charset.replace('"', "") != "charset=utf-8"):
        raise _wrong_media(f"The body must be {JSON}, in UTF-8.", "accept", JSON)
    return judged(model, await off_loop(json_of, raw) if len(raw) > SMALL_BYTES else json_of(raw))


def json_of(raw: bytes) -> Any:
    try:
        text = raw.decode("utf-8")
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_once)
        weigh(value)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # half a character is only found by writing it
    except (ValueError, RecursionError) as error:  # both of Unicode's are ValueErrors
        raise DelegateError(f"The body is not JSON: {_words(error)}.", details={"body": _words(error)}) from None
    except RemitError as error:
        raise DelegateError(f"The body is {error.message}.", advice="Send less, or a file by its path.") from None
    return value


def query_of(request: Request, model: type[Model]) -> Model:
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if _is_list(model, name):
            given.setdefault(name, []).append(value)
        elif name in given:
            raise DelegateError(f"{name[:80]} is given twice.", advice="Write it once.")
        else:
            given[name] = value
    return judged(model, given)


def judged(model: type[Model], given: Any) -> Model:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        faults = [
            {"parameter": ".".join(str(part) for part in one["loc"])[:200], "fault": one["msg"][:400]}
            for one in error.errors(include_url=False, include_context=False, include_input=False)[:20]
        ]
        first = faults[0]
        where = first["parameter"] or "The body"
        advice = f"There are {', '.join(model.model_fields)}." if model.model_fields else "It takes none."
        raise DelegateError(f"{where}: {first['fault']}.", advice=advice, details={"faults": faults}) from None


def call_of(request: Request, session: str | None = None) -> Call:
    """Who asks, and what it says of where it stands: under the names that gRPC's metadata have too."""
    headers = request.headers
    traceparent = parse(headers.get("traceparent"))
    return Call(
        visitor=request.scope[VISITOR],
        door=DOOR,
        session=session,
        traceparent=str(traceparent) if traceparent is not None else None,
        deadline_at=_deadline(headers),
        depth=_depth(headers),
        path=_path(headers),
    )


def _deadline(headers: Mapping[str, str]) -> float | None:
    given = headers.get("remit-deadline-ns")
    if given is None:
        return None
    if not given.isascii() or not given.isdigit() or len(given) > 20:
        raise DelegateError("remit-deadline-ns must be nanoseconds since 1970.")
    return min(int(given) / 1e9, 1e11)


def _depth(headers: Mapping[str, str]) -> int:
    given = headers.get("remit-depth", "0")
    if not given.isascii() or not given.isdigit() or len(given) > 4:
        raise DelegateError("remit-depth must be a small whole number.")
    return int(given)


def _path(headers: Mapping[str, str]) -> tuple[str, ...]:
    given = headers.get("remit-path")
    if given is None:
        return ()
    try:
        path = json.loads(given)
    except (ValueError, RecursionError):
        path = None
    if not isinstance(path, list) or len(path) > 100 or not all(_is_name(name) for name in path):
        raise DelegateError("remit-path must be a list of names, as JSON.")
    return tuple(path)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable()


def _wrong_media(words: str, header: str, value: str) -> HttpRefused:
    return HttpRefused(words, code="UNSUPPORTED_MEDIA_TYPE", advice="Send JSON as it is.", headers={header: value})


def _is_list(model: type[BaseModel], name: str) -> bool:
    field = model.model_fields.get(name)
    return field is not None and field.default_factory is list


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large a number")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice in one object")
    return found


def _words(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeError):
        return "it holds half a character, or is not UTF-8"
    return str(error)[:200]
