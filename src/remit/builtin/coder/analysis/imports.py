"""Imports resolved to files of the project: packages, `src` layouts and relative imports of Python, relative paths of JavaScript and
TypeScript."""

import posixpath
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from remit.builtin.coder.analysis.grammars import GRAMMARS

_SCRIPT_ENDINGS = (".ts", ".tsx", ".js", ".jsx", ".mjs", ".cjs", ".mts", ".cts", ".d.ts", ".vue", ".json")
Edges = dict[str, Counter[str]]


class Import(NamedTuple):
    module: str
    names: Sequence[str]
    line: int
    is_lazy: bool
    """Inside a function, or for types only: it does not run with the module."""


class ImportGraph:
    def __init__(self, files: Sequence[dict[str, Any]]) -> None:
        """`files`: facts with their paths."""
        self.eager: Edges = defaultdict(Counter)
        """Imports that run with the module."""
        self.all: Edges = defaultdict(Counter)
        families = {one["path"]: GRAMMARS[one["language"]].family for one in files if "imports" in one}
        self._files = families.keys()
        self._named: dict[str, list[str]] = defaultdict(list)
        """Python modules by dotted name."""
        for path, family in families.items():
            for name in self._names_of(path) if family == "python" else ():
                self._named[name].append(path)
        for one in files:
            path = one["path"]
            resolve = self._python if families.get(path) == "python" else self._script
            for imported in map(Import._make, one["imports"] if families.get(path) else ()):
                for target in resolve(path, imported):
                    if target != path:
                        self.all[path][target] += 1
                        self.eager[path][target] += not imported.is_lazy
        self.eager = {path: +targets for path, targets in self.eager.items()}

    def _names_of(self, path: str) -> Iterable[str]:
        parts = posixpath.splitext(path)[0].removesuffix("/__init__").split("/")
        start = len(parts) - 1
        while start and f"{'/'.join(parts[:start])}/__init__.py" in self._files:
            start -= 1
        in_package = start < len(parts) - 1 or path.endswith("/__init__.py")
        names = [parts[start:]] if in_package else []  # a module outside packages is found only by its neighbours
        names += [parts, parts[1:]] if parts[0] in ("src", "lib") else [parts]
        return dict.fromkeys(".".join(one) for one in names if one)

    def _nearest(self, name: str, importer: str) -> list[str]:
        return sorted(self._named.get(name, ()), key=lambda path: (-len(posixpath.commonprefix([path, importer])), len(path), path))[:1]

    def _existing(self, *paths: str) -> list[str]:
        return [path for path in paths if path in self._files][:1]

    def _python(self, path: str, one: Import) -> list[str]:
        folder = posixpath.dirname(path)
        if one.module.startswith("."):
            name = one.module.lstrip(".").strip()
            for _ in range(len(one.module) - len(one.module.lstrip(".")) - 1):
                folder = posixpath.dirname(folder)
            base = posixpath.join(folder, name.replace(".", "/")).rstrip("/")
            found = [self._existing(*_python_files(posixpath.join(base, what))) for what in one.names]
            found += [self._existing(*_python_files(base))] if not one.names or not all(found) else []
        else:
            found = [self._nearest(f"{one.module}.{what}", path) for what in one.names]
            found += [self._nearest(one.module, path)] if not one.names or not all(found) else []
            if not any(found) and f"{folder}/__init__.py" not in self._files:
                found = [self._existing(*_python_files(posixpath.join(folder, one.module.replace(".", "/"))))]
        return list(dict.fromkeys(path for paths in found for path in paths))

    def _script(self, path: str, one: Import) -> list[str]:
        if not one.module.startswith("."):
            return []
        base = posixpath.normpath(posixpath.join(posixpath.dirname(path), one.module.partition("?")[0]))
        stem, ending = posixpath.splitext(base)
        typed = [stem + ending.replace("js", "ts"), stem + ".tsx"] if ending in (".js", ".jsx", ".mjs", ".cjs") else []
        return self._existing(base, *typed, *(base + other for other in _SCRIPT_ENDINGS), *(f"{base}/index{o}" for o in _SCRIPT_ENDINGS))


def _python_files(base: str) -> tuple[str, ...]:
    return f"{base}.py", f"{base}/__init__.py", f"{base}.pyi"
