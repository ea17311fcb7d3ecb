"""How those who wait for a delegation hear of it: that it is on record, how it ended, that there is news."""

import asyncio

from remit.core.errors import Unavailable
from remit.core.events import BEFORE_RUN, Event
from remit.core.result import Return
from remit.runtime.work import Output


class Outcome:
    """The return of a delegation, or the error why there is none. Set once."""

    __slots__ = ("_done", "_loop", "_recorded", "error", "result", "waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.result: Return | None = None
        self.error: Exception | None = None
        self.waiter: asyncio.Future[Return] | None = None
        """Of the one caller that waits in `run`. Cancelling that caller cancels this future, never those of others."""
        self._done: asyncio.Future[Return] | None = None
        self._recorded: asyncio.Future[str | None] | None = None

    @property
    def is_known(self) -> bool:
        return self.result is not None or self.error is not None

    @property
    def done(self) -> "asyncio.Future[Return]":
        """For those who watch it: a task that may be cancelled must not await it bare (`asyncio.wait` or `shield` it)."""
        if self._done is None:
            self._done = self._loop.create_future()
            if self.result is not None:
                self._done.set_result(self.result)
            elif self.error is not None:
                self._done.set_exception(self.error)
        return self._done

    def get(self) -> Return:
        """As its caller heard it. Raises the error why there is none."""
        if self.result is None:
            assert self.error is not None
            raise self.error
        return self.result

    def set(self, result: Return) -> None:
        if self.result is not None or self.error is not None:
            return
        self.result = result
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(result)
        if self._done is not None and not self._done.done():
            self._done.set_result(result)
        self.set_recorded()

    def fail(self, error: Exception) -> None:
        """There is no return: it could not be recorded, so nothing ran."""
        if self.is_known:
            return
        self.error = error
        for future in (self.waiter, self._done):
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # retrieved: a handle that is not asked is not an error
        self.set_recorded()

    def set_recorded(self, holder: str | None = None) -> None:
        """On record; `holder`: the session that holds its idempotency key, if another does."""
        if self._recorded is not None and not self._recorded.done():
            self._recorded.set_result(holder)

    def yield_key(self, holder: str) -> bool:
        """Another delegation holds its key: tell the caller that started it. False: the caller waits for the return instead."""
        if self._recorded is None:
            return False
        self.set_recorded(holder)
        self.fail(Unavailable("Another delegation holds its key.", advice="Ask again with the same key."))
        return True

    async def wait_recorded(self) -> str | None:
        """Until it is on record; the session that holds its key, if another does. Raises the error why it could not be recorded.

        A caller that is cancelled here leaves it as it is: it continues."""
        holder: str | None = None
        if not self.is_known:
            self._recorded = self._loop.create_future()
            try:
                holder = await self._recorded
            except asyncio.CancelledError:
                self._recorded = self._loop.create_future()  # for those who follow it: the other one went with its caller
                raise
        if holder is None and self.error is not None:
            raise self.error
        return holder

    async def wait_recorded_or_done(self) -> None:
        await asyncio.wait([self.done if self._recorded is None else self._recorded], timeout=1.0)


class RunOutput(Output):
    """Output of a delegation, with those who follow it."""

    __slots__ = ("_news", "on_record")

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self.on_record = BEFORE_RUN
        """The number of the last event that is on record: readers get no more."""
        self._news: asyncio.Event | None = None

    def restore(self, events: list[Event], count: int) -> None:
        super().restore(events, count)
        self.on_record = BEFORE_RUN + count

    def written(self, _problem: object = None) -> None:
        """In order, once for each event. An event that could not be written yet is read all the same."""
        self.on_record += 1
        self.notify()

    async def wait_news(self) -> None:
        if self._news is None:
            self._news = asyncio.Event()
        await self._news.wait()

    def notify(self) -> None:
        """Wake those who follow; each waits on the event of its time."""
        if self._news is not None:
            self._news.set()
            self._news = None
