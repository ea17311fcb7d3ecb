"""The thread that sends: bounded, and nobody waits for it (issue 7 item 6)."""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from remit.signals import sending
from remit.signals.sending import BATCH_ITEMS, CLOSING_SECONDS, QUEUE_ITEMS, Sender


class Route:
    """A collector that can be out of order."""

    def __init__(self) -> None:
        self.is_up = True
        self.got: list[Any] = []
        self.stuck: threading.Event | None = None

    def send(self, items: Sequence[Any]) -> bool:
        if self.stuck is not None:
            self.stuck.wait(20)
        if not self.is_up:
            raise OSError("nobody there")
        self.got += items
        return True

    send_hastily = send

    def give_up(self) -> None:
        pass


def until(is_so: Any) -> None:
    end = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_what_was_put_is_sent_and_at_the_end_the_rest() -> None:
    route = Route()
    beats: list[bool] = []
    sender = Sender(route, "there", beat=lambda is_last: beats.append(is_last) or True, beat_seconds=0.05)
    for number in range(BATCH_ITEMS + 3):
        sender.put(number)
    until(lambda: len(route.got) >= BATCH_ITEMS)
    sender.close()
    sender.close()
    assert route.got == list(range(BATCH_ITEMS + 3))
    assert beats[-1] is True


def test_whoever_puts_never_waits_and_the_oldest_go_first() -> None:
    route = Route()
    route.stuck = threading.Event()
    sender = Sender(route, "there")
    begun = time.monotonic()
    for number in range(QUEUE_ITEMS + 2 * BATCH_ITEMS):
        sender.put(number)
    assert time.monotonic() - begun < 5
    assert sender.dropped >= 1
    begun = time.monotonic()
    sender.close()
    assert time.monotonic() - begun < CLOSING_SECONDS + 2
    route.stuck.set()


def test_a_collector_that_comes_back_is_told_of_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "DELAY_SECONDS", 0.02)
    monkeypatch.setattr(sending, "PAUSE_SECONDS", 0.05)
    caplog.set_level(logging.WARNING)
    route = Route()
    route.is_up = False
    sender = Sender(route, "there")
    for number in range(5):
        sender.put(number)
        until(lambda number=number: sender.lost == number + 1)
    route.is_up = True
    sender.put("after")
    until(lambda: route.got == ["after"])
    sender.close()
    assert [record.getMessage().partition(" there")[0] for record in caplog.records] == [
        "Traces and metrics do not reach",
        "Traces and metrics reach",
    ]
    assert "5 spans were lost" in caplog.text
