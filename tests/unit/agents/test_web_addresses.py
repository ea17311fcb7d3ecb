"""Classification of addresses and parsing of URLs for `worker.web_fetch`."""

import ipaddress

import pytest

from remit import Misused
from remit.system.http import AddressKind, classify_address, parse_target, without_secrets

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
