"""One notification, posted to an address that a stranger named. Addresses inside are refused, unless the settings allow them.

The name is resolved once for each try, what it resolves to is judged, and the connection is made to exactly that. Redirects are not
followed, nothing of the answer but its status is read, and nothing of it is told to anybody.
"""

import asyncio
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from remit.agents.builtin.worker.reach.addresses import METADATA_NAMES, Address, Reach, reach_of
from remit.agents.builtin.worker.reach.pinned import Resolve, Unreached, exchange, resolve, trusted
from remit.agents.builtin.worker.reach.target import Target, target_of
from remit.core.errors import Misused
from remit.serve.a2a.notes import Watcher

ANSWER_SECONDS = 10.0
TOKEN_HEADER = "X-A2A-Notification-Token"
_TRY_AGAIN = frozenset({408, 425, 429})


class Outcome(Enum):
    TAKEN = "taken"
    FAILED = "failed"
    """It may do at another try."""
    REFUSED = "refused"
    """It will not do."""


class Post:
    def __init__(self, *, inside: bool, ca_file: Path | None = None, resolver: Resolve = resolve) -> None:
        self._inside = inside
        self._ca_file = ca_file
        self._resolve = resolver

    async def must_be_allowed(self, url: str) -> None:
        """Raises `Misused`, in the same words whatever is there: nobody is to learn about our network this way."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._checked(url)
        except (TimeoutError, Unreached):
            raise _not_allowed() from None

    async def __call__(self, watcher: Watcher, body: bytes) -> Outcome:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                target, addresses = await self._checked(watcher.url)
                tls = trusted(self._ca_file) if target.scheme == "https" else None
                async with exchange(target, addresses, "POST", _headers(watcher), body, tls) as answer:
                    return _outcome(answer.status)
        except Misused:
            return Outcome.REFUSED
        except (TimeoutError, Unreached):
            return Outcome.FAILED

    async def _checked(self, url: str) -> tuple[Target, Sequence[Address]]:
        target = target_of(url)
        if target.host in METADATA_NAMES:
            raise _not_allowed()
        addresses = [target.address] if target.address is not None else await self._resolve(target.host, target.port)
        if not addresses or not all(self._may_go_to(address) for address in addresses):
            raise _not_allowed()
        return target, addresses

    def _may_go_to(self, address: Address) -> bool:
        reach = reach_of(address)
        return reach is Reach.PUBLIC or (self._inside and reach in (Reach.LOOPBACK, Reach.PRIVATE))


def _outcome(status: int) -> Outcome:
    if 200 <= status < 300:
        return Outcome.TAKEN
    return Outcome.FAILED if status >= 500 or status in _TRY_AGAIN else Outcome.REFUSED


def _headers(watcher: Watcher) -> list[tuple[str, str]]:
    headers = [("Content-Type", "application/json"), ("User-Agent", "remit")]
    if watcher.token:
        headers.append((TOKEN_HEADER, watcher.token))
    if watcher.scheme and watcher.credentials:
        headers.append(("Authorization", f"{watcher.scheme} {watcher.credentials}"))
    return headers


def _not_allowed() -> Misused:
    return Misused(
        "Notifications cannot be sent to that address.",
        advice="Name one that is reached from everywhere; addresses inside are open where [serve] push_inside = true.",
    )
