"""Names of files in a diff: quoted as git does it, with prefixes, and which of them lead out of the workspace. Pure."""

import re

DEV_NULL = "/dev/null"
_PREFIXES = frozenset({"a", "b", "c", "i", "o", "w", "1", "2", "old", "new"})
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_QUOTED = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*)"')
_EPOCH = re.compile(r"\t(?:1970-01-01|1969-12-31) ")


def names_of_header(rest: str) -> tuple[str | None, str | None]:
    """Of `diff --git A B`: both names, where they can be told apart; the lines that follow know better."""
    if rest.startswith('"') or rest.endswith('"'):
        first = _QUOTED.match(rest)
        old = rest[: first.end()] if first else rest.partition(' "')[0]
        return without_prefix(old, rest[len(old) :].lstrip(" "))
    middle = len(rest) // 2  # without a rename both names are equally long
    if rest[middle : middle + 1] == " " and rest[:middle].partition("/")[2] == rest[middle + 1 :].partition("/")[2]:
        return without_prefix(rest[:middle], rest[middle + 1 :])
    old, _, new = rest.partition(" b/")
    return without_prefix(old, f"b/{new}") if new else without_prefix(*rest.partition(" ")[::2])


def plain_names(old: str, new: str) -> tuple[str | None, str | None]:
    """Of a diff without git's headers: `diff -u old/x.py new/x.py` speaks of x.py; x.py.orig and x.py of the second."""
    made, removed = _EPOCH.search(old) is not None, _EPOCH.search(new) is not None
    old_path, new_path = without_prefix(old, new)
    if old_path is not None and new_path is not None and old_path != new_path:
        old_tail, new_tail = old_path.partition("/")[2], new_path.partition("/")[2]
        old_path = new_path = new_tail if new_tail and old_tail == new_tail else new_path
    return (None if made else old_path), (None if removed else new_path)


def without_prefix(old: str, new: str) -> tuple[str | None, str | None]:
    """Both names unquoted; the prefixes taken off where both have one. None for /dev/null."""
    names = [_unquoted(name.partition("\t")[0] if not name.startswith('"') else name) for name in (old, new)]
    known = [name for name in names if name != DEV_NULL]
    if known and all(name.partition("/")[0] in _PREFIXES and "/" in name for name in known):
        names = [name if name == DEV_NULL else name.partition("/")[2] for name in names]
    return (None if names[0] == DEV_NULL else names[0]), (None if names[1] == DEV_NULL else names[1])


def _unquoted(name: str) -> str:
    found = _QUOTED.match(name)
    if found is None:
        return name
    raw = bytearray()
    inner = found[1]
    position = 0
    while position < len(inner):
        character = inner[position]
        if character != "\\":
            raw += character.encode("utf-8", "surrogateescape")
            position += 1
        elif (octal := inner[position + 1 : position + 4]).isdigit() and len(octal) == 3 and set(octal) <= set("01234567"):
            raw.append(int(octal, 8) & 0xFF)
            position += 4
        else:
            raw.append(_ESCAPES.get(inner[position + 1 : position + 2], 63))
            position += 2
    return raw.decode("utf-8", "surrogateescape")


def leads_out(path: str) -> str:
    """Why this name must not be touched; empty when it may."""
    parts = path.split("/")
    if not path or path.startswith("/") or (len(path) > 1 and path[1] == ":" and path[0].isalpha()):
        return "it is not a path below the workspace"
    if ".." in parts or ("\\" in path and ".." in path.split("\\")):
        return "it leads out of the workspace by .."
    if any(part.lower().rstrip(". ") == ".git" for part in parts):
        return "it lies in git's own folder"
    if any(ord(character) < 32 or ord(character) == 127 for character in path):
        return "it holds control characters"
    return "it has an empty or dotted part" if any(part in ("", ".") for part in parts) else ""
