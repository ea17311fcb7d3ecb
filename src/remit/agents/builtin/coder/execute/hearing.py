"""What the code writes, as text: passed on piece by piece while it runs, and kept. How much of it there can be is the sandbox's matter."""

import codecs
from collections.abc import Callable
from typing import Any


class Hearing:
    def __init__(self, emit: Callable[[Any], None]) -> None:
        self._emit = emit
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": decoder("replace"), "stderr": decoder("replace")}  # a character may be cut in two
        self._texts: dict[str, list[str]] = {"stdout": [], "stderr": []}

    def hear(self, stream: str, data: bytes) -> None:
        self._keep(stream, self._decoders[stream].decode(data))

    def finish(self) -> None:
        for stream, decoder in self._decoders.items():
            self._keep(stream, decoder.decode(b"", final=True))

    def text(self, stream: str) -> str:
        return "".join(self._texts[stream])

    def _keep(self, stream: str, text: str) -> None:
        if text:
            self._texts[stream].append(text)
            self._emit({"stream": stream, "text": text})
