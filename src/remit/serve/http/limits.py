"""What one client may take of the HTTP doors: sizes, times, numbers. Values; `wire` and `exchange` hold clients to them.

How much one *principal* may ask for stands in the settings and with its token (`access`); this is about connections, before anybody knows
whose they are.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    header_bytes: int = 32 * 1024
    """Of the request line and all header fields together."""
    header_fields: int = 100
    target_bytes: int = 8 * 1024
    """Of the request line's path and query."""
    header_seconds: float = 10.0
    """From the first byte of a request, or the opening of the connection, to the last of its header."""
    body_seconds: float = 30.0
    """From when a body is read to when all of it is there."""
    all_bodies_bytes: int = 256 * 1024 * 1024
    """Of all requests in hand together; beyond that one is told to come again."""
    idle_seconds: int = 30
    """A connection on which nothing is asked is closed after so long."""
    stall_seconds: float = 60.0
    """A client that takes nothing of what it is sent for so long is cut off."""
    linger_seconds: float = 1.0
    """How long the rest of a refused request is read and thrown away, so that the refusal is heard."""
    linger_bytes: int = 1024 * 1024
    connections: int = 4096
    half_open: int = 256
    """How many connections may be without a whole header; beyond that the oldest gives way."""
    handshake_seconds: float = 10.0
    backlog: int = 512
