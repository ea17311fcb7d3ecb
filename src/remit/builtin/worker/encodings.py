"""A piece of a file as text, or as base64 for binary content. The start of the file decides the encoding unless the caller names it.

A UTF-8 character is never split: a piece that would begin or end inside one is moved to its start."""

import codecs
import os
from base64 import b64encode
from typing import NamedTuple

from remit.core.errors import Misused

HEAD_BYTES = 8192
BASE64 = "base64"
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_CONTROLS = bytes((*range(0x09), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F))
"""Bytes that text rarely contains."""
_INSIDE = frozenset(bytes([byte]) for byte in range(0x80, 0xC0))
"""Bytes inside a character of UTF-8."""
_LONGEST = 4
"""Bytes of one character in UTF-8."""


class Piece(NamedTuple):
    """A part of a file, as text or as base64."""

    content: str
    encoding: str
    offset: int
    """Its actual start."""
    bytes_read: int
    note: str = ""

    @property
    def end(self) -> int:
        return self.offset + self.bytes_read


def check_encoding(name: str) -> str:
    """The usual name of an encoding of text, or `base64`. Raises `Misused`."""
    if name == BASE64:
        return name
    try:
        "".encode(name)  # no codec of bytes
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        raise Misused(f"The encoding {name!r:.60} is not known.", advice="Use utf-8, utf-16, cp1252 or base64, for example.") from None


def read_piece(descriptor: int, size: int, offset: int, limit: int, given: str | None) -> Piece:
    encoding, note = (given, "") if given else guess_encoding(os.pread(descriptor, HEAD_BYTES, 0))
    start = offset
    if encoding not in ("utf-8", "utf-8-sig"):
        raw = os.pread(descriptor, limit, offset)
        text = b64encode(raw).decode() if encoding == BASE64 else raw.decode(encoding, "replace")
    else:
        while start > max(0, offset - _LONGEST + 1) and os.pread(descriptor, 1, start)[:1] in _INSIDE:
            start -= 1
        for most in (limit, _LONGEST):
            raw = os.pread(descriptor, most + offset - start, start)
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            text = decoder.decode(raw, start + len(raw) >= size)
            if text:  # otherwise it is the beginning of a character
                break
        raw = raw[: len(raw) - len(decoder.getstate()[0])]
    if "\ufffd" in text:  # written back, such a text would destroy the file
        note = note or "Some bytes are not valid in that encoding and are shown as \ufffd."
    return Piece(text.removeprefix("\ufeff") if start == 0 else text, encoding, start, len(raw), note)


def guess_encoding(head: bytes) -> tuple[str, str]:
    """The encoding that the start of a file suggests; and a note if it is a mere guess."""
    if marked := next((name for mark, name in _MARKS if head.startswith(mark)), ""):
        return marked, ""
    if b"\0" in head or len(head) - len(head.translate(None, _CONTROLS)) > len(head) // 10:
        return BASE64, ""
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(head)
    broken = text.count("\ufffd")
    if sum(not character.isascii() for character in text) >= 2 * broken:
        return "utf-8", ""
    return "cp1252", "It is not UTF-8; cp1252 is a guess."
