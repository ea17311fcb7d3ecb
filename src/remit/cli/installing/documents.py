"""The two formats behind one interface: read an entry, put it in, take it out, all as text. What cannot be done is `Broken`."""

import json
from dataclasses import dataclass
from typing import Any, Protocol

from remit.cli.installing import jsontext, tomltext
from remit.cli.installing.jsonparse import NotJson, parse
from remit.cli.installing.tomltext import NotToml

Path = tuple[str, ...]


class Broken(Exception):
    """The text is not what its format asks for, or the change cannot be made in it; says why, and on which line."""


class Format(Protocol):
    def entry(self, text: str, path: Path) -> Any:
        """What stands there; None when nothing does."""
        ...

    def put(self, text: str, path: Path, value: dict[str, Any]) -> str: ...

    def take_out(self, text: str, path: Path) -> str:
        """Also the object above it, when that is empty then."""
        ...

    def fresh(self, path: Path, value: dict[str, Any]) -> str:
        """A whole new document."""
        ...

    def is_empty(self, text: str) -> bool:
        """Whether nothing that anybody said is in it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Json:
    with_comments: bool
    """Whether whoever reads the file bears comments and a comma at the end."""
    schema: str | None = None
    """What a new document says of itself."""

    def entry(self, text: str, path: Path) -> Any:
        self._check(text)
        return jsontext.value_at(text, path) if text.strip() else None

    def put(self, text: str, path: Path, value: dict[str, Any]) -> str:
        self._check(text)
        try:
            changed = jsontext.with_entry(text, path, value)
        except NotJson as error:
            raise Broken(str(error)) from None
        return self._as_meant(changed, text, path, value)

    def take_out(self, text: str, path: Path) -> str:
        self._check(text)
        changed = self._as_meant(jsontext.without_entry(text, path), text, path, None)
        if len(path) > 1 and jsontext.value_at(changed, path[:-1]) == {}:
            return self.take_out(changed, path[:-1])
        return changed

    def fresh(self, path: Path, value: dict[str, Any]) -> str:
        for key in reversed(path):
            value = {key: value}
        return json.dumps({"$schema": self.schema, **value} if self.schema else value, indent=2) + "\n"

    def is_empty(self, text: str) -> bool:
        if "//" in text.replace(self.schema or "//", "") or "/*" in text:
            return False
        return not text.strip() or not [key for key in parse(text).value if key != "$schema"]

    def _check(self, text: str) -> None:
        if not text.strip():
            return
        try:
            if not self.with_comments:
                json.loads(text.removeprefix("\ufeff"))
            document = parse(text)
        except NotJson as error:
            raise Broken(str(error)) from None
        except json.JSONDecodeError as error:
            raise Broken(f"line {error.lineno}: {error.msg[:1].lower()}{error.msg[1:]}") from None
        except RecursionError:
            raise Broken("it is nested too deeply") from None
        if not document.is_object:
            raise Broken("line 1: the document must be an object { … }")

    def _as_meant(self, changed: str, text: str, path: Path, value: dict[str, Any] | None) -> str:
        """The change, if reading it again gives everything else as it was."""
        after, before = parse(changed).value, parse(text).value
        if jsontext.value_at(changed, path) != value or repr(_less(after, path)) != repr(_less(before, path)):
            raise Broken(f"{'.'.join(path)} cannot be changed here without touching the rest (is a key written twice?)")
        return changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Toml:
    def entry(self, text: str, path: Path) -> Any:
        try:
            return tomltext.value_at(text, path)
        except NotToml as error:
            raise Broken(str(error)) from None

    def put(self, text: str, path: Path, value: dict[str, Any]) -> str:
        try:
            return tomltext.with_table(text, path, value)
        except NotToml as error:
            raise Broken(str(error)) from None

    def take_out(self, text: str, path: Path) -> str:
        try:
            return tomltext.without_table(text, path)
        except NotToml as error:
            raise Broken(str(error)) from None

    def fresh(self, path: Path, value: dict[str, Any]) -> str:
        return tomltext.rendered(path, value)

    def is_empty(self, text: str) -> bool:
        return not text.strip()


def _less(document: dict[str, Any], path: Path) -> dict[str, Any]:
    """Everything but what stands at `path`; an object above it that holds nothing else is not counted."""
    copy = dict(document)
    inner = copy.get(path[0])
    rest = _less(inner, path[1:]) if isinstance(inner, dict) and path[1:] else {}
    if rest:
        copy[path[0]] = rest
    else:
        copy.pop(path[0], None)
    return copy
