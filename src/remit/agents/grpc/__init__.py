"""Agents of another remit, or of any server that speaks `tasks.proto`: `[agents.NAME] grpc = "host:port"`."""
