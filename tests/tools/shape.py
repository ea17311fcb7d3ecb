"""`make shape`: figures of the shape of the sources, each with its limit. Exits with 1 when a limit is exceeded.

python tests/tools/shape.py            print the figures
python tests/tools/shape.py --list     also print what counts towards each
"""

import ast
import asyncio
import contextlib
import graphlib
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

SOURCES = Path(__file__).parents[2] / "src"
PACKAGES_NOT_COUNTED = ("core", "system")
"""Every package may use these two: their imports say nothing about the cut."""
SMALL_LINES = 100
LATER_LINES = 15_990
"""Added by features since the limit of lines was set: trust and containment, compositions, cache and learned limits, tasks in parallel,
many machines. Reported beside the whole."""
ENTRY_POINTS = ("remit.__main__",)


@dataclass
class Module:
    name: str
    path: Path
    tree: ast.Module
    lines: int
    imports: set[str] = field(default_factory=set)
    """Modules of remit that it imports, lazily or not, but not for type checking alone."""

    @property
    def package(self) -> str:
        return package_of(self.name)


@dataclass(frozen=True)
class Figure:
    title: str
    value: float
    limit: float
    items: tuple[str, ...] = ()
    unit: str = ""

    @property
    def is_kept(self) -> bool:
        return self.value <= self.limit


def package_of(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


def read_modules() -> dict[str, Module]:
    found = {}
    for path in sorted((SOURCES / "remit").rglob("*.py")):
        if "_pb2" in path.name:
            continue  # made by the build
        text = path.read_text()
        name = ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")
        found[name] = Module(name, path, ast.parse(text), len(text.splitlines()))
    for module in found.values():
        module.imports = {target for target in imported_names(module.tree, found) if target != module.name}
    return found


def imported_names(tree: ast.Module, known: dict[str, Module]) -> Iterator[str]:
    for node in runtime_nodes(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" if f"{node.module}.{alias.name}" in known else node.module for alias in node.names]
        else:
            continue
        yield from (name for name in names if name in known)


def runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from runtime_nodes(node)


def crossing_imports(modules: dict[str, Module]) -> Figure:
    counted = [
        (module, target)
        for module in modules.values()
        for target in module.imports
        if package_of(target) not in PACKAGES_NOT_COUNTED and module.name != "remit"
    ]
    crossing = [(module, target) for module, target in counted if module.package != package_of(target)]
    pairs = Counter(f"{module.package} -> {package_of(target)}" for module, target in crossing)
    items = tuple(f"{pair}: {count}" for pair, count in pairs.most_common())
    return Figure("imports that cross a package", 100 * len(crossing) / len(counted), 30, items, "%")


def small_modules(modules: dict[str, Module]) -> Figure:
    importers: dict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        for target in module.imports:
            importers[target].add(module.name)
    small = [
        f"{module.name} ({module.lines} lines, imported by {next(iter(importers[module.name]))})"
        for module in modules.values()
        if module.lines < SMALL_LINES
        and len(importers[module.name]) == 1
        and module.path.name != "__init__.py"
        and module.name not in ENTRY_POINTS
    ]
    return Figure(f"modules under {SMALL_LINES} lines with a single importer", 100 * len(small) / len(modules), 5, tuple(small), "%")


def repeated_names(modules: dict[str, Module]) -> Figure:
    names = Counter(module.path.name for module in modules.values() if module.path.name != "__init__.py")
    often = [f"{name}: {count}" for name, count in names.most_common() if count > 3]
    return Figure("uses of the most frequent file name", max(names.values()), 3, tuple(often))


def large_classes(modules: dict[str, Module]) -> Figure:
    """Attributes of classes with mutable state: assigned to `self`, or fields of a dataclass that is not frozen."""
    sizes = {}
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and not is_value(node):
                sizes[f"{module.name}.{node.name}"] = len(attributes_of(node))
    large = sorted(((size, name) for name, size in sizes.items() if size > 20), reverse=True)
    return Figure("attributes of the largest class with state", max(sizes.values()), 20, tuple(f"{name}: {size}" for size, name in large))


def is_value(node: ast.ClassDef) -> bool:
    """Frozen dataclasses, enums, protocols and pydantic models (settings tables among them)."""
    bases = " ".join(ast.unparse(base) for base in node.bases)
    decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
    words = ("Enum", "Protocol", "Model", "NamedTuple", "TypedDict", "Exception")
    return "frozen=True" in decorators or node.name.endswith("Table") or any(word in bases for word in words)


def attributes_of(node: ast.ClassDef) -> set[str]:
    names: set[str] = set()
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and "ClassVar" not in ast.unparse(item.annotation):
            names.add(item.target.id)
    for item in ast.walk(node):
        if (
            isinstance(item, ast.Attribute)
            and isinstance(item.ctx, ast.Store)
            and isinstance(item.value, ast.Name)
            and item.value.id == "self"
        ):
            names.add(item.attr)
    return names


def import_cycles(modules: dict[str, Module]) -> Figure:
    """Lazy imports included. The package `remit` itself only names where its exports are."""
    graph = {name: {target for target in module.imports if target != "remit"} for name, module in modules.items() if name != "remit"}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return Figure("import cycles", 1, 0, (" -> ".join(error.args[1]),))
    return Figure("import cycles", 0, 0)


class PathOfOneDelegation:
    """Which modules of remit are executed for one delegation, and how often a call goes from one package into another."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.crossings: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call":
            return
        name = frame.f_globals.get("__name__", "")
        if not name.startswith("remit."):
            return
        self.modules.add(name)
        caller = frame.f_back
        while caller is not None and not caller.f_globals.get("__name__", "").startswith("remit."):
            caller = caller.f_back
        if caller is not None and package_of(caller.f_globals["__name__"]) != package_of(name):
            self.crossings[f"{caller.f_globals['__name__']} -> {name}.{frame.f_code.co_name}"] += 1


PROCESS_AGENT = """
from remit import agent

@agent(name="add-one", isolation="process")
def add_one(n: int) -> int:
    return n + 1
"""


async def path_of_process_agent() -> PathOfOneDelegation:
    from remit import Remit

    with tempfile.TemporaryDirectory() as folder:
        agents = Path(folder) / ".remit" / "agents"
        agents.mkdir(parents=True)
        (agents / "add_one.py").write_text(PROCESS_AGENT)
        async with Remit.open(folder, trust=True) as remit:
            await remit.delegate("add-one", parameters={"n": 1})  # loads what is loaded once
            paths = [await path_of_next(remit) for _ in range(5)]
    return min(paths, key=lambda path: (len(path.modules), path.crossings.total()))  # the others had work in the background counted


async def path_of_next(remit: Any) -> PathOfOneDelegation:
    path = PathOfOneDelegation()
    sys.setprofile(path)
    try:
        result = await remit.delegate("add-one", parameters={"n": 1})
    finally:
        sys.setprofile(None)
    if not result.ok:
        raise SystemExit(f"The delegation that is measured failed: {result}")
    return path


def figures() -> Iterator[Figure]:
    modules = read_modules()
    lines = sum(module.lines for module in modules.values())
    yield Figure("lines in src", lines, 72_000)
    yield Figure(f"lines in src without {LATER_LINES:,} of later features", lines - LATER_LINES, 72_000)
    yield Figure("modules", len(modules), 400)
    packages = sorted({path.parent.name for path in (SOURCES / "remit").glob("*/__init__.py")})
    yield Figure("packages", len(packages), 13, tuple(packages))
    yield crossing_imports(modules)
    yield small_modules(modules)
    yield repeated_names(modules)
    yield large_classes(modules)
    yield import_cycles(modules)
    path = asyncio.run(path_of_process_agent())
    yield Figure("modules executed by one delegation of a process agent", len(path.modules), 30, tuple(sorted(path.modules)))
    crossings = tuple(f"{call}: {count}" for call, count in path.crossings.most_common())
    yield Figure("calls across packages of that delegation", path.crossings.total(), 40, crossings)


def main(arguments: Iterable[str]) -> int:
    exceeded = 0
    for figure in figures():
        exceeded += not figure.is_kept
        mark = "" if figure.is_kept else "  <-- over the limit"
        value = f"{figure.value:,.2f}" if figure.unit else f"{figure.value:,.0f}"
        print(f"{figure.title:<60}{value:>9}{figure.unit or ' '} (at most {figure.limit:,g}{figure.unit}){mark}")
        if "--list" in arguments:
            for item in figure.items:
                print(f"    {item}")
    return 1 if exceeded else 0


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main(sys.argv[1:]))
