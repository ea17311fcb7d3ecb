"""Trace and span ids of delegations (W3C Trace Context), derived from their session ids: nothing is stored and nothing can be lost.

One tree is one trace, whichever processes and APIs it runs through and however often it is resumed, since each of them computes the same
ids: the trace is the caller's, where it gave a `traceparent`, else a hash of the root's session; the span of a delegation is a hash of its
own session. A tree has a span of its own too, above its root. Pure; knows nothing of OpenTelemetry (see `signals.traces`). Used by
telemetry, for processes of agents, by remotes and by APIs, which `parse` what a caller sent.
"""

import functools
import hashlib
import re
from collections.abc import Mapping
from typing import NamedTuple

from remit.core.delegation import ROOT_CALLER, CallerInfo, Delegation, Origin

HEADER = "traceparent"
"""Of HTTP, of gRPC's metadata and of MCP's `_meta`."""
VARIABLE = "TRACEPARENT"
"""Of a process."""
SAMPLED = 0x01
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.{0,200})?", re.ASCII)
_NEVER_VERSION = "ff"
_KNOWN_FLAGS = 0x03
"""Sampled, and (level 2) random: the others mean nothing yet and are not handed on."""


class Traceparent(NamedTuple):
    trace_id: str
    """32 lower-case hexadecimal digits, not all zero."""
    span_id: str
    """16 of them."""
    flags: int = SAMPLED

    @property
    def is_sampled(self) -> bool:
        return bool(self.flags & SAMPLED)

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags & _KNOWN_FLAGS:02x}"


def parse(text: object) -> Traceparent | None:
    """Parse a `traceparent`; None if it is missing or invalid. Later versions are read as far as this one goes."""
    if not isinstance(text, str):
        return None
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == _NEVER_VERSION or (version == "00" and more):
        return None
    if not int(trace_id, 16) or not int(span_id, 16):
        return None
    return Traceparent(trace_id, span_id, int(flags, 16) & _KNOWN_FLAGS)


def span_id_of(session_id: str) -> str:
    """Of the span of a delegation."""
    return _digest("span", session_id, 8)


def tree_span_id_of(root_id: str) -> str:
    """Of the span of a whole tree: what its root's hangs below."""
    return _digest("tree", root_id, 8)


def _trace_id_of(root_id: str) -> str:
    """Of a tree that was not given one."""
    return _digest("trace", root_id, 16)


def caller_context(caller_info: CallerInfo | None) -> Traceparent | None:
    """The span of the caller that asked for the tree, if it sent one."""
    return None if caller_info is None else parse(caller_info.traceparent)


def tree_of(root_id: str, caller_info: CallerInfo | None) -> Traceparent:
    """The span of a tree, with the trace that all of it belongs to."""
    given = caller_context(caller_info)
    if given is not None:
        return Traceparent(given.trace_id, tree_span_id_of(root_id), given.flags)
    return Traceparent(_trace_id_of(root_id), tree_span_id_of(root_id))


def context_of(delegation: Delegation) -> Traceparent:
    """The span of a delegation."""
    return _below(delegation, delegation.lineage.session_id)


def parent_of(delegation: Delegation) -> Traceparent:
    """The span that a delegation's hangs below: its caller's; of a root, its tree's."""
    lineage = delegation.lineage
    return tree_of(lineage.root_id, delegation.caller_info) if lineage.parent_id is None else _below(delegation, lineage.parent_id)


def _below(delegation: Delegation, session_id: str) -> Traceparent:
    """The span of one of its tree; that of the tree itself is not asked for."""
    given, span_id = caller_context(delegation.caller_info), span_id_of(session_id)
    if given is not None:
        return Traceparent(given.trace_id, span_id, given.flags)
    return Traceparent(_trace_id_of(delegation.lineage.root_id), span_id)


def traceparent_of(delegation: Delegation) -> str:
    """Sent to the agent's process or remote executor, whose spans become its children."""
    return str(context_of(delegation))


def origin_in(environment: Mapping[str, str]) -> Origin | None:
    """The span of the program that started this one (`TRACEPARENT`), the parent of what is begun here; None: it sent none."""
    given = parse(environment.get(VARIABLE, "").strip())
    return None if given is None else Origin(caller_info=CallerInfo(ROOT_CALLER, traceparent=str(given)))


@functools.lru_cache(maxsize=1024)  # asked for when it starts and again when it ends
def _digest(what: str, name: str, size: int) -> str:
    """Not a secret and not a signature: only so spread that no two are alike."""
    found = hashlib.blake2b(f"remit {what} {name}".encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()
    return found if int(found, 16) else f"{1:0{2 * size}x}"
