"""Redirects, one by one: each address is read, resolved, judged and put to the policy before anything is connected. Used by `fetch`.

What was meant for one server goes to no other: headers that the caller gave are left out where the origin changes.
"""

import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from remit.agents.builtin.worker.reach.addresses import METADATA_NAMES, Address, Reach, reach_of
from remit.agents.builtin.worker.reach.pinned import Answer, Headers, Resolve, Unreached, exchange, resolve
from remit.agents.builtin.worker.reach.target import Target, joined, target_of, without_secrets
from remit.core.errors import Misused, Refused

MOST_REDIRECTS = 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_KEPT_HEADERS = frozenset({"accept", "accept-language", "accept-encoding", "user-agent", "content-type"})
"""Say nothing about who asks. Any other may be a key, whatever its name, and stays with the origin it was given for."""


class Permit(Protocol):
    """`ctx.permit`."""

    def __call__(self, action: str = "", /, **facts: Any) -> Awaitable[None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What requests go through: the policy, the look-up of names, whose certificates count."""

    permit: Permit
    tls: Callable[[], ssl.SSLContext]
    resolve: Resolve = resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """One request on its way."""

    target: Target
    method: str = "GET"
    headers: Headers = ()
    body: bytes | None = None


@dataclass(slots=True)
class Trail:
    """Where it led so far."""

    hops: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    last: Target | None = None


@contextlib.asynccontextmanager
async def followed(asking: Asking, network: Network, trail: Trail) -> AsyncIterator[Answer]:
    """The answer at the end of all redirects. Raises `Refused`, `Misused`, `Unreached`."""
    while True:
        trail.last = asking.target
        addresses = await checked(asking.target, asking.method, network)
        async with contextlib.AsyncExitStack() as stack:
            tls = network.tls() if asking.target.scheme == "https" else None
            answer = await stack.enter_async_context(exchange(asking.target, addresses, asking.method, asking.headers, asking.body, tls))
            locations = set(filter(None, answer.all("location"))) if answer.status in _REDIRECTS else set()
            if not locations:
                yield answer
                return
        if len(locations) > 1:
            raise Unreached(f"{asking.target.authority} redirects to {len(locations)} addresses at once.")
        following = _next(asking, answer.status, locations.pop(), trail)
        trail.hops.append({"status": answer.status, "from": asking.target.shown, "to": following.target.shown})
        if len(trail.hops) > MOST_REDIRECTS:
            raise Unreached(f"It was redirected more than {MOST_REDIRECTS} times, at last to {following.target.shown}.")
        asking = following


async def checked(target: Target, method: str, network: Network) -> Sequence[Address]:
    """The addresses of a target, each of them judged and allowed. Raises `Refused` if only one of them is not."""
    if target.address is not None:
        addresses: Sequence[Address] = [target.address]
    else:
        addresses = await network.resolve(target.host, target.port)
    if not addresses:
        raise Unreached(f"The name {target.host} has no address.")
    kinds = {reach_of(address) for address in addresses}
    if target.host in METADATA_NAMES:
        kinds = {Reach.METADATA}
    for kind in sorted(kinds):
        await _permitted(target, method, kind, network)
    return addresses


async def _permitted(target: Target, method: str, kind: Reach, network: Network) -> None:
    try:
        await network.permit(url=target.shown, scheme=target.scheme, host=target.host, port=target.port, method=method, address=str(kind))
    except Refused as refusal:
        if kind is Reach.PUBLIC:
            raise
        raise Refused(
            f"{target.host} leads inside ({_WORDS[kind]}), and the policy does not allow that: {refusal.message}",
            code=refusal.code,
            advice=refusal.advice or f"If it is meant, add a rule to the policy that permits {target.host} for this operation.",
        ) from None


_WORDS = {
    Reach.LOOPBACK: "this machine",
    Reach.PRIVATE: "a private network",
    Reach.LINK_LOCAL: "the local link",
    Reach.METADATA: "the metadata service of a cloud",
    Reach.RESERVED: "an address that is not of the public internet",
}


def _next(asking: Asking, status: int, location: str, trail: Trail) -> Asking:
    """The request that a redirect asks for."""
    before = asking.target
    try:
        # Header bytes came as Latin-1; addresses are UTF-8 where they are not ASCII.
        written = location.encode("latin-1").decode("utf-8", "replace").strip().replace(" ", "%20")  # as browsers do
        target = target_of(joined(before, written))
    except (Misused, ValueError) as error:
        why = error.message if isinstance(error, Misused) else "it cannot be read."
        raise Refused(
            f"{before.authority} redirects to {without_secrets(location)[:200]}, which is not followed: {why}",
            code="POLICY_DENIED",
            advice="Ask for the address that is meant itself.",
        ) from None
    method, body, headers = asking.method, asking.body, list(asking.headers)
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, body = "GET", None
        headers = [(name, value) for name, value in headers if not name.lower().startswith("content-")]
    if target.origin != before.origin:
        headers = [(name, value) for name, value in headers if name.lower() in _KEPT_HEADERS]
    if before.scheme == "https" and target.scheme == "http":
        if body is not None:
            raise Refused(
                f"{before.authority} redirects what is sent to an unencrypted address of {target.host}.",
                code="POLICY_DENIED",
                advice="Send it to an https address.",
            )
        trail.notes.append(f"The redirect to {target.host} leaves encryption: what came from there could have been changed on the way.")
    return replace(asking, target=target, method=method, body=body, headers=tuple(headers))
