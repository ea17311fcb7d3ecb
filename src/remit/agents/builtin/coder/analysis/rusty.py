"""Rust's names: `crate::a::{b, c::D}`, `super::x`, `mod y;`, and crates of the same workspace, made into files. Reads nothing."""

import posixpath
import re

_EXPANDED_AT_MOST = 200
_TOKEN = re.compile(r"[{},]|[^{},]+")


class CrateIndex:
    def __init__(self, crates: dict[str, str]) -> None:
        self._roots = dict(crates)
        """Crate name to folder of its Cargo.toml."""
        self._folders = sorted(crates.values(), key=len, reverse=True)
        self._modules: dict[tuple[str, tuple[str, ...]], str] = {}
        self._places: dict[str, tuple[str, tuple[str, ...]]] = {}

    def add(self, path: str) -> None:
        crate, inner = self._crate_of(path)
        parts = inner.removesuffix(".rs").split("/")
        if parts[0] == "src":
            parts = parts[1:]
        if parts and parts[-1] == "mod":
            parts.pop()
        if inner in ("src/lib.rs", "src/main.rs", "lib.rs", "main.rs"):
            parts = []
        place = (crate, tuple(parts))
        self._places[path] = place
        if place not in self._modules or posixpath.basename(path) == "lib.rs":
            self._modules[place] = path

    def targets(self, importer: str, use: str) -> list[str]:
        crate, own = self._places[importer]
        found: dict[str, None] = {}
        for name in expanded(use.removeprefix("pub ").strip()):
            parts = [part.strip() for part in re.sub(r"\s+as\s+\w+$", "", name).split("::")]
            hit = self._found(crate, own, parts)
            if hit is not None and hit != importer:
                found[hit] = None
        return list(found)

    def _found(self, crate: str, own: tuple[str, ...], parts: list[str]) -> str | None:
        head = parts[0]
        if head.startswith("mod "):
            return self._modules.get((crate, (*own, head[4:])))
        if head == "crate":
            base: tuple[str, ...] = ()
            parts = parts[1:]
        elif head == "self":
            base, parts = own, parts[1:]
        elif head == "super":
            base = own
            while parts and parts[0] == "super":
                base, parts = base[:-1], parts[1:]
        elif head in self._roots:
            crate, base, parts = self._roots[head], (), parts[1:]
        elif (crate, (*own, head)) in self._modules:
            base = own
        else:
            return None
        place = (*base, *parts)
        for length in range(len(place), -1, -1):
            if hit := self._modules.get((crate, place[:length])):
                return hit
        return None

    def _crate_of(self, path: str) -> tuple[str, str]:
        for folder in self._folders:
            if not folder or path.startswith(folder + "/"):
                return folder, path[len(folder) + 1 :] if folder else path
        return "", path


def expanded(use: str) -> list[str]:
    """`a::{b, c::{d, e}}` as `a::b`, `a::c::d`, `a::c::e`; a star is the module itself."""
    names: list[str] = []
    stack, prefix, last = [""], "", ""
    for token in _TOKEN.findall(use):
        if token == "{":
            stack.append(prefix)
        elif token == "}":
            if last.strip():
                names.append(last)
            last, prefix = "", stack.pop() if len(stack) > 1 else ""
            continue
        elif token == ",":
            if last.strip():
                names.append(last)
            last = ""
            prefix = stack[-1]
            continue
        else:
            prefix = stack[-1] + token.strip()
            last = prefix
            continue
        last = ""
        if len(names) >= _EXPANDED_AT_MOST:
            break
    if last.strip():
        names.append(last)
    return [name.removesuffix("::*").removesuffix("::self").removesuffix("::") for name in names]
