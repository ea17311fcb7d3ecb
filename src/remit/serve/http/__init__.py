"""The HTTP door: a small REST API with OpenAPI and server-sent events."""
