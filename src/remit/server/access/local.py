"""The local token: what a program of this machine shows at a port, as it would open the socket. Who can read its file owns the project.

Made when a server starts, at `.remit/run/serve.token`, 0600; several servers of one project share it. Removed, it lets nobody in any more.
A file that others can read is never used: the server makes another one in its place, a client refuses it.
"""

import hmac
import logging
from pathlib import Path

from remit.core.errors import Refused, RemitError, Unavailable
from remit.server.access.tokens import is_whole, new_secret
from remit.system.files import file_lock
from remit.system.private_files import private_folder, read_private, stamp_of, write_private

log = logging.getLogger("remit.access")

FILE = "serve.token"
LOCK_SECONDS = 5.0


class LocalToken:
    def __init__(self, folder: Path) -> None:
        """Of the project whose `.remit` is `folder`."""
        self.path = folder / "run" / FILE
        self._stamp: tuple[int, ...] | None = None
        self._secret = ""

    def make(self) -> Path:
        """Where it is, from now on; called when a server starts."""
        private_folder(self.path.parent)
        with file_lock(self.path.with_suffix(".lock"), timeout=LOCK_SECONDS):
            try:
                found = _read(self.path)
            except Refused as error:
                log.warning("%s A new one is made.", error.message)
                found = None
            if found is None:
                write_private(self.path, f"{new_secret()}\n".encode())
        return self.path

    def is_it(self, text: str) -> bool:
        stamp = stamp_of(self.path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._secret = _read(self.path) or ""
            except RemitError as error:
                log.error("The local token is not used: %s", error)
                self._secret = ""
        theirs, ours = text.encode("utf-8", "surrogatepass"), (self._secret or "\0").encode()
        return hmac.compare_digest(theirs, ours) and bool(self._secret)


def local_token(folder: Path) -> str:
    """For a client on this machine. Raises `Unavailable` where no server made one, `Refused` for one that others can read."""
    path = folder / "run" / FILE
    found = _read(path)
    if found is None:
        raise Unavailable(f"There is no {path}: no server of this project was started yet.", advice="Start one: `remit serve`.")
    return found


def _read(path: Path) -> str | None:
    data = read_private(path)
    text = (data or b"").decode("ascii", "replace").strip()
    return text if is_whole(text) else None
