"""What can be measured from outside: traces and metrics of OpenTelemetry, an endpoint for Prometheus, structured logs."""
