"""Targets: how another process finds an agent's function. `target_of` names it, `Target.load` loads it.

A function is found by its definition: a module, a file that is not a module (`.remit/agents/*.py`), or the started script. A function
without one (a lambda, a closure, a function typed at a prompt) is refused with advice."""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from contextvars import ContextVar
from enum import StrEnum
from hashlib import sha256
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from remit.core.errors import Misused, Refused
from remit.system.interpreter import agent_path

_ADVICE = "Define it at the top level of a module, or put it in .remit/agents/NAME.py."


class Place(StrEnum):
    MODULE = "module"
    """Importable by name."""
    FILE = "file"
    """A file outside every package, loaded under the given module name."""
    MAIN_FILE = "main_file"
    """The started script: `python script.py`."""
    MAIN_MODULE = "main_module"
    """The started module: `python -m module`."""


class Target(NamedTuple):
    place: Place
    module: str
    qualname: str
    file: str = ""
    digest: str = ""
    """SHA-256 of the file's content; other content is refused. Empty: any."""

    def __str__(self) -> str:
        return f"{self.file or self.module}:{self.qualname}"

    def to_wire(self) -> dict[str, str]:
        return self._asdict()

    @classmethod
    def from_wire(cls, wire: dict[str, str]) -> "Target":
        return cls(**{**wire, "place": Place(wire["place"])})  # type: ignore[arg-type]

    def load_module(self) -> ModuleType:
        match self.place:
            case Place.MODULE:
                return importlib.import_module(self.module)
            case Place.FILE:
                return sys.modules.get(self.module) or load_file(self.module, self.file, self.digest)
            case _:
                return _load_main(self)

    def load(self) -> Any:
        """The object of that name: the function, or its agent."""
        found: Any = self.load_module()
        for name in self.qualname.split("."):
            found = getattr(found, name)
        return found


def target_of(function: Callable[..., Any]) -> Target:
    """Where `function` is defined."""
    qualname = getattr(function, "__qualname__", "")
    must_have_name(qualname)
    module = sys.modules.get(function.__module__)
    if function.__module__ == "__main__":
        return _target_in_main(qualname)
    file = getattr(module, "__file__", None)
    if PathFinder.find_spec(function.__module__.partition(".")[0], agent_path()) is not None:
        return Target(place=Place.MODULE, module=function.__module__, qualname=qualname)
    if file is None:
        raise Misused(f"{qualname} of {function.__module__} cannot be found from another process.", advice=_ADVICE)
    return Target(place=Place.FILE, module=function.__module__, file=str(Path(file).resolve()), qualname=qualname)


def must_have_name(qualname: str) -> None:
    """Raise `Misused` for a function that no other process can find."""
    if not qualname or "<" in qualname:
        what = "A lambda" if "<lambda>" in qualname else "A function inside a function"
        raise Misused(f"{what} ({qualname or 'without a name'}) cannot run in a process of its own.", advice=_ADVICE)


def _target_in_main(qualname: str) -> Target:
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return Target(place=Place.MAIN_MODULE, module=spec.name, qualname=qualname)
    file = getattr(main, "__file__", None)
    if file is None or not Path(file).is_file():
        raise Misused(f"{qualname} was typed at a prompt: it cannot run in a process of its own.", advice=_ADVICE)
    return Target(place=Place.MAIN_FILE, module="__main__", file=str(Path(file).resolve()), qualname=qualname)


def load_file(module_name: str, file: str, digest: str = "") -> ModuleType:
    """The module of a file outside every package. Compiled from the checked content: bytecode beside the file may differ."""
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be loaded")
    data = Path(file).read_bytes()
    if digest and sha256(data).hexdigest() != digest:
        raise Refused(
            f"{file} changed after it was approved, or after this project was opened.",
            code="NOT_TRUSTED",
            advice="Look at the change, approve it with `remit trust`, and open the project again.",
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # before it runs: its definitions look up their module there
    try:
        exec(compile(data, file, "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module


def _load_main(target: Target) -> ModuleType:
    """Like multiprocessing: run under another name, so that `if __name__ == "__main__"` is false."""
    known = sys.modules.get("__mp_main__")
    if known is not None:
        return known
    import runpy  # in workers only

    module = ModuleType("__mp_main__")
    reading = _READING.set(target)
    try:
        if target.place is Place.MAIN_MODULE:
            content = runpy.run_module(target.module, run_name="__mp_main__", alter_sys=True)
        else:
            content = runpy.run_path(target.file, run_name="__mp_main__")
    finally:
        _READING.reset(reading)
    module.__dict__.update(content)
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    return module


_READING: ContextVar[Target | None] = ContextVar("remit_reading", default=None)
"""The script that is being loaded for its process agents."""


def must_not_start_anything() -> None:
    """A script loaded again by a worker must only define things: anything it starts would start it again, endlessly."""
    target = _READING.get()
    if target is not None:
        raise Misused(
            f"{target.file or target.module} opens a Remit while it is loaded for its process agents.",
            advice='Guard what the script does with `if __name__ == "__main__":`.',
        )
