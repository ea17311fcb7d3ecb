"""The end of a text that grows, in bounded memory and time: what a coding agent says. Used by `agents.coding` and `agents.acp`."""

LIMIT_CHARACTERS = 4 << 20
"""Of longer text the end is kept: a return comes last."""


class Tail:
    __slots__ = ("_between", "_parts", "_size")

    def __init__(self, between: str = "") -> None:
        """`between`: what stands between two pieces that were added."""
        self._between = between
        self._parts: list[str] = []
        self._size = 0

    def add(self, text: str) -> None:
        self._parts.append(text)
        self._size += len(text) + len(self._between)
        if self._size > 2 * LIMIT_CHARACTERS:  # not at each piece: joining them costs
            kept = self.text()
            self._parts, self._size = [kept], len(kept)

    def clear(self) -> None:
        self._parts, self._size = [], 0

    def text(self) -> str:
        return self._between.join(self._parts)[-LIMIT_CHARACTERS:]
