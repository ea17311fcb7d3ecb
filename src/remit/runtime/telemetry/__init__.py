"""Telemetry: OpenTelemetry traces and metrics, an endpoint for Prometheus, structured logs."""
