r"""A search through the contents of files in plain Python, as a process of its own: where there is no ripgrep.

A process, because a regular expression of Python's can take for ever and holds whoever runs it: this one is killed at the deadline, and
dies with its parent. Started by `interpreter.module_command`; prints what ripgrep would: `PATH\0LINE:COLUMN:OFFSET:TEXT`, for
context `PATH\0LINE-OFFSET-TEXT`, and in the end how many files it searched. Follows no link.
"""

import codecs
import json
import os
import re
import resource
import stat
import sys
from collections.abc import Iterator
from typing import Any

from remit.system.globs import Rules, compile_glob, read_rules
from remit.system.listing import Walk
from remit.system.processes import die_with_parent

FILE_BYTES = 64 * 1024 * 1024
"""Of one file; what is beyond is not searched."""
LINE_BYTES = 600
_HEAD_BYTES = 8192
_MEMORY_BYTES = 2 << 30
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def main() -> int:
    asked = json.loads(sys.argv[1])
    die_with_parent(asked["parent"])
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (asked["seconds"], asked["seconds"] + 1))
    try:
        pattern = re.compile(asked["pattern"] if asked["regex"] else re.escape(asked["pattern"]), re.I if asked["ignore_case"] else 0)
    except (re.error, RecursionError, OverflowError) as error:
        print(json.dumps({"message": getattr(error, "msg", str(error)), "position": getattr(error, "pos", None)}), file=sys.stderr)
        return 2
    try:
        searched = _search(asked, pattern)
        sys.stdout.buffer.write(b"\n%d files searched\n" % searched)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os._exit(0)
    return 0


def _search(asked: dict[str, Any], pattern: re.Pattern[str]) -> int:
    if asked["file"] is not None:
        _print(b"<stdin>", _lines(_held(asked["file"]), pattern, asked["context"]))
        return 1
    searched = 0
    matches = compile_glob(asked["glob"]) if asked["glob"] else None
    rules = (("", Rules(read_rules(asked["rules"]))),) if asked["rules"] else ()
    walk = Walk(max_depth=None if asked["recursive"] else 1, rules=rules, keeps_ignored=asked["keeps_ignored"])
    for entry in walk.entries(asked["folder"]):
        if entry.is_folder or entry.is_link or (matches is not None and not matches.fullmatch(entry.path)):
            continue
        try:
            descriptor = os.open(entry.name, _READ, dir_fd=entry.folder)
        except OSError:
            continue
        try:
            held = _held(descriptor)
        except OSError:
            continue
        finally:
            os.close(descriptor)
        searched += 1
        _print(b"./" + os.fsencode(entry.path), _lines(held, pattern, asked["context"]))
    return searched


def _held(descriptor: int) -> str | None:
    """The text of a regular file; None for what is not text. Bytes that are no UTF-8 are kept as they are."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return None
    with os.fdopen(os.dup(descriptor), "rb") as file:
        raw = file.read(FILE_BYTES)
    for mark, encoding in _MARKS:
        if raw.startswith(mark):
            return raw[len(mark) :].decode(encoding, "replace") if encoding != "utf-8" else raw.decode("utf-8", "surrogateescape")
    return None if b"\0" in raw[:_HEAD_BYTES] else raw.decode("utf-8", "surrogateescape")


def _lines(text: str | None, pattern: re.Pattern[str], context: int) -> Iterator[tuple[int, int | None, int, bytes]]:
    """Number, column of the match in bytes (None: context), offset in bytes, text."""
    lines = [] if text is None else text.split("\n")
    shown: dict[int, int | None] = {}
    for number, line in enumerate(lines):
        if (found := pattern.search(line.removesuffix("\r"))) is not None and (line or number < len(lines) - 1):
            shown[number] = len(_bytes(line[: found.start()])) + 1
            for near in range(max(0, number - context), min(len(lines), number + context + 1)) if context else ():
                shown.setdefault(near, None)
    offset = 0
    last = max(shown, default=-1)
    for number, line in enumerate(lines[: last + 1]):
        raw = _bytes(line)
        if number in shown:
            yield number + 1, shown[number], offset, raw
        offset += len(raw) + 1


def _print(path: bytes, lines: Iterator[tuple[int, int | None, int, bytes]]) -> None:
    for number, column, offset, raw in lines:
        where = b"%d-%d-" % (number, offset) if column is None else b"%d:%d:%d:" % (number, column, offset)
        sys.stdout.buffer.write(path + b"\0" + where + raw[:LINE_BYTES] + b"\n")
    sys.stdout.buffer.flush()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


if __name__ == "__main__":
    sys.exit(main())
