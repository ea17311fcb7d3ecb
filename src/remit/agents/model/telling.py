"""What is told of a model at work: its words in pieces, who answered in whose place, and what it costs where nobody knows.

Used by `agents.model.agent`.
"""

import time

from remit.agents.transcript import Words
from remit.flow.context import Context, warn
from remit.flow.plain import clean
from remit.models.messages import RESTART, Asked, Ended, Message, Reply

PIECE_CHARACTERS = 800
PIECE_SECONDS = 0.5
"""Words are told on in pieces of so many characters or seconds: an event for each token is worth nothing."""
_FAULT_CHARACTERS = 300


class Telling:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._words = Words(ctx)
        self._waiting: list[str] = []
        self._told_at = time.monotonic()
        self._known: set[str] = set()

    def hear(self, text: str) -> None:
        if text == RESTART:
            self._waiting = []
            self._words = Words(self._ctx)
            return
        self._waiting.append(text)
        if sum(map(len, self._waiting)) >= PIECE_CHARACTERS or time.monotonic() - self._told_at >= PIECE_SECONDS:
            self._flush()

    def end(self, message: Message) -> None:
        """A message is whole; the return at the end of an answer is no news: it reaches the caller as the return."""
        if isinstance(message, Reply):
            self._flush()
            if message.calls:
                self._words.end_message()
            else:
                self._words.end_turn()

    def asked(self, asked: Asked) -> None:
        by = asked.reply.model
        for tried in asked.tried:
            if self._is_news(f"{tried.model} {tried.fault}"):
                fault = clean(" ".join(tried.fault.split()))[:_FAULT_CHARACTERS].rstrip(".")
                self._ctx.progress(f"{tried.model} did not answer ({fault}); asked {by}.")
        if asked.cost is None and self._is_news(f"price of {by}"):
            warn(self._ctx, f'The price of {by} is unknown: what it cost is not counted. Write it under [prices."{by}"].')
        if asked.ended is Ended.LENGTH:
            self._ctx.progress(f"A reply of {by} was longer than is taken, and was cut off.")

    def _flush(self) -> None:
        text, self._waiting, self._told_at = "".join(self._waiting), [], time.monotonic()
        if text:
            self._words.say(text)

    def _is_news(self, what: str) -> bool:
        is_news = what not in self._known
        self._known.add(what)
        return is_news
