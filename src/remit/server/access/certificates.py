"""Certificates as identities: what a verified client certificate calls its holder, and what was granted to that name (mutual TLS).

That it was signed by our `client_ca` and belongs to whoever shows it was checked by the TLS library before this is asked; here it is only
read. A name that nothing was granted to is refused: being signed is not being let in. Used by `entrance`.
"""

import hashlib
import ipaddress
import re
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from remit.core.errors import Misused
from remit.server.access.tokens import Token

PIN = "sha256:"
_LONGEST = 253


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    names: tuple[str, ...] = ()
    """Its alternative names first, then its common name: as RFC 6125 has it."""
    fingerprint: str = ""
    """SHA-256 of the whole, in hexadecimal."""


def of_peer(peer: Mapping[str, Any] | None, der: bytes | None = None) -> Certificate | None:
    """As `ssl.SSLObject.getpeercert()` gives it, with and without `binary_form`; None: none was shown."""
    if not peer:
        return None
    names = [str(value) for kind, value in peer.get("subjectAltName", ()) if kind in ("DNS", "URI", "email")]
    names += [str(value) for group in peer.get("subject", ()) for kind, value in group if kind == "commonName"]
    return Certificate(names=_plain(names), fingerprint=hashlib.sha256(der).hexdigest() if der else "")


def of_grpc(context: Mapping[str, Sequence[bytes]]) -> Certificate | None:
    """As `grpc.ServicerContext.auth_context()` gives it."""
    if not context.get("x509_pem_cert") and not context.get("x509_common_name"):
        return None
    alternative = [one.decode("utf-8", "replace") for one in context.get("x509_subject_alternative_name", ())]
    common = [one.decode("utf-8", "replace") for one in context.get("x509_common_name", ())]
    pem = next(iter(context.get("x509_pem_cert", ())), b"")
    named = [*(one for one in alternative if not _is_address(one)), *common]  # the same names as by TLS's own words: one principal
    return Certificate(names=_plain(named), fingerprint=_fingerprint(pem))


def granted(certificate: Certificate, tokens: Iterable[Token]) -> tuple[Token, str] | None:
    """What was granted to it, and the name that counts: a fingerprint first, then a whole name, then a pattern of names."""
    listed = list(tokens)
    for token in listed:
        if token.certificate is not None and certificate.fingerprint and token.certificate == PIN + certificate.fingerprint:
            return token, token.name
    pinned = {token.name for token in listed if token.certificate is not None and token.certificate.startswith(PIN)}
    names = [name for name in certificate.names if name not in pinned]  # that is somebody else, who has a certificate of its own
    by_name = [token for token in listed if token.certificate is not None and not token.certificate.startswith(PIN)]
    for fits in (str.__eq__, fnmatchcase):
        for name in names:
            for token in by_name:
                if fits(name, str(token.certificate)):
                    return token, name
    return None


def checked_name(text: str) -> str:
    """What something can be granted to: a name as certificates hold it, a pattern of such, or a fingerprint. Raises `Misused`."""
    name = text.strip()
    if name.lower().startswith(PIN):
        digits = name[len(PIN) :].replace(":", "").lower()
        if not re.fullmatch(r"[0-9a-f]{64}", digits):
            raise Misused(f"{PIN} takes 64 hexadecimal digits.", advice="openssl x509 -in FILE -noout -fingerprint -sha256 prints them.")
        return PIN + digits
    if not _plain([name]):
        raise Misused(f"{text!r:.80} is no name of a certificate.", advice="Name its common name or one of its alternative names.")
    return name


def _plain(names: Iterable[str]) -> tuple[str, ...]:
    """Those that can stand in a record and a rule as they are; a name with a line break or a zero in it is there to deceive."""
    return tuple(dict.fromkeys(name for name in names if name.isprintable() and name.isascii() and 0 < len(name) <= _LONGEST))


def _is_address(name: str) -> bool:
    """Where it was is not who it is."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _fingerprint(pem: bytes) -> str:
    try:
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem.decode("ascii"))).hexdigest()
    except (ValueError, UnicodeError):
        return ""
