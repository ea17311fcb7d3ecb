"""Rollout files of Codex: the usage of each request, written during a turn. Its stream reports usage only at the end of a turn."""

import json
import os
from pathlib import Path
from typing import Any

from remit.agents.coding.dialects import Scope, VendorListener, codex_usage, count_of, mapping_of, text_of
from remit.system.beneath import open_regular

POLL_SECONDS = 0.02
PIECE_BYTES = 1024 * 1024
"""Bytes per read; a longer line is skipped."""


class Rollout:
    """The growing file of one session. `is_resumed`: earlier runs counted its existing content."""

    def __init__(self, folder: Path, *, is_resumed: bool) -> None:
        self._folder = folder
        self._skips_first = is_resumed
        self._path: Path | None = None
        self._offset = 0
        self._rest = b""
        self._model = ""

    def read(self, session: str | None, to: VendorListener) -> None:
        """Report what was written since the last read."""
        if self._path is None and (session is None or not self._find(session)):
            return
        assert self._path is not None
        try:
            if os.stat(self._path).st_size <= self._offset:
                return
            with os.fdopen(open_regular(self._path), "rb") as opened:
                opened.seek(self._offset)
                data = opened.read(PIECE_BYTES)
        except OSError:
            return
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > PIECE_BYTES:
            self._rest = b""
        for line in lines:
            if b"token_count" in line or b"turn_context" in line:
                self._tell(line, to)

    def _find(self, session: str) -> bool:
        self._path = next(self._folder.glob(f"*/*/*/rollout-*{session}.jsonl"), None)
        if self._path is not None and self._skips_first:
            self._offset = self._path.stat().st_size
        return self._path is not None

    def _tell(self, line: bytes, to: VendorListener) -> None:
        try:
            written: Any = json.loads(line)
        except (ValueError, RecursionError):
            return
        payload = mapping_of(mapping_of(written).get("payload"))
        if mapping_of(written).get("type") == "turn_context":
            self._model = text_of(payload.get("model")) or self._model
        info = mapping_of(payload.get("info"))
        last = mapping_of(info.get("last_token_usage"))
        if payload.get("type") != "token_count" or not last:
            return
        used = codex_usage(last)
        total = count_of(mapping_of(info.get("total_token_usage")).get("total_tokens"))  # a repetition is the same request
        to.spent(Scope.ITEM, used.tokens, key=f"request up to {total}", model=self._model, used=used)
