"""Coding agents of the command line in their own headless modes: claude, codex, opencode.

`agent` carries out a delegation, `dialects` are the vendors' command lines and streams, `detect` finds which of them are installed.
"""
