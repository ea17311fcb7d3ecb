"""Redaction of secrets from everything that is stored: records, events, the error ledger, logs and the audit log.

Agents get the real values. Redacted are parameters and headers with secret names (`authorization`, `api_key`; also in the query of a URL),
values in a known format (`ghp_…`, a private key), and every later occurrence of values that had such a name in the parameters of a
delegation. Every search is linear in the length of the text."""

import hashlib
import json
import logging
import re
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import quote, quote_plus, unquote_plus

from pydantic_core import from_json, to_json

from remit.core.ids import redact_token_bytes
from remit.core.jsonable import plain_parameters

# ---- patterns


REDACTED = "[redacted]"
_REDACTED = REDACTED.encode()

_NAMES = re.compile(
    r"(^|_)(password|passwd|passphrase|pwd|secrets?|token|api_?keys?|access_?keys?|private_?keys?|signing_?keys?|secret_?keys?"
    r"|authorization|auth|cookies?|credentials?|bearer|jwt|session_?key|client_?secret|webhook_?secret)(_|$)"
)
_QUERY_NAMES = r"(token|secret|password|passwd|api_?key)$|(^|_)(key|sig|signature|sid|session_?id|otp)$"
"""Additional names that are almost always secrets in a URL."""
_QUERY = re.compile(
    rb"(?P<name>(?:(?P<begin>\A|\")|[?&#](?:amp;)?)(?P<word>[A-Za-z0-9_.~%\[\]-]{1,80})=)(?P<value>(?![$=])[^&\s\"'\\#<>`]+)"
)
_VARIABLE = rb"((?:PASSWORD|PASSWD|SECRET|TOKEN|_KEY|APIKEY|CREDENTIALS)=(?:\\*[\"'])?)(?!=)[^\s\"'\\$<>(){}\[\]*;&|`]{6,}"
"""A shell assignment such as `export API_TOKEN=…`, but not a computed one: `TOKEN=$(cat …)`."""
_WORD_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")

_T = rb"[A-Za-z0-9_-]"
_WORD = rb"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=\[\dm)|(?<=\[\d\dm))"
"""The start of a word, also after an escaped line break in JSON and after a terminal colour."""
_START = rb"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt])|(?<=\[\dm)|(?<=\[\d\dm))"
"""The start of a run of such characters. Matching only from there keeps the search linear."""
_VALUE = rb"[A-Za-z0-9._~+/=-]"
_FORMATS = (
    rb"(?P<keep>(?:[Bb]earer|BEARER)\s+)" + _VALUE + rb"{16,}"
    rb"|(?P<header>[Aa]uthorization(?:\s*[:=]\s*|\\*[\"']\s*[:=]\s*\\*[\"'])(?:[A-Za-z]+\s+)?)" + _VALUE + rb"{8,}"
    rb"|(?P<scheme>://)[^\s/@:\"'\\?#<>]*:[^\s/@\"'\\<>]+(?=@)"
    rb"|" + _WORD + rb"sk-(?=" + _T + rb"{0,100}\d)" + _T + rb"{20,}"
    rb"|[srp]k_(?:live|test)_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|(?:AKIA|ASIA)[A-Z0-9]{16}"
    rb"|xox[abeoprs]-[A-Za-z0-9-]{10,}|AIza" + _T + rb"{30,}|glpat-" + _T + rb"{16,}|pypi-" + _T + rb"{40,}"
    rb"|" + _WORD + rb"(?:npm|hf)_[A-Za-z0-9]{30,}"
    rb"|" + _START + rb"eyJ" + _T + rb"{6,}\." + _T + rb"{6,}\." + _T + rb"*"
    # A backslash is consumed with the next character, so that no escaped quote of JSON loses it.
    rb"|-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?:[^\"\\]|\\[^\"])*?-----END [A-Z ]*PRIVATE KEY-----|(?:[^\"\\]|\\[^\"])*)"
)
"""Compiled on first use: most texts contain none of `_SIGNS`."""
_SIGNS = re.compile(
    rb"-(?:(?<=sk-)|(?<=glpat-)|(?<=pypi-)|(?<=xox[a-z]-))"
    rb"|_(?:(?<=k_)(?:live|test)|(?<=gh[pousr]_)|(?<=github_)pat_|(?<=npm_)|(?<=hf_)|(?<=rmtk_)|(?<=rm[td]_))"
    rb"|A(?:KIA|SIA|Iza)|J(?<=eyJ)|bearer|Bearer|BEARER|PRIVATE KEY|z(?<=uthoriz)ation|:(?://[^\s/@\"'\\<>]*@)"
)
"""Characters near the start of every format: one quick search over all stored text. Each alternative begins with a rare character and looks
back from it, because common first letters would match too often."""
# ---- by name


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """True for `authorization`, `X-Api-Key`, `clientSecret`, `DB_PASSWORD`; not for `max_tokens`, a count, nor for `author`."""
    return bool(_NAMES.search(_WORD_BORDER.sub("_", name).lower()))


@lru_cache(maxsize=4096)
def is_secret_in_query(name: str) -> bool:
    """True for `access_token`, `sig`, `X-Amz-Signature`, `key` in a URL or a header; elsewhere some of them are ordinary words."""
    return is_secret_name(name) or bool(re.search(_QUERY_NAMES, _WORD_BORDER.sub("_", name).lower()))


# ---- in a text


_PASSWORD = re.compile(rb"://[^\s/@:\"'\\?#<>]*:([^\s/@\"'\\<>]+)@")


def is_suspicious(data: bytes) -> bool:
    """Whether anything in it looks like the beginning of a known format."""
    return _SIGNS.search(data) is not None


def redact_formats(data: bytes) -> bytes:
    """Redact known formats, secrets in URL queries and in shell assignments. Keeps quotes and backslashes, so JSON stays valid."""
    if b"=" in data:
        data = re.sub(
            _VARIABLE, rb"\1" + _REDACTED, _QUERY.sub(lambda found: found["name"] + _REDACTED if _is_secret_here(found) else found[0], data)
        )
    return _redact_known(redact_token_bytes(data)) if is_suspicious(data) else data


def redact_known_keys(text: str) -> str:
    """Text for a model, without keys in a known format. Ordinary words with secret names are kept, so that the model can work on code."""
    data = text.encode("utf-8", "surrogatepass")
    return _redact_known(redact_token_bytes(data)).decode("utf-8", "surrogatepass") if is_suspicious(data) else text


def _redact_known(data: bytes) -> bytes:
    return re.sub(_FORMATS, lambda found: (found["keep"] or found["header"] or found["scheme"] or b"") + _REDACTED, data)


def _is_secret_here(match: "re.Match[bytes]") -> bool:
    """At the start of a text, where form data begins, only unambiguous names count: `key=…` may be anything there."""
    name = match["word"].decode()
    return is_secret_in_query(name) if match["begin"] is None else is_secret_name(name)


# ---- values of parameters


SHORTEST = 6
"""A shorter value is redacted under its name but not searched elsewhere: it would match ordinary words."""
RECENT = 64
"""Values of the latest finished delegations that are still searched: their output may not be written yet."""
LINE_CHARACTERS = 16
MOST = 200
"""Maximum values of one delegation that are searched elsewhere: all stored text is searched for each."""
SECRETS_REMOVED = "Secrets were redacted from this record; only the caller that waited for the return received them."

_QUERY_CHARACTERS = 64 * 1024
"""A longer text is not a URL: its secrets are redacted in place but not searched elsewhere."""


def redact_parameters(parameters: Mapping[str, Any], *, are_headers: bool = False) -> dict[str, Any]:
    """Parameters for the record: values with secret names are redacted at any depth. Known formats are redacted on write."""
    return {
        name: _redact_shape(value) if _is_hidden(name, value, are_headers=are_headers) else _redacted(value, are_headers=name == "headers")
        for name, value in parameters.items()
    }


class HarmlessParameters(dict[str, Any]):
    """Received parameters, and nothing in their JSON looks like a secret."""


_SIGNS_OF_SECRETS = tuple(b"pass pwd secret token key auth cookie credential bearer jwt headers = @".split())
"""In the JSON of any parameters with a secret: each word of `_NAMES` has one of them, and so have headers, queries and addresses."""


def _redacted(value: Any, *, are_headers: bool = False) -> Any:
    if value.__class__ is str:
        return value
    if isinstance(value, Mapping):
        return redact_parameters(value, are_headers=are_headers)
    if isinstance(value, list | tuple):
        return [_redacted(one) for one in value]
    return value


def _is_hidden(name: Any, value: Any, *, are_headers: bool = False) -> bool:
    """Whether the value is hidden. Booleans and small numbers under such names are switches and counts, like `{"token": 5}`; text is the
    secret."""
    return not _is_count(value) and isinstance(name, str) and (is_secret_in_query(name) if are_headers else is_secret_name(name))


def _is_count(value: Any) -> bool:
    return value is None or value.__class__ in (bool, float) or (value.__class__ is int and -9999 <= value <= 9999)


def _redact_shape(value: Any) -> Any:
    """Redact values but keep the structure: `{"cookies": {"session": "[redacted]"}}`."""
    if isinstance(value, Mapping):
        return {name: _redact_shape(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_redact_shape(one) for one in value]
    return value if _is_count(value) else REDACTED


def is_redacted(parameters: Mapping[str, Any]) -> bool:
    """Whether these come from a record in which values were redacted."""
    return REDACTED.encode() in to_json(parameters, fallback=repr, inf_nan_mode="constants")


# ---- values that were found


class SecretValues:
    """The secrets of one delegation: redacted everywhere while this object lives, and for a while after."""

    __slots__ = ("__weakref__", "forms")

    def __init__(self, values: Iterable[str]) -> None:
        self.forms = tuple(dict.fromkeys(form for value in values for form in _forms(value) if form not in _REDACTED))
        with _lock:
            _held.add(self)
            _refresh()

    def __del__(self) -> None:
        _recent.extend(self.forms)


_lock = threading.RLock()
_held: "weakref.WeakSet[SecretValues]" = weakref.WeakSet()
_recent: deque[bytes] = deque(maxlen=RECENT)
_known: tuple[bytes, ...] = ()
"""All values, longest first, so that no part of one remains."""


def _refresh() -> None:
    global _known  # one tuple, replaced as a whole: readers need no lock
    forms = {form for held in _held for form in held.forms}
    _known = tuple(sorted(forms.union(_recent), key=len, reverse=True))


def receive_parameters(parameters: Mapping[str, Any]) -> tuple[dict[str, Any], SecretValues | None]:
    """The parameters of a call for the record and for other processes, and the secrets in them."""
    plain, data = plain_parameters(parameters)
    if any(map(data.lower().__contains__, _SIGNS_OF_SECRETS)):
        return plain, register_secrets(plain)
    return HarmlessParameters(plain), None


def register_secrets(parameters: Mapping[str, Any]) -> SecretValues | None:
    """Redact the secrets in these parameters from everything written from now on; None if there are none."""
    found = list(islice((value for value in _find_secrets(parameters) if len(value) >= SHORTEST), MOST))
    return SecretValues(found) if found else None


def _find_secrets(value: Any, is_secret: bool = False, *, are_headers: bool = False) -> Iterable[str]:
    if value.__class__ is str:
        yield from _parts(value) if is_secret else _secrets_in_address(value)
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from _find_secrets(one, is_secret or _is_hidden(name, one, are_headers=are_headers), are_headers=name == "headers")
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _find_secrets(one, is_secret)
    elif is_secret and value.__class__ is int:
        yield str(value)


def _parts(text: str) -> Iterable[str]:
    """The value itself and the token of `Bearer …`."""
    stripped = text.strip()
    scheme, _, token = stripped.partition(" ")
    return (text, stripped, token.strip()) if scheme.isalpha() else (text, stripped)


def _secrets_in_address(text: str) -> Iterable[str]:
    """Passwords before a host, and the secrets in a query, encoded and decoded."""
    data = text.encode("utf-8", "replace")
    if b"://" in data and b"@" in data:
        yield from (match[1].decode() for match in _PASSWORD.finditer(data))
    if b"=" in data and len(data) <= _QUERY_CHARACTERS:
        for match in _QUERY.finditer(data):
            if _is_secret_here(match):
                value = match["value"].decode("utf-8", "replace")
                yield value
                yield unquote_plus(value)


def _forms(value: str) -> Iterable[bytes]:
    """The value as in text, in JSON and in a URL; of one with several lines, such as a private key, each long line."""
    raw = value.encode("utf-8", "backslashreplace")
    text = raw.decode()
    lines = (line.strip() for line in text.splitlines()) if "\n" in text else ()
    yield from (raw, to_json(text)[1:-1], json.dumps(text)[1:-1].encode(), quote(raw, safe="").encode(), quote_plus(text).encode())
    yield from (line.encode() for line in islice(lines, MOST) if len(line) >= LINE_CHARACTERS and not line.startswith("-----"))


# ---- striking out


Shape = Mapping[str, "Shape | None"]
"""Fields of a record with remit's own text: None for such a field, a shape for one that contains some."""
ALL_FREE: Shape = {}


def redact_bytes(data: bytes) -> bytes:
    """Text without secrets; fast if there are none. For JSON see `redact_json`."""
    for form in _known:
        if form in data:
            data = data.replace(form, _REDACTED)
    return redact_formats(data)


def redact_json(value: Any, data: bytes, *, ours: "Shape" = ALL_FREE) -> bytes:
    """`data`, the JSON of `value`, without secrets. Only strings change, so it stays JSON of the same shape.

    `ours`: remit's own fields, which stay unchanged because programs read them: a password may be the word `failed`."""
    if any(form in data for form in _known):
        data = to_json(_replace_secrets(value, [form.decode() for form in _known], ours), fallback=repr)
    return redact_formats(data)


def _replace_secrets(value: Any, secrets: Iterable[str], ours: "Shape" = ALL_FREE) -> Any:
    if isinstance(value, str):
        for secret in secrets:
            if secret in value:
                value = value.replace(secret, REDACTED)
        return value
    if isinstance(value, Mapping):
        return {
            _replace_in_name(name, secrets): one if (inner := ours.get(name, ALL_FREE)) is None else _replace_secrets(one, secrets, inner)
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_replace_secrets(one, secrets, ours) for one in value]
    if value.__class__ is int and str(value) in secrets:
        return REDACTED
    return value


def _replace_in_name(name: Any, secrets: Iterable[str]) -> Any:
    """Redact a key. Lower-case names are kept, because programs read their records by them; others may be user data."""
    return name if not isinstance(name, str) or (name.isidentifier() and name.islower()) else _replace_secrets(name, secrets)


def redact_value(value: Any) -> Any:
    """Plain JSON as it would be read back from a record."""
    return from_json(redact_json(value, to_json(value)))


def redact_text(text: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    struck = redact_bytes(data)
    return text if struck is data or struck == data else struck.decode("utf-8", "replace")


def redact_key(key: str) -> str:
    """The stored form of a caller's idempotency key, equal in all processes: a digest replaces a secret."""
    data = key.encode("utf-8", "backslashreplace")
    struck = redact_formats(data)
    return key if struck == data else f"{struck.decode('utf-8', 'replace')} {hashlib.sha256(data).hexdigest()[:32]}"


@lru_cache(maxsize=1024)
def is_harmless(text: str) -> bool:
    """Whether a short, frequent text contains no known format. Check `has_known_secrets` for values as well."""
    return "=" not in text and not is_suspicious(text.encode("utf-8", "replace"))


def has_known_secrets() -> bool:
    """Whether any secret values are registered."""
    return bool(_known)


# ---- logs


class _RedactionFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        struck = redact_text(message)
        if struck != message:
            record.msg, record.args = struck, ()
        if record.exc_info:
            record.exc_text = redact_text(_FORMATTER.formatException(record.exc_info))
        return True


_FORMATTER = logging.Formatter()
_FILTER = _RedactionFilter()


def redact_logs() -> None:
    """Redact secrets from all of remit's loggers from now on."""
    for name in list(logging.root.manager.loggerDict):
        if name == "remit" or name.startswith("remit."):
            logging.getLogger(name).addFilter(_FILTER)  # not added twice
