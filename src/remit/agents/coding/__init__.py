"""Command-line coding agents in their headless modes: claude, codex, opencode.

`agent` executes a delegation, `dialects` are the vendors' command lines and streams, `detect` finds installed ones."""
