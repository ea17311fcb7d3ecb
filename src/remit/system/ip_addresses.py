"""Classifies internet addresses: public, this machine, a private network, or a cloud's metadata service."""

import ipaddress
import socket
from collections.abc import Sequence
from enum import StrEnum

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressKind(StrEnum):
    """Kind of an address: the policy fact `address`."""

    PUBLIC = "public"
    LOOPBACK = "loopback"
    """This machine, also by a public address of one of its interfaces."""
    PRIVATE = "private"
    """A private network, also a provider's (100.64.0.0/10)."""
    LINK_LOCAL = "link_local"
    METADATA = "metadata"
    """The metadata service of a cloud, which gives credentials to any process of the machine."""
    RESERVED = "reserved"
    """Multicast, unspecified, documentation, tunnels, and unassigned."""


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

_OUTSIDE_6 = ipaddress.ip_network("2000::/3")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_PRIVATE = tuple(map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "fec0::/10")))
_RESERVED = tuple(map(ipaddress.ip_network, ("192.88.99.0/24", "2002::/16", "2001::/23", "3fff::/20", "5f00::/16")))
"""Relays of 6to4, 6to4 itself, Teredo and others, documentation, segment routing."""


def is_loopback(host: str) -> bool:
    """Whether a host, by name or address, is this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


def classify_address(address: Address) -> AddressKind:
    """Its kind; for an address with another one inside, the worse of the two."""
    if address in METADATA_ADDRESSES:
        return AddressKind.METADATA
    if address.is_loopback:
        return AddressKind.LOOPBACK
    if isinstance(address, ipaddress.IPv6Address) and (inner := _inside(address)) is not None:
        hidden = classify_address(inner)
        is_translated = address in _NAT64 or address.ipv4_mapped is not None
        return hidden if is_translated or hidden is not AddressKind.PUBLIC else AddressKind.RESERVED
    if address.is_link_local:
        return AddressKind.LINK_LOCAL
    is_special = address.is_multicast or address.is_unspecified or _is_in(address, _RESERVED)
    if _is_in(address, _PRIVATE) and not is_special:
        return AddressKind.PRIVATE
    is_outside = address.version == 4 or address in _OUTSIDE_6
    if not address.is_global or not is_outside or is_special or address.is_reserved:
        return AddressKind.RESERVED
    return AddressKind.LOOPBACK if _is_own(address) else AddressKind.PUBLIC


def _is_own(address: Address) -> bool:
    """Whether an interface of this machine has it: the kernel then uses the same address as source. Sends nothing."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return ipaddress.ip_address(probe.getsockname()[0]) == address
    except OSError:  # there is no route to it
        return False


def _inside(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address in an IPv6 address: mapped, compatible, NAT64, 6to4, Teredo, ISATAP."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    number = int(address)
    last = ipaddress.IPv4Address(number & 0xFFFF_FFFF)
    if address in _NAT64 or (number >> 32 == 0 and number > 0xFFFF) or (number >> 32) & 0xFEFF_FFFF == 0x5EFE:
        return last
    if address.sixtofour is not None:
        return address.sixtofour
    return address.teredo[1] if address.teredo is not None else None


def _is_in(address: Address, networks: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    return any(address in network for network in networks if network.version == address.version)
