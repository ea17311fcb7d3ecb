"""What running a language takes: which program, which name its script gets, which folders it must be able to read."""

import os
import shutil
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from remit.core.errors import Misused, Unavailable
from remit.core.languages import NAMES, plain_name
from remit.sandbox.limits import MEBIBYTE, Limits

SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives", "/etc/mime.types", "/etc/ssl/openssl.cnf")
NETWORK_FILES = (
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    language: str
    script: str
    """The name that the code gets in the work folder."""
    program: str = ""
    """Empty: the interpreter that is there already."""
    arguments: tuple[str, ...] = ()

    def argv(self, script: str) -> list[str] | None:
        return [self.program, *self.arguments, script] if self.program else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Python:
    """The interpreter beneath a virtual environment, which has nothing installed beside it."""

    program: Path
    prefix: Path


def language_of(name: str) -> str:
    known = plain_name(name)
    if known not in NAMES:
        raise Misused(f"Code in {name!r} cannot be run.", advice=f"language is one of {', '.join(NAMES)}.")
    return known


def recipe_for(language: str, code: str, limits: Limits) -> Recipe:
    if language == "python":
        return Recipe(language=language, script="main.py")
    if language == "javascript":
        if node() is None:
            raise Unavailable(
                "JavaScript needs Node, which is not installed here.",
                code="TOOL_UNAVAILABLE",
                advice="Install Node from your distribution (apt install nodejs) or https://nodejs.org, so that `node` is on PATH.",
            )
        heap = f"--max-old-space-size={max(16, limits.memory_bytes // MEBIBYTE)}"
        script = "main.mjs" if _is_module(code) else "main.js"
        return Recipe(language=language, script=script, program=str(node()), arguments=(heap,))
    return Recipe(language=language, script="main.sh", program=shutil.which("bash", path=os.defpath + ":/usr/bin:/bin") or "/bin/sh")


def _is_module(code: str) -> bool:
    """JavaScript that imports or exports is a module; older Nodes want to be told by the name of the file."""
    return any(line.startswith(("import ", "import{", "export ", "export{", "await ")) for line in code.splitlines())


@cache
def python() -> Python:
    base = getattr(sys, "_base_executable", "") or sys.executable
    return Python(program=Path(os.path.realpath(base)), prefix=Path(os.path.realpath(sys.base_prefix)))


@cache
def node() -> Path | None:
    found = shutil.which("node")
    return Path(os.path.realpath(found)) if found else None


def folders() -> list[Path]:
    """What interpreters need beside the system's own folders: where each of them is installed, if that is elsewhere."""
    homes = [python().prefix]
    program = node()
    if program is not None:
        homes.append(program.parent.parent if program.parent.name == "bin" else program.parent)
    return [home for home in homes if home != Path("/") and not any(home.is_relative_to(given) for given in SYSTEM_FOLDERS)]


def search_path() -> str:
    """PATH inside: the same interpreters by their plain names."""
    program = node()
    beside = [str(python().program.parent), *([str(program.parent)] if program else [])]
    return ":".join(dict.fromkeys([*beside, "/usr/local/bin", "/usr/bin", "/bin"]))
