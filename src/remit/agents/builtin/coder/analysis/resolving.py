"""Imports made into edges: to which file of the project a name leads, by the rules of each language. Reads nothing.

A name that leads to no file of the project is a dependency on others and is counted by its first part. Where several files would do
(a monorepo), the one nearest to the importer is meant. One function per family of languages; see `languages`.
"""

import posixpath
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from remit.agents.builtin.coder.analysis.languages import BY_NAME
from remit.agents.builtin.coder.analysis.manifests import Manifests
from remit.agents.builtin.coder.analysis.rusty import CrateIndex
from remit.agents.builtin.coder.analysis.survey import Import, Member

_SCRIPT_ENDINGS = (".ts", ".tsx", ".d.ts", ".js", ".jsx", ".mjs", ".cjs", ".mts", ".cts", ".json")
_SCRIPT_INDEX = tuple(f"/index{ending}" for ending in _SCRIPT_ENDINGS)
_TS_FOR_JS = {".js": (".ts", ".tsx"), ".jsx": (".tsx",), ".mjs": (".mts",), ".cjs": (".cts",)}
_STAR_AT_MOST = 40


@dataclass(slots=True)
class Edges:
    hard: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """From a module to those it loads, with how often."""
    lazy: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    outside: Counter[str] = field(default_factory=Counter)
    """Names of other people's modules, by how many files import them."""
    internal: int = 0
    external: int = 0


def node_of(member: Member) -> str:
    """What stands for a file in the graph: for Go the package, which is a folder; otherwise the file."""
    return posixpath.dirname(member.path) + "/" if member.language == "Go" else member.path


def resolve(members: Iterable[Member], manifests: Manifests, is_package: Callable[[str], bool]) -> Edges:
    """`is_package` tells of folders above what is analysed whether they are Python packages."""
    members = list(members)
    resolver = Resolver(members, manifests, is_package)
    edges = Edges()
    for member in members:
        source, outside = node_of(member), set[str]()
        for one in member.imports:
            targets = resolver.targets(member, one)
            for target in targets:
                if target != source:
                    (edges.lazy if one.is_lazy else edges.hard)[source][target] += 1
                    edges.internal += 1
            if not targets and (name := resolver.outsider(member, one)):
                outside.add(name)
                edges.external += 1
        if not member.is_test:
            edges.outside.update(outside)
    return edges


class Resolver:
    def __init__(self, members: list[Member], manifests: Manifests, is_package: Callable[[str], bool]) -> None:
        self._files = {member.path for member in members}
        self._manifests = manifests
        self._is_package = is_package
        self._python: dict[str, list[str]] = defaultdict(list)
        self._starts: dict[str, int] = {}
        self._own: set[str] = set()
        top = manifests.top.split("/") if manifests.top else []
        self._tops = [[], top, *([*top, name] for name in ("src", "lib", "python"))]
        self._java: dict[str, list[str]] = defaultdict(list)
        self._java_packages: dict[str, list[str]] = defaultdict(list)
        self._tails: dict[str, list[str]] = defaultdict(list)
        self._go_folders: set[str] = set()
        self._crates = CrateIndex(manifests.crates)
        for member in members:
            self._index(member)
        self._families: dict[str, Callable[[Member, Import], list[str]]] = {
            "python": self._of_python, "script": self._of_script, "go": self._of_go,
            "rust": self._of_rust, "java": self._of_java, "c": self._of_c,
        }  # fmt: skip

    def targets(self, member: Member, one: Import) -> list[str]:
        family = self._families.get(BY_NAME[member.language].family)
        return [] if family is None else family(member, one)

    def outsider(self, member: Member, one: Import) -> str:
        """The name by which somebody else's module is counted; empty for what comes with the language."""
        family, module = BY_NAME[member.language].family, one.module
        if family == "python":
            top = module.partition(".")[0]
            return "" if top in sys.stdlib_module_names or top in self._own or top == "__main__" else top
        if family == "script":
            parts = module.split("/")
            return "" if module.startswith((".", "node:", "/")) else "/".join(parts[: 2 if module.startswith("@") else 1])
        if family == "go":
            return "/".join(module.split("/")[:3]) if "." in module.partition("/")[0] else ""
        if family == "rust":
            top = module.partition("::")[0].partition(" ")[0]
            return "" if top in ("std", "core", "alloc", "crate", "self", "super", "mod") or not top.isidentifier() else top
        if family == "java":
            return "" if module.startswith(("java.", "javax.")) else ".".join(module.split(".")[:3])
        return ""

    def _index(self, member: Member) -> None:
        family, path = BY_NAME[member.language].family, member.path
        if family == "python":
            for name in self._python_names(path):
                self._python[name].append(path)
                self._own.add(name.partition(".")[0])
        elif family == "go":
            self._go_folders.add(posixpath.dirname(path))
        elif family == "rust":
            self._crates.add(path)
        elif family == "java":
            self._java[f"{member.package}.{posixpath.basename(path)[:-5]}".lstrip(".")].append(path)
            self._java_packages[member.package].append(path)
        elif family == "c":
            self._tails[posixpath.basename(path)].append(path)

    # ---- Python

    def _python_names(self, path: str) -> Iterator[str]:
        """From the folder above its topmost package, which is on the path when it can be imported; and from the top, for namespaces."""
        stem = posixpath.splitext(path)[0]
        parts = stem.split("/")
        if parts[-1] == "__init__":
            parts.pop()
        start = self._package_start("/".join(parts[:-1]), len(parts) - 1)
        if start < len(parts) - 1 or posixpath.basename(path) == "__init__.py" or parts[:start] in self._tops:
            yield ".".join(parts[start:])  # a module in no package, in some folder, is only its neighbours': see `_of_python`
        if start > 0:
            yield ".".join(parts)
            if parts[0] in ("src", "lib", "python") and start > 1:
                yield ".".join(parts[1:])

    def _package_start(self, folder: str, depth: int) -> int:
        """How many folders lie above the topmost package that a folder is in."""
        known = self._starts.get(folder)
        if known is None:
            is_package = depth > 0 and (f"{folder}/__init__.py" in self._files or self._is_package(folder))
            known = self._package_start(folder.rpartition("/")[0], depth - 1) if is_package else depth
            self._starts[folder] = known
        return known

    def _of_python(self, member: Member, one: Import) -> list[str]:
        module = one.module
        if module.startswith("."):
            return self._relative_python(member.path, module, one.names)
        if found := self._python_module(module, one.names, member.path):
            return found
        folder = posixpath.dirname(member.path)
        if f"{folder}/__init__.py" in self._files:
            return []  # `import types` in a package is the language's own, though a types.py stands beside it
        beside = posixpath.join(folder, module.replace(".", "/")) + ".py"
        return [beside] if beside in self._files else []

    def _relative_python(self, path: str, module: str, names: tuple[str, ...]) -> list[str]:
        name = module.lstrip(".").strip()
        folder = posixpath.dirname(path)
        for _ in range(len(module) - len(module.lstrip(".")) - 1):
            folder = posixpath.dirname(folder)
        base = posixpath.join(folder, *name.split(".")) if name else folder
        found = [hit for what in names for hit in self._python_file(f"{base}/{what}" if base else what)]
        if len(found) < len(names) or not names:
            found += [hit for hit in self._python_file(base) if hit != path]
        return list(dict.fromkeys(found))

    def _python_file(self, base: str) -> list[str]:
        return [hit for hit in (f"{base}.py", f"{base}/__init__.py", f"{base}.pyi") if hit in self._files][:1]

    def _python_module(self, module: str, names: tuple[str, ...], importer: str) -> list[str]:
        found: list[str] = []
        missing = not names
        for what in names:
            name = f"{module}.{what}"
            hits = self._python.get(name)
            if hits:
                found.append(_meant(hits, name, importer))
            else:
                missing = True
        if missing and (hits := self._python.get(module)):
            found.append(_meant(hits, module, importer))
        return list(dict.fromkeys(found))

    # ---- JavaScript and TypeScript

    def _of_script(self, member: Member, one: Import) -> list[str]:
        module = one.module.partition("?")[0]
        if module.startswith("."):
            return self._script_file(posixpath.normpath(posixpath.join(posixpath.dirname(member.path), module)))
        for folder, pattern, target in self._manifests.aliases:
            head, star, tail = pattern.partition("*")
            if (not folder or member.path.startswith(folder + "/")) and module.startswith(head) and module.endswith(tail):
                middle = module[len(head) : len(module) - len(tail)] if star else ""
                if (star or module == pattern) and (hit := self._script_file(_joined(folder, target.replace("*", middle)))):
                    return hit
        return self._script_package(module)

    def _script_package(self, module: str) -> list[str]:
        parts = module.split("/")
        name = "/".join(parts[: 2 if module.startswith("@") else 1])
        folder = self._manifests.packages.get(name)
        if folder is None:
            return []
        inner = module[len(name) + 1 :]
        choices = [inner, f"src/{inner}"] if inner else [self._manifests.package_mains.get(name, "index"), "src/index", "index", "src/main"]
        return next((hit for choice in choices if (hit := self._script_file(_joined(folder, choice)))), [])

    def _script_file(self, base: str) -> list[str]:
        if base in self._files:
            return [base]
        stem, ending = posixpath.splitext(base)
        guesses = [stem + other for other in _TS_FOR_JS.get(ending, ())]
        guesses += [base + other for other in _SCRIPT_ENDINGS + _SCRIPT_INDEX]
        return [hit for hit in guesses if hit in self._files][:1]

    # ---- Go, Rust, Java, C

    def _of_go(self, member: Member, one: Import) -> list[str]:
        for module, folder in self._manifests.go_modules.items():
            if one.module == module or one.module.startswith(module + "/"):
                target = _joined(folder, one.module[len(module) + 1 :] or ".")
                return [target + "/"] if target in self._go_folders else []
        return []

    def _of_rust(self, member: Member, one: Import) -> list[str]:
        return self._crates.targets(member.path, one.module)

    def _of_java(self, member: Member, one: Import) -> list[str]:
        if one.names:  # a star
            hits = self._java_packages.get(one.module) or self._java.get(one.module) or []
            return hits if len(hits) <= _STAR_AT_MOST else []
        name = one.module
        for _ in range(3):  # a class, one of its members, or a class inside of it
            if classes := self._java.get(name):
                return [_nearest(classes, member.path)]
            name = name.rpartition(".")[0]
        return []

    def _of_c(self, member: Member, one: Import) -> list[str]:
        is_quoted, name = one.module.startswith('"'), one.module.strip('"<>')
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(member.path), name))
        if is_quoted and beside in self._files:
            return [beside]
        tail = posixpath.normpath(name).lstrip("./")
        hits = [path for path in self._tails.get(posixpath.basename(tail), ()) if path == tail or path.endswith("/" + tail)]
        if not is_quoted:  # by the path of the compiler: some folder made for it, or the top
            hits = [path for path in hits if path == tail or path.endswith(("include/" + tail, "inc/" + tail)) or "/" in tail]
        return [_nearest(hits, member.path)] if hits else []


def _meant(paths: list[str], module: str, importer: str) -> str:
    """Of several Python modules of one name: one whose root lies above the importer, then the nearest."""
    if len(paths) == 1:
        return paths[0]

    def rank(path: str) -> tuple[bool, int, int, str]:
        parts = path.removesuffix("/__init__.py").split("/")
        root = "/".join(parts[: len(parts) - module.count(".") - 1])
        return not root or importer.startswith(root + "/"), len(posixpath.commonprefix([path, importer])), -len(path), path

    return max(paths, key=rank)


def _joined(folder: str, rest: str) -> str:
    joined = posixpath.normpath(posixpath.join(folder, rest))
    return "" if joined == "." else joined


def _nearest(paths: list[str], importer: str) -> str:
    if len(paths) == 1:
        return paths[0]
    return max(paths, key=lambda path: (len(posixpath.commonprefix([path, importer])), -len(path), path))
