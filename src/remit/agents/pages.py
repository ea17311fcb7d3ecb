"""Agent files as text: a Markdown page with a YAML head, and the output schema that it names. Both are read within the project only."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from os.path import normpath
from pathlib import Path
from stat import S_ISREG
from typing import Any

import yaml
from frontmatter.default_handlers import YAMLHandler
from pydantic_core import from_json, to_json

from remit.agents.definition import Declared
from remit.core.errors import Misused
from remit.flow.output_schema import checked_schema

# ---- reading files

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class Gone(Misused):
    """There is no such file; where it was listed, not any more."""


def bytes_of(path: Path, root: Path, most: int) -> bytes:
    """What it holds. Raises `Misused`, without the path."""
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(root.resolve()):
            raise Misused("it is a link that leads out of the project.")
        descriptor = os.open(real, _FLAGS)
        with os.fdopen(descriptor, "rb") as opened:
            if not S_ISREG(os.fstat(descriptor).st_mode):
                raise Misused("it is no file.")
            data = opened.read(most + 1)
    except FileNotFoundError as error:
        raise Gone(f"it cannot be read: {error.strerror}.") from None
    except IsADirectoryError:
        raise Misused("it is no file.") from None
    except RuntimeError as error:  # links in a circle, before Python 3.13
        raise Misused(f"it cannot be read: {error}.") from None
    except OSError as error:
        # ENXIO is a socket's.
        raise Misused(f"it cannot be read: {error.strerror or error}." if not _is_special(path) else "it is no file.") from None
    if len(data) > most:
        raise Misused(f"it is larger than {most // 1024} KiB.")
    return data


def _is_special(path: Path) -> bool:
    try:
        return not S_ISREG(path.stat().st_mode)
    except OSError:
        return False


# ---- output schemas

KEY = "output_schema"
SCHEMA_BYTES = 256 * 1024


def with_schema(declared: Declared, root: Path) -> Declared:
    """With the schema itself in the place of its path. Raises `Misused`, beginning with the key."""
    said = declared.table.get(KEY)
    if said is None:
        return declared
    schema = _read(said, root) if isinstance(said, str) else said
    # As JSON: YAML knows dates and numbers as names, which no wire carries.
    plain: Any = from_json(to_json(checked_schema(schema)))
    return replace(declared, table={**declared.table, KEY: plain})


def _read(path: str, root: Path) -> Any:
    if not path.endswith(".json") or "\0" in path:
        raise Misused(f"{KEY}: {path!r:.200} is no .json file: write the schema itself, or the path of a file in the project.")
    if not Path(normpath(root / path)).is_relative_to(normpath(root)):  # whether it is there is nobody's to learn
        raise Misused(f"{KEY}: {path} leads out of the project.")
    try:
        data = bytes_of(root / path, root, SCHEMA_BYTES)
    except Misused as error:
        raise type(error)(f"{KEY}: {path} {error.message.removeprefix('it ')}") from None
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise Misused(f"{KEY}: {path}: line {error.lineno}: it is not JSON: {error.msg}.") from None
    except (ValueError, RecursionError) as error:
        raise Misused(f"{KEY}: {path} is not JSON: {str(error)[:100]}.") from None


# ---- pages

LARGEST_BYTES = 1024 * 1024
"""More is no instruction that anybody wrote."""
LARGEST_HEAD = 64 * 1024
DEEPEST = 50
_BOUNDARY = re.compile(r"^---[ \t]*$", re.MULTILINE)
_PLAIN_LINE = re.compile(r"^([A-Za-z][\w-]*):[ \t]+([^\s\"'\[{|>&*!%@`#].*)$")
_HINT_LINE = re.compile(r"^(argument-hint):[ \t]+([^\"'].*)$")
"""`[number] [words]`, as it stands in many a command file, is no YAML either."""
_YAML_ERRORS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What the YAML library raises, beside its own errors, for values that look like dates, numbers or truths and are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    path: Path
    head: Mapping[str, Any]
    body: str
    lines: Mapping[str, int]
    """On which line of the file each key of the head stands."""


class _Loader(yaml.SafeLoader):
    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """References are refused: nobody needs them here, and a few lines of them can stand for more than any memory holds."""
        if self.check_event(yaml.AliasEvent) or self._depth == DEEPEST:
            problem = "it is nested too deeply" if self._depth == DEEPEST else "references (*name) are not read here"
            raise yaml.composer.ComposerError(None, None, problem, self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """A key that stands there twice is refused: readers would believe the one and we the other."""
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value[:60]} stands there twice", key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return super().construct_mapping(node, deep)


def read_page(path: Path, root: Path) -> Page | None:
    """The page at `path`; None when it has no head, so is no agent. Raises `Misused` that says what is wrong, and on which line."""
    return page_of(_text_of(path, root), path)


def read_with_or_without_head(path: Path, root: Path) -> Page:
    """The page at `path`; all of it is body when it has no head. Raises `Misused`, as `read_page` does."""
    text = _text_of(path, root)
    return page_of(text, path) or Page(path=path, head={}, body=text.strip(), lines={})


def page_of(text: str, path: Path) -> Page | None:
    """A text as the page that it would be at `path`, as `read_page` takes it. Raises `Misused`."""
    head, body = _split(text)
    if head is None:
        return None
    if len(head) > LARGEST_HEAD:
        raise Misused(f"its head has {len(head)} characters; {LARGEST_HEAD} are the most.")
    said, lines = _parsed(head)
    if said is None:
        said = {}
    if not isinstance(said, dict):
        raise Misused(f"line 2: the head must be keys and values, not a {type(said).__name__}.")
    return Page(path=path, head={str(key): value for key, value in said.items()}, body=body.strip(), lines=lines)


def _text_of(path: Path, root: Path) -> str:
    data = bytes_of(path, root, LARGEST_BYTES)
    if b"\0" in data:
        raise Misused("it is not text.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Misused(f"line {data[: error.start].count(10) + 1}: it is not UTF-8 text.") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _split(text: str) -> tuple[str | None, str]:
    handler = YAMLHandler(fm_boundary=_BOUNDARY)
    if not handler.detect(text):
        return None, text
    try:
        head, body = handler.split(text)
    except ValueError:
        raise Misused("line 1: its head is not ended by a line of three dashes.") from None
    return head.removeprefix("\n"), body


def _parsed(head: str) -> tuple[Any, dict[str, int]]:
    """As YAML, with the lines of its keys; and where that fails, with one-line values taken as the plain text that they are meant as.

    `description: Use this when: …` is no YAML, yet stands in many files, and those who read them elsewhere let it pass.
    """
    try:
        return _loaded(head)
    except (yaml.YAMLError, *_YAML_ERRORS) as error:
        first = error
    try:
        return _loaded(_quoted(head))
    except (yaml.YAMLError, *_YAML_ERRORS):
        raise Misused(_said(first)) from None


def _loaded(head: str) -> tuple[Any, dict[str, int]]:
    loader = _Loader(head)
    try:
        node = loader.get_single_node()
        return (None, {}) if node is None else (loader.construct_document(node), _lines(node))
    finally:
        loader.dispose()


def _quoted(head: str) -> str:
    lines = []
    for line in head.split("\n"):
        line = line.rstrip(" \t")
        plain = _PLAIN_LINE.match(line)
        if plain and not (": " in plain[2] or " #" in plain[2] or plain[2].endswith(":")):
            plain = None
        if plain := plain or _HINT_LINE.match(line):
            value = plain[2].replace("'", "''")
            line = f"{plain[1]}: '{value}'"
        lines.append(line)
    return "\n".join(lines)


def _said(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error) or type(error).__name__
    line = f"line {mark.line + 2}: " if mark is not None else ""
    return f"{line}its head is not YAML: {str(problem)[:200]}."


def _lines(node: Any) -> dict[str, int]:
    """On which line of the file each key of the head stands, and each inside of one of its keys (`remit:`) that is not in the head."""
    found: dict[str, int] = {}
    inside: dict[str, int] = {}
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        found[str(key.value)] = key.start_mark.line + 2
        for one, _ in value.value if isinstance(value, yaml.MappingNode) else ():
            inside.setdefault(str(one.value), one.start_mark.line + 2)
    return {**inside, **found}
