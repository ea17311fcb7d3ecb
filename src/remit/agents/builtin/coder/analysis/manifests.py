"""What a project says of itself: names, words and entry points of pyproject.toml, package.json, go.mod, Cargo.toml, the README's opening.

Reads few and small files; one that is broken says nothing. Used for the report, and by `resolving` for what a project's own names lead to.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from remit.agents.builtin.coder.analysis.opening import Reader
from remit.agents.builtin.coder.analysis.survey import Entry

NAMES = frozenset({"pyproject.toml", "package.json", "go.mod", "Cargo.toml", "tsconfig.json", "jsconfig.json"})
AT_MOST = 2_000
_BYTES = 512 * 1024
_JSON_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")


@dataclass(slots=True)
class Manifests:
    top: str = ""
    """The folder that is analysed."""
    name: str = ""
    about: str = ""
    entries: list[Entry] = field(default_factory=list)
    go_modules: dict[str, str] = field(default_factory=dict)
    """Module path to folder."""
    crates: dict[str, str] = field(default_factory=dict)
    """Crate name, as it is written in code, to folder."""
    packages: dict[str, str] = field(default_factory=dict)
    """Name of an npm package to folder."""
    package_mains: dict[str, str] = field(default_factory=dict)
    aliases: list[tuple[str, str, str]] = field(default_factory=list)
    """Of TypeScript's configuration: folder, pattern, target."""
    readme: str = ""
    starts: list[str] = field(default_factory=list)
    """Files at the top that people read first."""


def read_manifests(reader: Reader, paths: Iterable[str], below: str) -> Manifests:
    found = Manifests(top=below)
    chosen = sorted((p for p in paths if p.rsplit("/", 1)[-1] in NAMES), key=lambda p: (p.count("/"), p))[:AT_MOST]
    for path in chosen:
        folder, _, name = path.rpartition("/")
        try:
            text = reader.read(path, _BYTES).decode("utf-8", "replace")
            _READERS[name](found, folder, path, text)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue  # broken, or shaped otherwise than anybody expects
    _read_top(found, reader, below)
    return found


def _read_top(found: Manifests, reader: Reader, below: str) -> None:
    prefix = below + "/" if below else ""
    for name in ("README.md", "README.rst", "README.txt", "README", "readme.md"):
        try:
            text = reader.read(prefix + name, _BYTES).decode("utf-8", "replace")
        except OSError:
            continue
        found.readme = prefix + name
        title, opening = _opening(text)
        found.name, found.about = found.name or title, found.about or opening
        break


def _opening(text: str) -> tuple[str, str]:
    """The first heading and the first paragraph of prose."""
    title = ""
    if heading := re.search(r"^#\s+(.+)$|^(\S.*)\n[=~-]{3,}\s*$", text, flags=re.MULTILINE):
        title = (heading[1] or heading[2]).strip()
    for block in re.split(r"\n\s*\n", text):
        words = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(block.split()))
        if len(words) > 40 and not block.lstrip().startswith(("#", "<", "```", "|", "- ", "* ", "..", "[", "=", "![", "    ", ">")):
            return title, words[:400]
    return title, ""


def _pyproject(found: Manifests, folder: str, path: str, text: str) -> None:
    document = tomllib.loads(text)
    project: Mapping[str, Any] = document.get("project") or document.get("tool", {}).get("poetry") or {}
    _introduce(found, folder, project)
    scripts = {**project.get("scripts", {}), **project.get("gui-scripts", {})}
    found.entries += [Entry(path, 0, f"command {name} = {target}") for name, target in list(scripts.items())[:50]]


def _package_json(found: Manifests, folder: str, path: str, text: str) -> None:
    document = json.loads(text)
    name = str(document.get("name") or "")
    _introduce(found, folder, document)
    if name:
        found.packages.setdefault(name, folder)
    main = document.get("module") or document.get("main") or document.get("types")
    if isinstance(main, str) and name:
        found.package_mains[name] = main
    commands = document.get("bin") or {}
    commands = {name: commands} if isinstance(commands, str) else commands
    found.entries += [Entry(path, 0, f"command {command} = {target}") for command, target in list(commands.items())[:50]]


def _go_mod(found: Manifests, folder: str, path: str, text: str) -> None:
    if match := re.search(r"^module\s+(\S+)", text, flags=re.MULTILINE):
        module = match[1].strip('"`')
        found.go_modules[module] = folder
        _introduce(found, folder, {"name": module.rsplit("/", 1)[-1]})


def _cargo(found: Manifests, folder: str, path: str, text: str) -> None:
    document = tomllib.loads(text)
    package = document.get("package", {})
    if name := str(package.get("name") or ""):
        _introduce(found, folder, package)
        found.crates[str(document.get("lib", {}).get("name") or name).replace("-", "_")] = folder


def _tsconfig(found: Manifests, folder: str, path: str, text: str) -> None:
    plain = _TRAILING_COMMA.sub(r"\1", _JSON_COMMENT.sub(lambda m: m[1] or "", text))
    options = json.loads(plain).get("compilerOptions", {})
    base = str(options.get("baseUrl") or ".")
    for pattern, targets in (options.get("paths") or {}).items():
        found.aliases += [(folder, str(pattern), f"{base}/{target}") for target in targets if isinstance(target, str)]
    if "baseUrl" in options:
        found.aliases.append((folder, "*", f"{base}/*"))


def _introduce(found: Manifests, folder: str, fields: Mapping[str, Any]) -> None:
    """Only a manifest at the top speaks for the whole."""
    if folder != found.top:
        return
    if not found.name and isinstance(fields.get("name"), str):
        found.name = fields["name"]
    if not found.about and isinstance(fields.get("description"), str):
        found.about = fields["description"]


_READERS = {
    "pyproject.toml": _pyproject,
    "package.json": _package_json,
    "go.mod": _go_mod,
    "Cargo.toml": _cargo,
    "tsconfig.json": _tsconfig,
    "jsconfig.json": _tsconfig,
}
