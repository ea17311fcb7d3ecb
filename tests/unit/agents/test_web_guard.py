"""URLs and addresses for `worker.web_fetch`: no spelling of an internal address is accepted. Nothing connects."""

import ipaddress
import ssl
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remit import Misused, Refused
from remit.system.http import Address, AddressKind, Network, check_target, classify_address, parse_target, without_secrets

INSIDE = [
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/29", "192.0.2.0/24",
        "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
    )
]  # fmt: skip
inside_4 = st.sampled_from(INSIDE).flatmap(lambda network: st.ip_addresses(network=str(network)))


def spellings(address: ipaddress.IPv4Address) -> list[str]:
    """Notations of one IPv4 address in resolvers, browsers and tunnels."""
    number, quads = int(address), str(address).split(".")
    a, b, c, d = map(int, quads)
    six = [ipaddress.IPv6Address(f"{prefix}{address}") for prefix in ("::ffff:", "::", "64:ff9b::")]
    six += [ipaddress.IPv6Address((0x2002 << 112) | (number << 80)), ipaddress.IPv6Address((0x20010000 << 96) | (number ^ 0xFFFFFFFF))]
    six.append(ipaddress.IPv6Address((0x26000000 << 96) | (0x5EFE << 32) | number))
    return [
        str(address), f"{address}.", str(number), hex(number), oct(number).replace("0o", "0"), f"{a}.{b}.{c * 256 + d}",
        f"{a}.{number & 0xFFFFFF}", ".".join(hex(int(q)) for q in quads), ".".join(f"0{int(q):o}" for q in quads),
        ".".join(f"{int(q):03d}" for q in quads), str(address).replace(".", "。"),
        str(address).translate({48 + n: 0xFF10 + n for n in range(10)}),
        *(f"[{one.compressed}]" for one in six), *(f"[{one.exploded}]" for one in six), f"[::ffff:{address}]",
    ]  # fmt: skip


def network(addresses: Sequence[Address], asked: list[dict[str, Any]]) -> Network:
    """Allows public addresses; a name resolves to `addresses`."""

    async def permit(action: str = "", /, **facts: Any) -> None:
        asked.append(facts)
        if facts["address"] != "public":
            raise Refused("inside", code="POLICY_DENIED")

    async def resolve(_host: str, _port: int) -> Sequence[Address]:
        return addresses

    return Network(permit=permit, tls=ssl.create_default_context, resolve=resolve)


@given(address=inside_4, way=st.integers(0, 26))
@example(address=ipaddress.IPv4Address("169.254.169.254"), way=0)
async def test_no_notation_of_an_internal_address_is_accepted(address: ipaddress.IPv4Address, way: int) -> None:
    ways = spellings(address)
    with pytest.raises((Misused, Refused)):
        await check_target(parse_target(f"http://{ways[way % len(ways)]}:8080/"), "GET", network([], []))


@given(address=st.ip_addresses(v=6))
async def test_ipv6_address_that_is_not_global_is_refused(address: ipaddress.IPv6Address) -> None:
    if not address.is_global:
        with pytest.raises(Refused):
            await check_target(parse_target(f"http://[{address}]/"), "GET", network([], []))


@given(public=st.lists(st.sampled_from(["93.184.215.14", "2606:4700::1111"]), max_size=4), inner=inside_4, place=st.integers(0, 4))
async def test_name_with_one_internal_address_is_refused(public: list[str], inner: ipaddress.IPv4Address, place: int) -> None:
    addresses: list[Address] = [ipaddress.ip_address(one) for one in public]
    addresses.insert(min(place, len(addresses)), inner)
    with pytest.raises(Refused):
        await check_target(parse_target("http://names.example/"), "GET", network(addresses, []))


@given(text=st.text(max_size=40))
def test_any_text_is_a_target_or_refused(text: str) -> None:
    """Parsing a target again gives the same host."""
    for url in (text, f"http://{text}", f"http://{text}/", f"https://example.com{text}"):
        try:
            target = parse_target(url)
        except Misused:
            continue
        again = parse_target(target.url)
        assert (again.origin, again.address) == (target.origin, target.address)


ADDRESSES = {
    AddressKind.PUBLIC: "93.184.215.14 2606:2800:21f:cb07:6820:80da:af6b:8b2c ::ffff:93.184.215.14 64:ff9b::93.184.215.14",
    AddressKind.LOOPBACK: "127.0.0.1 127.255.0.3 ::1 ::ffff:127.0.0.1 ::127.0.0.1 2002:7f00:1:: 2001:470:1::5efe:127.0.0.1",
    AddressKind.PRIVATE: "10.1.2.3 172.31.255.255 192.168.0.1 100.64.0.1 fd12:3456::1 fec0::1 64:ff9b::10.0.0.1",
    AddressKind.LINK_LOCAL: "169.254.1.1 fe80::1",
    AddressKind.METADATA: "169.254.169.254 100.100.100.200 168.63.129.16 fd00:ec2::254 ::ffff:169.254.169.254",
    AddressKind.RESERVED: (
        "0.0.0.0 0.1.2.3 :: 224.0.0.1 ff02::1 255.255.255.255 240.0.0.1 192.0.2.1 198.18.0.1 192.88.99.1 2001:db8::1 "
        "4000::1 64:ff9b:1::10.0.0.1 2002:5db8:d70e::1 2001:0:4136:e378:8000:63bf:3fff:fdd2"
    ),
}
"""Addresses of each kind, also those that carry another one inside."""


@pytest.mark.parametrize(("reach", "addresses"), ADDRESSES.items())
def test_address_is_public_only_if_it_certainly_is(reach: AddressKind, addresses: str) -> None:
    found = {address: classify_address(ipaddress.ip_address(address)) for address in addresses.split()}
    assert found == dict.fromkeys(found, reach)


@pytest.mark.parametrize(
    "url",
    [
        "http://2130706433/", "http://0x7f000001/", "http://0x7f.1/", "http://0177.0.0.1/", "http://127.1/", "http://127.0.0.1.1/",
        "http://1.2.3/", "http://0/", "http://00.00.00.00/", "http://[::1]evil.example/", "http://[::1%25lo]/", "http://[127.0.0.1]/",
        "http://１２７.0.0.0x1/", "http://example.com:99999/", "http://example.com:22/", "http://example.com:6379/", "http:///x", "http://",
        "file:///etc/passwd", "ftp://example.com/", "gopher://example.com/", "data:text/html,hi", "//example.com/", "example.com", "",
        "http://exa mple.com/", "http://example.com\\@127.0.0.1/", "http://exam\nple.com/", "http://127.0.0.1%2eexample.com/", "http://a..b/",
        "http://-bad.example/", "http://" + "a" * 64 + ".example/", "http://example.com/" + "a" * 9000,
    ],
)  # fmt: skip
def test_ambiguous_url_is_refused(url: str) -> None:
    with pytest.raises(Misused) as refused:
        parse_target(url)
    assert refused.value.code == "INVALID_PARAMETERS"


def test_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(Misused) as refused:
        parse_target("https://ann:hunter2@example.com/")
    assert "hunter2" not in str(refused.value)
    assert "ann" not in str(refused.value)
    assert "Authorization" in refused.value.advice


def test_secrets_in_a_url_are_redacted_for_display() -> None:
    shown = without_secrets("https://u:p@example.com/a?api_key=abc&q=owls&access_token=xyz#f")
    assert shown == "https://example.com/a?api_key=REDACTED&q=owls&access_token=REDACTED"
