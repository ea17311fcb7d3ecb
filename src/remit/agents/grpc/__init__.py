"""Agents of another remit, or of anything that speaks `tasks.proto`, as agents of this project: `[agents.NAME] grpc = "host:port"`."""
