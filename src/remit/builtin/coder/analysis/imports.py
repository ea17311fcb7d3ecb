"""Imports resolved to files of the project.

Packages, `src` layouts and relative imports of Python, relative paths of JavaScript and TypeScript, the module path of Go.
"""

import posixpath
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from remit.builtin.coder.analysis.grammars import GRAMMARS

_SCRIPT_ENDINGS = (".ts", ".tsx", ".js", ".jsx", ".mjs", ".cjs", ".mts", ".cts", ".d.ts", ".vue", ".json")
Edges = dict[str, Counter[str]]


class Import(NamedTuple):
    module: str
    names: Sequence[str]
    line: int
    is_lazy: bool
    """Inside a function, or for types only: it does not run with the module."""


class Module(NamedTuple):
    """One parsed file."""

    path: str
    language: str
    imports: Sequence[Import]

    @property
    def node(self) -> str:
        """Its node in the graph: a Go package is one node."""
        return posixpath.dirname(self.path) + "/" if self.language == "Go" else self.path


class ImportGraph:
    def __init__(self, modules: Iterable[Module], go_modules: Mapping[str, str]) -> None:
        """`go_modules`: module path to folder."""
        self.eager: Edges = defaultdict(Counter)
        self.lazy: Edges = defaultdict(Counter)
        modules = list(modules)
        self._files = {module.path for module in modules}
        self._go_packages = {module.node for module in modules if module.language == "Go"}
        self._go_modules = sorted(go_modules.items(), key=lambda item: -len(item[0]))
        self._named: dict[str, list[str]] = defaultdict(list)
        """Python modules by dotted name."""
        for module in modules:
            for name in self._names_of(module.path) if GRAMMARS[module.language].family == "python" else ():
                self._named[name].append(module.path)
        for module in modules:
            if family := GRAMMARS[module.language].family:
                self._connect(module, getattr(self, f"_{family}"))

    def both(self) -> dict[str, set[str]]:
        return {node: self.eager.get(node, {}).keys() | self.lazy.get(node, {}).keys() for node in {*self.eager, *self.lazy}}

    def _connect(self, module: Module, resolve: Callable[[Module, Import], list[str]]) -> None:
        for one in module.imports:
            for target in resolve(module, one):
                if target != module.node:
                    (self.lazy if one.is_lazy else self.eager)[module.node][target] += 1

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

    def _python(self, module: Module, one: Import) -> list[str]:
        folder = posixpath.dirname(module.path)
        if one.module.startswith("."):
            name = one.module.lstrip(".").strip()
            for _ in range(len(one.module) - len(one.module.lstrip(".")) - 1):
                folder = posixpath.dirname(folder)
            base = posixpath.join(folder, name.replace(".", "/")).rstrip("/")
            found = [self._existing(*_python_files(posixpath.join(base, what))) for what in one.names]
            found += [self._existing(*_python_files(base))] if not one.names or not all(found) else []
        else:
            found = [self._nearest(f"{one.module}.{what}", module.path) for what in one.names]
            found += [self._nearest(one.module, module.path)] if not one.names or not all(found) else []
            if not any(found) and f"{folder}/__init__.py" not in self._files:
                found = [self._existing(*_python_files(posixpath.join(folder, one.module.replace(".", "/"))))]
        return list(dict.fromkeys(path for paths in found for path in paths))

    def _script(self, module: Module, one: Import) -> list[str]:
        if not one.module.startswith("."):
            return []
        base = posixpath.normpath(posixpath.join(posixpath.dirname(module.path), one.module.partition("?")[0]))
        stem, ending = posixpath.splitext(base)
        typed = [stem + ending.replace("js", "ts"), stem + ".tsx"] if ending in (".js", ".jsx", ".mjs", ".cjs") else []
        return self._existing(base, *typed, *(base + other for other in _SCRIPT_ENDINGS), *(f"{base}/index{o}" for o in _SCRIPT_ENDINGS))

    def _go(self, module: Module, one: Import) -> list[str]:
        for name, folder in self._go_modules:
            if one.module == name or one.module.startswith(name + "/"):
                target = posixpath.join(folder, one.module[len(name) + 1 :]).rstrip("/") + "/"
                return [target] if target in self._go_packages else []
        return []


def _python_files(base: str) -> tuple[str, ...]:
    return f"{base}.py", f"{base}/__init__.py", f"{base}.pyi"
