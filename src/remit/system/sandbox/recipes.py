"""How sandboxed code runs: its limits, and for each language the program, its script and the folders it reads."""

import os
import shutil
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from remit.core.errors import Misused, Unavailable
from remit.core.languages import NAMES, plain_name

MEBIBYTE = 1 << 20
LIMIT_NAMES = ("time", "memory", "processes", "output", "disk")
"""The names by which limits are reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    seconds: float = 30.0
    memory_bytes: int = 512 * MEBIBYTE
    """For all processes together; files count as disk."""
    processes: int = 64
    """Threads count, as they do for the kernel."""
    output_bytes: int = MEBIBYTE
    """For stdout and stderr together. The rest is dropped; `FLOOD` times as much ends the code."""
    disk_bytes: int = 256 * MEBIBYTE
    """In the work folder and the folder for temporary files together."""
    files: int = 20_000
    """Files and folders it may make."""
    open_files: int = 256


FLOOD = 16
_LONGEST_NAME = 1000
MOST = Limits(seconds=3600.0, memory_bytes=16_384 * MEBIBYTE, processes=1024, disk_bytes=8_192 * MEBIBYTE)
"""Maximum limits, of those that a call may set."""


# ---- languages


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


class Python(NamedTuple):
    """The base interpreter of a virtual environment, without installed packages."""

    program: Path
    prefix: Path


def language_of(name: str) -> str:
    known = plain_name(name)
    if known not in NAMES:
        raise Misused(f"Code in {name!r} cannot be run.", advice=f"language is one of {', '.join(NAMES)}.")
    return known


def script_and_program(language: str, code: str, limits: Limits) -> tuple[str, list[str]]:
    """The name of the code in the work folder, and the command that runs it; empty: the current interpreter."""
    if language == "python":
        return "main.py", []
    if language == "javascript":
        if node() is None:
            raise Unavailable(
                "JavaScript needs Node, which is not installed here.",
                code="TOOL_UNAVAILABLE",
                advice="Install Node from your distribution (apt install nodejs) or https://nodejs.org, so that `node` is on PATH.",
            )
        heap = f"--max-old-space-size={max(16, limits.memory_bytes // MEBIBYTE)}"
        # One that imports or exports is a module; older versions of Node decide by the file name.
        is_module = any(line.startswith(("import ", "import{", "export ", "export{", "await ")) for line in code.splitlines())
        return "main.mjs" if is_module else "main.js", [str(node()), heap]
    return "main.sh", [shutil.which("bash", path=os.defpath + ":/usr/bin:/bin") or "/bin/sh"]


@cache
def python() -> Python:
    program, prefix = Path(os.path.realpath(sys.executable)), Path(os.path.realpath(sys.base_prefix))
    installed = prefix / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    is_copy = program.is_relative_to(os.path.realpath(sys.prefix)) and sys.prefix != sys.base_prefix  # a virtual environment of copies
    return Python(program=installed if is_copy and installed.exists() else program, prefix=prefix)


@cache
def node() -> Path | None:
    """Node itself; None also for a script that selects among several (asdf, volta), which are invisible in the sandbox."""
    found = shutil.which("node")
    if found is None or not os.path.isabs(found):  # one in the working directory may belong to a clone
        return None
    real = Path(os.path.realpath(found))
    try:
        with real.open("rb") as file:
            return real if file.read(4) == b"\x7fELF" else None
    except OSError:  # executable but not readable
        return real


@cache
def folders() -> tuple[Path, ...]:
    """Folders of interpreters that are installed outside the system folders.

    Only the needed parts: it may be installed in a home folder."""
    own = python()
    needed = [own.program, *_if_not_home(own.program.parent), *(own.prefix / name for name in ("lib", "lib64"))]
    program = node()
    if program is not None:
        needed += [program, *_if_not_home(program.parent), program.parent.parent / "lib"]
    outside = [path for path in dict.fromkeys(needed) if path.exists() and not any(path.is_relative_to(given) for given in SYSTEM_FOLDERS)]
    return tuple(path for path in outside if not any(path != other and path.is_relative_to(other) for other in outside))


def _if_not_home(folder: Path) -> list[Path]:
    """A folder of programs, unless it is in a home folder."""
    home = os.path.realpath(os.path.expanduser("~"))
    return [] if folder.parent in (Path("/"), Path(home), Path(home, ".local")) or Path(home).is_relative_to(folder) else [folder]


def search_path() -> str:
    """PATH inside: the same interpreters by their plain names."""
    program = node()
    beside = [str(python().program.parent), *([str(program.parent)] if program else [])]
    return ":".join(dict.fromkeys([*beside, "/usr/local/bin", "/usr/bin", "/bin"]))


def is_plain(name: str) -> bool:
    """Whether it names a file below a folder, and nothing else."""
    path = PurePosixPath(name)
    return (
        0 < len(name.encode("utf-8", "surrogatepass")) <= _LONGEST_NAME
        and not path.is_absolute()
        and path.as_posix() == name
        and all(part not in ("", ".", "..") and len(part.encode("utf-8", "surrogatepass")) <= 255 for part in name.split("/"))
        and name.isprintable()
        and "\\" not in name
    )
