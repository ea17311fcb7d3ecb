"""What secrets look like: telling names (`authorization`, `api_key`, …), known formats (`ghp_…`, a private key, …), queries of addresses.

Pure, and quick whatever it is given: every search here takes time in proportion to the text, also where somebody wrote it to be slow.
Which values were given to whom, and striking them out, is `secrets`.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_plus

from remit.core.caller import struck_out_bytes

REDACTED = "[redacted]"
_REDACTED = REDACTED.encode()

_NAMES = re.compile(
    r"(^|_)(password|passwd|passphrase|pwd|secrets?|token|api_?keys?|access_?keys?|private_?keys?|signing_?keys?|secret_?keys?"
    r"|authorization|auth|cookies?|credentials?|bearer|jwt|session_?key|client_?secret|webhook_?secret)(_|$)"
)
_QUERY_NAMES = re.compile(r"(token|secret|password|passwd|api_?key)$|(^|_)(key|sig|signature|sid|session_?id|otp)$")
"""Besides those: in an address they are hardly ever anything else."""
_QUERY = re.compile(
    rb"(?P<name>(?:(?P<begin>\A|\")|[?&#](?:amp;)?)(?P<word>[A-Za-z0-9_.~%\[\]-]{1,80})=)(?P<value>(?![$=])[^&\s\"'\\#<>`]+)"
)
_VARIABLE = re.compile(rb"((?:PASSWORD|PASSWD|SECRET|TOKEN|_KEY|APIKEY|CREDENTIALS)=(?:\\*[\"'])?)(?!=)[^\s\"'\\$<>(){}\[\]*;&|`]{6,}")
"""As a shell sets one: `export API_TOKEN=…`; but not what is taken from elsewhere: `TOKEN=$(cat …)`."""
_PLAIN_HEADER = re.compile(
    r"(accept|content|if|sec|user-agent|range|referer|origin|cache-control|pragma|date|dnt|prefer)(-|$)", re.IGNORECASE
)
"""Says nothing that is secret; any other header may be a key, whatever it is called."""
_WORD_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")

_T = rb"[A-Za-z0-9_-]"
_WORD = rb"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=\[\dm)|(?<=\[\d\dm))"
"""The beginning of a word: also after a line break as JSON writes it, and after a colour of a terminal."""
_START = rb"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt])|(?<=\[\dm)|(?<=\[\d\dm))"
"""The beginning of a run of such characters: only from there is it read to its end, or a long one would be read again from each of them."""
_VALUE = rb"[A-Za-z0-9._~+/=-]"
_FORMATS = re.compile(
    rb"(?P<keep>(?:[Bb]earer|BEARER)\s+)" + _VALUE + rb"{16,}"
    rb"|(?P<header>[Aa]uthorization(?:\s*[:=]\s*|\\*[\"']\s*[:=]\s*\\*[\"'])(?:[A-Za-z]+\s+)?)" + _VALUE + rb"{8,}"
    rb"|(?P<scheme>://)[^\s/@:\"'\\?#<>]*:[^\s/@\"'\\<>]+(?=@)"
    rb"|" + _WORD + rb"sk-(?=" + _T + rb"{0,100}\d)" + _T + rb"{20,}"
    rb"|[srp]k_(?:live|test)_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|(?:AKIA|ASIA)[A-Z0-9]{16}"
    rb"|xox[abeoprs]-[A-Za-z0-9-]{10,}|AIza" + _T + rb"{30,}|glpat-" + _T + rb"{16,}|pypi-" + _T + rb"{40,}"
    rb"|" + _WORD + rb"(?:npm|hf)_[A-Za-z0-9]{30,}"
    rb"|" + _START + rb"eyJ" + _T + rb"{6,}\." + _T + rb"{6,}\." + _T + rb"*"
    # A backslash is taken together with what it stands before, so that no quote of JSON is left without it.
    rb"|-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?:[^\"\\]|\\[^\"])*?-----END [A-Z ]*PRIVATE KEY-----|(?:[^\"\\]|\\[^\"])*)"
)
_SIGNS = re.compile(
    rb"-(?:(?<=sk-)|(?<=glpat-)|(?<=pypi-)|(?<=xox[a-z]-))"
    rb"|_(?:(?<=k_)(?:live|test)|(?<=gh[pousr]_)|(?<=github_)pat_|(?<=npm_)|(?<=hf_)|(?<=rmtk_)|(?<=rm[td]_))"
    rb"|A(?:KIA|SIA|Iza)|J(?<=eyJ)|bearer|Bearer|BEARER|PRIVATE KEY|z(?<=uthoriz)ation|:(?://[^\s/@\"'\\<>]*@)"
)
"""What one of the formats has near its beginning: one quick search, for all that is kept. Each begins with a rare character and looks back
from there: beginning with the first letters, it would stop at every third one."""
_BEGINNINGS = re.compile(
    rb"://(?=[^\s/@\"'\\<>]*@)|sk-|[srp]k_(?:live|test)|gh[pousr]_|github_pat_|A(?:KIA|SIA|Iza)|xox|glpat-|npm_|hf_|pypi-|eyJ"
    rb"|[Bb]earer|BEARER|-----BEGIN |[Aa]uthorization"
)
"""Where one may begin."""


# ---- by name


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """`authorization`, `X-Api-Key`, `clientSecret`, `DB_PASSWORD`; but not `max_tokens`, which is a count, nor `author`."""
    return bool(_NAMES.search(_WORD_BORDER.sub("_", name).lower()))


@lru_cache(maxsize=4096)
def is_secret_in_query(name: str) -> bool:
    """`access_token`, `sig`, `X-Amz-Signature`, `key`: in an address; elsewhere some of them are only words."""
    return is_secret_name(name) or bool(_QUERY_NAMES.search(_WORD_BORDER.sub("_", name).lower()))


def may_be_key(header: Any) -> bool:
    """Whether a header may be one, by its name."""
    return not _PLAIN_HEADER.match(str(header))


def is_keylike(header: str, value: Any) -> bool:
    """A header that may be a key by its name, and is one by its looks: no word that would be missed elsewhere."""
    return isinstance(value, str) and may_be_key(header) and _KEYLIKE.fullmatch(value) is not None


_KEYLIKE = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[A-Za-z0-9_+/=~-]{12,}")


# ---- in a text


def secrets_in_query(text: str) -> Iterable[str]:
    """As they stand there, and as they are meant."""
    for match in _QUERY.finditer(text.encode("utf-8", "replace")):
        if _is_secret_here(match):
            value = match["value"].decode("utf-8", "replace")
            yield value
            yield unquote_plus(value)


def passwords_in_addresses(text: str) -> Iterable[str]:
    return (match[1].decode() for match in _PASSWORD.finditer(text.encode("utf-8", "replace")))


_PASSWORD = re.compile(rb"://[^\s/@:\"'\\?#<>]*:([^\s/@\"'\\<>]+)@")


def is_suspicious(data: bytes) -> bool:
    """Whether anything in it looks like the beginning of a known format."""
    return _SIGNS.search(data) is not None


def without_formats(data: bytes) -> bytes:
    """Nor what queries of addresses and variables of commands hold. No quote and no backslash is taken: JSON stays JSON."""
    if b"=" in data:
        data = _VARIABLE.sub(rb"\1" + _REDACTED, _QUERY.sub(_struck_query, data))
    return _without_known(struck_out_bytes(data)) if is_suspicious(data) else data


def _without_known(data: bytes) -> bytes:
    """The formats are tried where they may begin, not at every letter."""
    pieces: list[bytes] = []
    done = at = 0
    while (beginning := _BEGINNINGS.search(data, at)) is not None:
        match = _FORMATS.match(data, beginning.start())
        if match is None:
            at = beginning.end()
            continue
        kept = match["keep"] or match["header"] or match["scheme"] or b""
        pieces += (data[done : match.start()], kept, _REDACTED)
        done = at = match.end()
    return b"".join((*pieces, data[done:]))


def _struck_query(match: "re.Match[bytes]") -> bytes:
    return match["name"] + _REDACTED if _is_secret_here(match) else match[0]


def _is_secret_here(match: "re.Match[bytes]") -> bool:
    """At the beginning of a text, where a form that is sent begins, only what is plainly one: `key=…` may be anything there."""
    name = match["word"].decode()
    return is_secret_in_query(name) if match["begin"] is None else is_secret_name(name)
