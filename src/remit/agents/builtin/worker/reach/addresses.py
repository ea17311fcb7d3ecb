"""Which addresses lie outside, and which inside. Used by `follow` before anything is connected; knows nothing of names or the policy.

Whatever is not plainly outside is inside: an address is `public` only if it can be reached from everywhere and hides no other one.
"""

import ipaddress
from enum import StrEnum

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Reach(StrEnum):
    """Where an address leads: the fact `address` of the policy."""

    PUBLIC = "public"
    LOOPBACK = "loopback"
    PRIVATE = "private"
    """A network of one's own, also that of a provider (100.64.0.0/10)."""
    LINK_LOCAL = "link_local"
    METADATA = "metadata"
    """Where a cloud hands the keys of a machine to whoever asks from it."""
    RESERVED = "reserved"
    """Multicast, unspecified, documentation, tunnels, and what is not given to anybody."""


METADATA_ADDRESSES = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.42.42", "100.100.100.200", "168.63.129.16", "192.0.0.192",
        "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42", "fe80::a9fe:a9fe",
    )
)  # fmt: skip
METADATA_NAMES = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal", "metadata.tencentyun.com"}
)

_CARRIER = ipaddress.ip_network("100.64.0.0/10")
_OUTSIDE_6 = ipaddress.ip_network("2000::/3")
_PRIVATE_6 = (ipaddress.ip_network("fc00::/7"), ipaddress.ip_network("fec0::/10"))
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_MORE_RESERVED = tuple(
    map(
        ipaddress.ip_network,
        (
            "192.88.99.0/24",  # relays of 6to4
            "2002::/16",  # 6to4: an IPv4 address in disguise
            "2001::/23",  # Teredo and other protocols' own
            "3fff::/20",  # documentation
            "5f00::/16",  # segment routing
        ),
    )
)


def reach_of(address: Address) -> Reach:
    """Where it leads; of an address that carries another one inside, the worse of the two."""
    if address in METADATA_ADDRESSES:
        return Reach.METADATA
    if isinstance(address, ipaddress.IPv6Address):
        return _reach_of_6(address)
    return _reach_of_4(address)


def _reach_of_4(address: ipaddress.IPv4Address) -> Reach:
    if address.is_loopback:
        return Reach.LOOPBACK
    if address.is_link_local:
        return Reach.LINK_LOCAL
    if address.is_multicast or address.is_unspecified or address.is_reserved or _is_more_reserved(address):
        return Reach.RESERVED
    if address in _CARRIER or any(address in network for network in _PRIVATE_4):
        return Reach.PRIVATE
    return Reach.PUBLIC if address.is_global else Reach.RESERVED


_PRIVATE_4 = tuple(ipaddress.ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))


def _reach_of_6(address: ipaddress.IPv6Address) -> Reach:
    if address.is_loopback:
        return Reach.LOOPBACK
    inner = _inside(address)
    if inner is not None:
        hidden = reach_of(inner)
        translated = address in _NAT64 or address.ipv4_mapped is not None
        return hidden if translated or hidden is not Reach.PUBLIC else Reach.RESERVED
    if address.is_link_local:
        return Reach.LINK_LOCAL
    if any(address in network for network in _PRIVATE_6):
        return Reach.PRIVATE
    if address not in _OUTSIDE_6 or address.is_multicast or address.is_reserved or _is_more_reserved(address):
        return Reach.RESERVED
    return Reach.PUBLIC if address.is_global else Reach.RESERVED


def _inside(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for: mapped, compatible, NAT64, 6to4, Teredo, ISATAP."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    number = int(address)
    last = ipaddress.IPv4Address(number & 0xFFFF_FFFF)
    if address in _NAT64 or (number >> 32 == 0 and number > 0xFFFF) or (number >> 32) & 0xFEFF_FFFF == 0x5EFE:
        return last
    if address.sixtofour is not None:
        return address.sixtofour
    return address.teredo[1] if address.teredo is not None else None


def _is_more_reserved(address: Address) -> bool:
    return any(address in network for network in _MORE_RESERVED if network.version == address.version)
