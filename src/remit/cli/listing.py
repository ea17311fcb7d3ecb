"""Results that have a form of their own: the files in a folder, lines that match, what a search of the web found, the text of a file,
what a program printed.

Known by their shape, not by the agent, so that anybody's agent that hands back the like is shown the same way. Used by `data`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from remit.cli.words import one_line, size

_LINE_CHARACTERS = 240
_SIGNS = {"folder": "/", "link": "@"}


def listing(data: Any) -> list[str]:
    """The lines of such a result; none, where it is nothing of the kind. What the summary tells anyway is not told again."""
    if not isinstance(data, Mapping):
        return []
    if _are(entries := data.get("entries"), {"path": str, "type": str}):
        return list(_entries(entries))
    if _are(matches := data.get("matches"), {"path": str, "line": int, "text": str}):
        return list(_matches(matches))
    if _are(results := data.get("results"), {"title": str, "url": str}):
        return list(_results(results))
    if (
        isinstance(data.get("exitCode"), int)
        and isinstance(out := data.get("stdout"), str)
        and isinstance(wrong := data.get("stderr"), str)
    ):
        return [*out.splitlines(), *(["stderr:", *wrong.splitlines()] if wrong.strip() else [])]
    for name in ("content", "text"):
        text = data.get(name)
        if isinstance(text, str) and text.strip() and data.get("encoding", "text") not in ("base64", "binary") and _is_of_a_source(data):
            return text.splitlines()
    return []


def _are(items: Any, fields: Mapping[str, type]) -> TypeGuard[list[Mapping[str, Any]]]:
    is_list = isinstance(items, list) and bool(items)
    return is_list and all(isinstance(one, Mapping) and all(isinstance(one.get(n), t) for n, t in fields.items()) for one in items)


def _is_of_a_source(data: Mapping[str, Any]) -> bool:
    return isinstance(data.get("path"), str) or isinstance(data.get("url"), str)


def _entries(entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """As a file listing has it: size, time, name; a folder ends with a slash, a link with an at sign."""
    for entry in entries:
        is_file = entry["type"] == "file"
        room = size(entry["sizeBytes"]) if is_file and isinstance(entry.get("sizeBytes"), int) else ""
        when = str(entry.get("modifiedAt") or "")[:16].replace("T", " ")
        yield f"{room:>8}  {when:<16}  {_flat(entry['path'])}{_SIGNS.get(entry['type'], '')}"


def _matches(matches: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """As grep has it; lines around a match with a dash, and a rule between what does not touch."""
    has_context = any(match.get("before") or match.get("after") for match in matches)
    last: tuple[str, int] | None = None
    for match in matches:
        path, line = _flat(match["path"]), match["line"]
        before, after = list(match.get("before") or ()), list(match.get("after") or ())
        if has_context and last is not None and (path, line - len(before) - 1) > last:
            yield "--"
        for number, text in enumerate(before, line - len(before)):
            if last is None or (path, number) > last or path != last[0]:
                yield f"{path}-{number}- {_flat(text)}"
        yield f"{path}:{line}: {_flat(match['text'])}"
        yield from (f"{path}-{number}- {_flat(text)}" for number, text in enumerate(after, line + 1))
        last = (path, line + len(after))


def _results(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for number, result in enumerate(results, 1):
        yield f"{number}. {_flat(result['title'])}"
        yield f"   {_flat(result['url'])}"
        if isinstance(snippet := result.get("snippet"), str) and snippet:
            yield f"   {one_line(snippet, _LINE_CHARACTERS)}"


def _flat(text: Any) -> str:
    """On one line, its own blanks kept."""
    words = str(text).replace("\n", "↵").expandtabs(4).rstrip()
    return words if len(words) <= _LINE_CHARACTERS else words[: _LINE_CHARACTERS - 1] + "…"
