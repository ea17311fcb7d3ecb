"""Hosts that a contained agent may reach: names, `*.` suffixes, addresses and networks, each with a port."""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from remit.core.errors import Misused
from remit.system.http import Target, parse_target
from remit.system.ip_addresses import Address

VENDOR_HOSTS: Mapping[str, tuple[str, ...]] = {
    "claude": ("api.anthropic.com", "console.anthropic.com", "platform.claude.com", "claude.ai"),
    "codex": ("api.openai.com", "auth.openai.com", "chatgpt.com"),
    "opencode": ("opencode.ai", "api.anthropic.com", "console.anthropic.com", "api.openai.com", "auth.openai.com", "chatgpt.com"),
}
"""Model service and sign-in of each vendor; no telemetry, no updates, no package registry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    name: str
    """Empty for an address or a network."""
    network: ipaddress.IPv4Network | ipaddress.IPv6Network | None
    port: int

    def has_name(self, name: str, port: int) -> bool:
        if not self.name or port != self.port:
            return False
        return name.endswith(self.name[1:]) if self.name.startswith("*.") else name == self.name

    def has_address(self, address: Address, port: int) -> bool:
        return self.network is not None and port == self.port and address.version == self.network.version and address in self.network


def parse_host(text: str) -> Host:
    """`example.com`, `*.example.com`, `example.com:8443`, `10.0.0.0/8`, `127.0.0.1:8080`, `[::1]:8080`. Raises `ValueError`."""
    bare, is_suffix = text.removeprefix("*."), text.startswith("*.")
    name, slash, rest = bare.partition("/")
    prefix, _, port = rest.partition(":")
    try:
        target = parse_target(f"https://{name}{f':{port}' if port else ''}/")
        if slash or target.address is not None:
            network = ipaddress.ip_network(f"{target.address or name}{slash}{prefix}")
            return Host(name="", network=network, port=target.port)
    except (ValueError, Misused) as error:
        raise ValueError(f"{text!r} is not a host ({error}); write example.com, *.example.com, example.com:8443 or 10.0.0.0/8") from None
    if is_suffix and "." not in target.host:
        raise ValueError(f"{text!r} allows a whole top-level domain; name the domain")
    return Host(name=f"*.{target.host}" if is_suffix else target.host, network=None, port=target.port)


class HostList:
    def __init__(self, hosts: Iterable[str]) -> None:
        self._names = tuple(dict.fromkeys(hosts))
        self._hosts = tuple(map(parse_host, self._names))

    def __bool__(self) -> bool:
        return bool(self._hosts)

    def __str__(self) -> str:
        return ", ".join(self._names) or "no host"

    def allows(self, target: Target) -> bool:
        if target.address is not None:
            return self.lists_address(target.address, target.port)
        return any(host.has_name(target.host, target.port) for host in self._hosts)

    def lists_address(self, address: Address, port: int) -> bool:
        """Whether the address itself is listed; otherwise a name must resolve to a public address."""
        return any(host.has_address(address, port) for host in self._hosts)

    def loopback_ports(self) -> tuple[int, ...]:
        """Listed ports of this machine: a container reaches them at its own loopback address."""
        here = (ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"))
        listed = {host.port for host in self._hosts for one in here if host.has_address(one, host.port) or host.name == "localhost"}
        return tuple(sorted(listed))
