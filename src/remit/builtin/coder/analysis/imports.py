"""Imports resolved to files of the project.

Packages, `src` layouts and relative imports of Python, relative paths of JavaScript, the module path of Go, `mod` and `use crate` of Rust,
packages of Java, quoted includes of C. Everything else is external and counted by its first part.
"""

import posixpath
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from remit.builtin.coder.analysis.grammars import GRAMMARS

_SCRIPT_ENDINGS = (".ts", ".tsx", ".js", ".jsx", ".mjs", ".cjs", ".mts", ".cts", ".d.ts", ".vue", ".json")
_STAR_AT_MOST = 50
_USES_AT_MOST = 200
Edges = dict[str, Counter[str]]


class Import(NamedTuple):
    module: str
    names: tuple[str, ...]
    line: int
    is_lazy: bool
    """Inside of a function, or for types alone: it does not run with the module."""


class Module(NamedTuple):
    """One parsed file."""

    path: str
    language: str
    package: str
    imports: Sequence[Import]

    @property
    def node(self) -> str:
        """Its place in the graph: a package of Go is one node."""
        return posixpath.dirname(self.path) + "/" if self.language == "Go" else self.path


class ImportGraph:
    def __init__(self, modules: Iterable[Module], go_modules: Mapping[str, str]) -> None:
        """`go_modules`: module path to folder."""
        self.eager: Edges = defaultdict(Counter)
        self.lazy: Edges = defaultdict(Counter)
        self.external: Counter[str] = Counter()
        """Packages by the number of files that import them."""
        modules = list(modules)
        self._files = {module.path for module in modules}
        self._go_packages = {module.node for module in modules if module.language == "Go"}
        self._go_modules = sorted(go_modules.items(), key=lambda item: -len(item[0]))
        self._named: dict[str, list[str]] = defaultdict(list)
        """Python modules and Java classes by dotted name, Java packages too, C files by base name."""
        for module in modules:
            for name in self._names_of(module):
                self._named[name].append(module.path)
        for module in modules:
            self._connect(module)

    def both(self) -> dict[str, set[str]]:
        return {node: self.eager.get(node, {}).keys() | self.lazy.get(node, {}).keys() for node in {*self.eager, *self.lazy}}

    def _connect(self, module: Module) -> None:
        outside = set()
        resolve = getattr(self, f"_{GRAMMARS[module.language].family}")
        for one in module.imports:
            targets: list[str] = resolve(module, one)
            if not targets and (name := _external(GRAMMARS[module.language].family, one.module)) and name not in self._named:
                outside.add(name)
            for target in targets:
                if target != module.node:
                    (self.lazy if one.is_lazy else self.eager)[module.node][target] += 1
        self.external.update(outside)

    def _names_of(self, module: Module) -> Iterator[str]:
        family, path = GRAMMARS[module.language].family, module.path
        stem, name = posixpath.splitext(path)[0], posixpath.basename(path)
        if family == "python":
            parts = stem.removesuffix("/__init__").split("/")
            start = len(parts) - 1
            while start and f"{'/'.join(parts[:start])}/__init__.py" in self._files:
                start -= 1
            in_package = start < len(parts) - 1 or name == "__init__.py"
            names = [parts[start:]] if in_package else []  # a module outside of packages is found by its neighbours alone
            names += [parts, parts[1:]] if parts[0] in ("src", "lib") else [parts]
            yield from dict.fromkeys(".".join(one) for one in names if one)
        elif family == "java":
            yield f"{module.package}.{posixpath.basename(stem)}".lstrip(".")
            yield f"{module.package}.*"
        elif family == "c":
            yield name

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

    def _rust(self, module: Module, one: Import) -> list[str]:
        folder, name = posixpath.split(module.path)
        own = folder if name in ("mod.rs", "lib.rs", "main.rs") else posixpath.join(folder, name.removesuffix(".rs"))
        if one.module.startswith("mod "):
            return self._existing(*_rust_files(posixpath.join(own, one.module[4:])))
        root = folder
        while root and not self._existing(f"{root}/lib.rs", f"{root}/main.rs"):
            root = posixpath.dirname(root)
        found = []
        for use in expand_use(one.module):
            parts = use.split("::")
            base = {"crate": root, "self": own, "super": posixpath.dirname(own)}.get(parts[0])
            while parts[1:] and parts[1] == "super" and base is not None:
                base, parts = posixpath.dirname(base), parts[1:]
            inside = own if base is None else base
            parts = parts if base is None else parts[1:]
            choices = [path for end in range(len(parts), 0, -1) for path in _rust_files("/".join([inside, *parts[:end]]).lstrip("/"))]
            found += self._existing(*choices, *([f"{root}/lib.rs", f"{root}/main.rs"] if parts[:1] and base == root else []))
        return list(dict.fromkeys(found))

    def _java(self, module: Module, one: Import) -> list[str]:
        stars = self._named.get(f"{one.module}.*", [])
        if stars:
            return stars if len(stars) <= _STAR_AT_MOST else []
        parts = one.module.split(".")  # a class, a member of one, or a class inside of one
        return next(
            (hit for end in range(len(parts), len(parts) - 3, -1) if (hit := self._nearest(".".join(parts[:end]), module.path))), []
        )

    def _c(self, module: Module, one: Import) -> list[str]:
        if not one.module.startswith('"'):
            return []
        name = posixpath.normpath(one.module.strip('"'))
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(module.path), name))
        tails = [path for path in self._named.get(posixpath.basename(name), ()) if path.endswith("/" + name.lstrip("./"))]
        return self._existing(beside) or sorted(tails, key=lambda path: (-len(posixpath.commonprefix([path, module.path])), path))[:1]


def _python_files(base: str) -> tuple[str, ...]:
    return f"{base}.py", f"{base}/__init__.py", f"{base}.pyi"


def _rust_files(base: str) -> tuple[str, ...]:
    return f"{base}.rs", f"{base}/mod.rs"


def _external(family: str, module: str) -> str:
    parts = module.split("/")
    first = re.split(r"[.:\s]", module)[0]
    if family == "python":
        return "" if not first or first in sys.stdlib_module_names else first
    if family == "script":
        return "" if module.startswith((".", "node:", "/")) else "/".join(parts[: 2 if module.startswith("@") else 1])
    if family == "go":
        return "/".join(parts[:3]) if "." in parts[0] else ""
    if family == "rust":
        return "" if first in ("std", "core", "alloc", "crate", "self", "super", "mod") or not first.isidentifier() else first
    return ".".join(module.split(".")[:3]) if family == "java" and not module.startswith(("java.", "javax.")) else ""


def expand_use(use: str) -> list[str]:
    """`a::{b, c::{d, e}}` as `a::b`, `a::c::d`, `a::c::e`; `a::*` and `a::{self}` as `a`."""
    found, prefixes, current = [], [""], ""
    for token in re.findall(r"[{},]|[^{},]+", use.removeprefix("pub ")):
        if token == "{":
            prefixes.append(current)
            current = ""
        elif token in "},":
            found += [current] if current else []
            current = ""
            if token == "}" and len(prefixes) > 1:
                prefixes.pop()
        else:
            current = prefixes[-1] + re.sub(r"\s+as\s+\w+", "", token).strip()
    found += [current] if current else []
    return [one.removesuffix("::*").removesuffix("::self").removesuffix("::") for one in found[:_USES_AT_MOST]]
