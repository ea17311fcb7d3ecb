"""A piece of a file as text, or as base64 for binary content: by its byte order mark, as UTF-8, or by a guess that a note names.

A UTF-8 character is never split: a piece that would begin or end inside one is moved to its start. Reads only what it needs; independent of
paths. Used by `worker.read_file`; `worker.write_file` takes the same encoding names."""

import base64
import codecs
import os
from collections.abc import Sequence
from typing import NamedTuple

HEAD_BYTES = 8192
BASE64 = "base64"
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
ENCODINGS = (
    "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "ascii", "latin-1", *(f"cp125{number}" for number in range(9)),
    "iso-8859-2", "iso-8859-15", "koi8-r", "shift-jis", "euc-jp", "euc-kr", "gb18030", "big5",
)  # fmt: skip
_CONTROLS = bytes((*range(0x09), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F))
"""Bytes that text rarely contains."""
_LONGEST = 4
"""Bytes of one character in UTF-8."""


class Piece(NamedTuple):
    """A part of a file, as text or as base64."""

    content: str
    encoding: str
    offset: int
    """Its actual start."""
    bytes_read: int
    notes: Sequence[str] = ()

    @property
    def end(self) -> int:
        return self.offset + self.bytes_read


def read_piece(descriptor: int, size: int, offset: int, limit: int, encoding: str | None) -> Piece:
    head = os.pread(descriptor, HEAD_BYTES, 0)
    chosen = encoding or guess_encoding(head)
    if chosen in (None, "utf-8", "utf-8-sig") and (piece := _utf8(descriptor, size, offset, limit, is_certain=chosen is not None)):
        if head.startswith(codecs.BOM_UTF8):
            content = piece.content.removeprefix("\ufeff") if piece.offset == 0 else piece.content
            piece = piece._replace(encoding="utf-8-sig", content=content)
        return piece
    raw = _read(descriptor, limit, offset)
    notes: list[str] = []
    if chosen is None:
        chosen = BASE64 if _is_no_text(raw) else "cp1252"
        notes += [] if chosen == BASE64 else [f"It is not UTF-8; {chosen} is a guess. Give encoding to have it read otherwise."]
    if chosen == BASE64:
        return Piece(content=base64.b64encode(raw).decode(), encoding=BASE64, offset=offset, bytes_read=len(raw))
    content = raw.decode(chosen, "replace").removeprefix("\ufeff")
    notes += ["Some bytes are not valid in that encoding and are shown as \ufffd."] if "\ufffd" in content else []
    return Piece(content=content, encoding=chosen, offset=offset, bytes_read=len(raw), notes=notes)


def guess_encoding(head: bytes) -> str | None:
    """The encoding that the start of a file proves; None for text that must be checked piece by piece."""
    return next((name for mark, name in _MARKS if head.startswith(mark)), BASE64 if b"\0" in head else None)


def _utf8(descriptor: int, size: int, offset: int, limit: int, *, is_certain: bool) -> Piece | None:
    """None: it is not UTF-8."""
    start = _character_start(descriptor, offset)
    raw = _read(descriptor, limit + offset - start, start)
    content, kept = _decode(raw, is_end=start + len(raw) >= size)
    if raw and not kept:  # less than one character was requested
        raw = _read(descriptor, _LONGEST, start)
        content, kept = next(((text, n) for n in range(1, len(raw) + 1) if (text := _decode(raw[:n], is_end=False)[0])), ("", 0))
    raw = raw[:kept]
    notes = []
    if broken := content.count("\ufffd") - raw.count("\ufffd".encode()):
        if not is_certain and sum(not character.isascii() for character in content) < 2 * broken:
            return None
        notes.append(f"{broken:,} places are not valid UTF-8 and are shown as \ufffd.")
    if not is_certain and _is_no_text(raw):
        return None
    if start != offset:
        notes.append(f"Offset {offset} is inside a character; this begins at {start}.")
    return Piece(content=content, encoding="utf-8", offset=start, bytes_read=len(raw), notes=notes)


def _decode(raw: bytes, *, is_end: bool) -> tuple[str, int]:
    """The text and its number of bytes: a character cut at the end is omitted."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(raw, is_end)
    return text, len(raw) - len(decoder.getstate()[0])


def _character_start(descriptor: int, offset: int) -> int:
    """Where the character at this offset begins: continuation bytes are between 0x80 and 0xBF."""
    here = min(offset, _LONGEST - 1)
    near = _read(descriptor, here + 1, offset - here)
    return offset - next((back for back, byte in enumerate(reversed(near)) if len(near) > here and byte & 0xC0 != 0x80), 0)


def _is_no_text(raw: bytes) -> bool:
    return b"\0" in raw or len(raw) - len(raw.translate(None, _CONTROLS)) > len(raw) // 10


def _read(descriptor: int, count: int, offset: int) -> bytes:
    pieces, left = [], count
    while left > 0 and (piece := os.pread(descriptor, min(left, 1 << 20), offset)):
        pieces.append(piece)
        offset, left = offset + len(piece), left - len(piece)
    return b"".join(pieces)
