"""Bytes to text by the rules of the web: a byte order mark, what the server says, what the page says, a guess. Never raises.

Only encodings that pages are written in: Python's codecs know others (`hex`, `punycode`, `unicode_escape`) that a server must not choose.
"""

import codecs
import re
from dataclasses import dataclass

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_HEAD_BYTES = 4096
_LABEL = r"[A-Za-z0-9_:.\-]{2,40}"
_META = re.compile(
    rf"""<meta[^>]{{0,400}}?charset\s*=\s*["']?\s*({_LABEL})|^\s*<\?xml[^>]{{0,200}}?encoding\s*=\s*["']({_LABEL})""".encode(),
    re.IGNORECASE,
)
_PARAMETER = re.compile(rf"""charset\s*=\s*["']?\s*({_LABEL})""", re.IGNORECASE)
_WEB = frozenset(
    codecs.lookup(name).name
    for name in (
        "utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp866", "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic", "cp874",
        *(f"iso8859-{number}" for number in range(2, 17) if number != 12), *(f"cp{number}" for number in range(1250, 1259)),
        "gbk", "gb2312", "gb18030", "big5", "big5-hkscs", "euc-jp", "iso-2022-jp", "shift-jis", "cp932", "euc-kr", "cp949",
    )
)  # fmt: skip
_READ_AS = {
    "iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874",
    "gb2312": "gb18030", "gbk": "gb18030", "euc_kr": "cp949", "shift_jis": "cp932", "utf-16": "utf-16-le", "x-sjis": "cp932",
}  # fmt: skip
"""What a page says it is, and what browsers read it as: it is nearly always the larger sister."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    text: str
    charset: str
    is_guessed: bool = False


def text_of(content: bytes, content_type: str = "", *, is_markup: bool = False) -> Text:
    for mark, charset in _MARKS:
        if content.startswith(mark):
            return Text(text=_decoded(content[len(mark) :], charset), charset=charset)
    said = known(found[1]) if (found := _PARAMETER.search(content_type)) else None
    if said is None and is_markup:
        meta = _META.search(content[:_HEAD_BYTES])
        said = known((meta[1] or meta[2]).decode("ascii")) if meta else None
        if said is not None and said.startswith("utf-16"):
            said = "utf-8"  # or the search would not have found it
    if said is not None:
        return Text(text=_decoded(content, said), charset=said)
    try:
        return Text(text=content.decode("utf-8"), charset="utf-8", is_guessed=True)
    except UnicodeDecodeError as error:
        if error.start >= len(content) - 4:  # cut in the middle of a character
            return Text(text=_decoded(content, "utf-8"), charset="utf-8", is_guessed=True)
    guessed = _guess(content)
    return Text(text=_decoded(content, guessed), charset=guessed, is_guessed=True)


def known(label: str) -> str | None:
    """The codec that a label of the web stands for."""
    label = label.strip().lower()
    label = {"windows-31j": "cp932", "x-sjis": "cp932", "utf8": "utf-8", "unicode": "utf-16-le", "x-gbk": "gbk"}.get(label, label)
    try:
        name = codecs.lookup(label).name
    except (LookupError, ValueError):
        return None
    name = _READ_AS.get(name, name)
    return name if name in _WEB else None


def _guess(content: bytes) -> str:
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        return "cp1252"
    best = from_bytes(content[:65536]).best()
    return (known(best.encoding) if best is not None else None) or "cp1252"


def _decoded(content: bytes, charset: str) -> str:
    return content.decode(charset, "replace")
