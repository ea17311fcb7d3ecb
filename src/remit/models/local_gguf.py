"""What the head of a GGUF file says of the model in it. Reads a file that a stranger may have made; loads nothing, runs nothing.

Used by `local` and `local_files`, to know a model before it is loaded: its name, how much it was trained to read, and whether its
template for conversations knows tools.
"""

import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

MAGIC = b"GGUF"
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _LIST = 8, 9
_MOST_FIELDS = 4096
_MOST_ITEMS = 4_000_000
_LONGEST_TEXT = 4 * 1024 * 1024
_WANTED = ("general.name", "general.architecture", "general.license", "tokenizer.chat_template")


class NotGguf(ValueError):
    """It is no such file, or one that is cut off or garbled. Says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    name: str = ""
    architecture: str = ""
    license: str = ""
    trained_tokens: int | None = None
    """How much it was trained to read at once."""
    calls_tools: bool = False
    """Its template for conversations knows tools."""


def is_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_head(path: Path) -> Head:
    """Raises `NotGguf`, or the `OSError` of a file that cannot be read."""
    found_there = path.stat()
    if not stat.S_ISREG(found_there.st_mode) and not stat.S_ISDIR(found_there.st_mode):
        raise NotGguf("it is no ordinary file")  # to open a pipe could take for ever
    size = found_there.st_size
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise NotGguf("it does not begin as a GGUF file does")
        try:
            found = _fields(file, size)
        except (struct.error, UnicodeDecodeError, OverflowError) as error:
            raise NotGguf(f"its head is cut off or garbled ({error})") from None
    trained = found.get(f"{found.get('general.architecture')}.context_length")
    return Head(
        name=str(found.get("general.name", "")),
        architecture=str(found.get("general.architecture", "")),
        license=str(found.get("general.license", "")),
        trained_tokens=trained if isinstance(trained, int) and trained > 0 else None,
        calls_tools="tools" in str(found.get("tokenizer.chat_template", "")),
    )


def _fields(file: BinaryIO, size: int) -> dict[str, Any]:
    version, _tensors, count = struct.unpack("<IQQ", file.read(20))
    if version not in (2, 3):
        raise NotGguf(f"it is of version {version}, and 2 and 3 can be read")
    if count > _MOST_FIELDS:
        raise NotGguf(f"it claims {count} fields")
    found: dict[str, Any] = {}
    for _ in range(count):
        name = _text(file, size)
        value = _value(file, _number(file, "<I"), size)
        if name in _WANTED or name.endswith(".context_length"):
            found[name] = value
    return found


def _value(file: BinaryIO, kind: int, size: int) -> Any:
    if kind in _NUMBERS:
        return _number(file, _NUMBERS[kind])
    if kind == _TEXT:
        return _text(file, size)
    if kind != _LIST:
        raise NotGguf(f"it holds a value of the unknown kind {kind}")
    inner, count = struct.unpack("<IQ", file.read(12))
    if count > _MOST_ITEMS:
        raise NotGguf(f"it claims a list of {count} items")
    if inner in _NUMBERS:
        file.seek(count * struct.calcsize(_NUMBERS[inner]), 1)
    elif inner == _TEXT:
        for _ in range(count):
            file.seek(_length(file, size), 1)
    else:
        raise NotGguf("it holds lists of lists")
    return None


def _text(file: BinaryIO, size: int) -> str:
    length = _length(file, size)
    if length > _LONGEST_TEXT:
        raise NotGguf(f"it holds a text of {length} bytes")
    return file.read(length).decode(errors="replace")


def _length(file: BinaryIO, size: int) -> int:
    length = _number(file, "<Q")
    if not 0 <= length <= size:
        raise NotGguf("it holds a text that is longer than the file")
    return int(length)


def _number(file: BinaryIO, form: str) -> Any:
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]
