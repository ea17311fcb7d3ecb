"""What a token looks like: `rmt_`, 43 letters and digits of chance (256 bits), and 6 that check them. Pure.

The prefix lets scanners of repositories and our own records find one (`core.secret_looks`); the check tells them a token from a word that
merely looks alike, and lets a client say that one was cut off before it is sent. No character of it needs quoting anywhere, and a double
click selects it whole.
"""

import binascii
import re
import secrets
import string

PREFIX = "rmt_"
DELEGATION_PREFIX = "rmd_"
"""Of the token of a delegation (`delegating`), which is longer and holds more."""
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_LENGTH, _CHECK_LENGTH = 43, 6
_WHOLE = re.compile(rf"{PREFIX}([0-9A-Za-z]{{{_LENGTH}}})([0-9A-Za-z]{{{_CHECK_LENGTH}}})")


def new_secret() -> str:
    body = _digits(secrets.randbits(256), _LENGTH)  # 62^43 is a little more than 2^256
    return f"{PREFIX}{body}{_check(body)}"


def is_whole(text: str) -> bool:
    """Whether it is a token as one was made: neither cut off nor mistyped. Says nothing of whether it lets anybody in."""
    match = _WHOLE.fullmatch(text)
    return match is not None and _check(match[1]) == match[2]


def _check(body: str) -> str:
    return _digits(binascii.crc32(body.encode()), _CHECK_LENGTH)


def _digits(number: int, length: int) -> str:
    found = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        found.append(_DIGITS[digit])
    return "".join(reversed(found))
