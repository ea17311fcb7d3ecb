"""An OpenTelemetry collector on loopback: receives OTLP over HTTP and stores spans and metrics."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(slots=True)
class Collected:
    url: str = ""
    spans: list[Any] = field(default_factory=list)
    """`opentelemetry.proto.trace.v1.Span`, in order of arrival."""
    resources: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    """The latest metric of each name."""

    def span(self, name: str) -> Any:
        (found,) = [span for span in self.spans if span.name == name]
        return found


def attributes(of: Any) -> dict[str, Any]:
    """Attributes of a span, event, point or resource."""
    return {one.key: _value(one.value) for one in of.attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@contextmanager
def collecting() -> Iterator[Collected]:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    kept = Collected()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if self.path == "/v1/traces":
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    kept.resources.append(attributes(resource.resource))
                    kept.spans.extend(span for scope in resource.scope_spans for span in scope.spans)
            for sent in ExportMetricsServiceRequest.FromString(body).resource_metrics if self.path == "/v1/metrics" else ():
                kept.metrics.update({metric.name: metric for scope in sent.scope_metrics for metric in scope.metrics})
            self.send_response(200 if self.path in ("/v1/traces", "/v1/metrics") else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    kept.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
