"""Files of delegations in an object store: blobs named by their sha256, and for each delegation a manifest that names its blobs.

`blobs/ab/abcd…` and `sessions/SESSION/ATTEMPT.json`, below an address: a directory (`file:///srv/remit`) or a bucket (`s3://bucket/prefix`,
by the `AWS_*` variables). A blob is whole or absent; its hash is checked on every read. Needs `remit[blobs]`. Blocking.
"""

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import TypeAdapter, ValidationError

from remit.core.errors import Failed, Misused, Unavailable
from remit.core.ids import is_session_id
from remit.core.ports import Manifest
from remit.system.artifact_files import path_fault

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from remit.core.settings import Settings

CODE = "STORE_UNAVAILABLE"
CORRUPT = "VALIDATION_FAILED"
PART_BYTES = 8 << 20
"""Of one request; several are under way at once, and no more of a file is in memory."""
AT_ONCE = 4
MOST_PARTS = 9_000
"""S3 takes 10,000."""
MANIFEST_BYTES = 20 << 20
RENEWED_SECONDS = 12 * 3600.0
"""A blob older than this is written again when another file has its content, so that a rule that removes old objects spares it."""
TRIES = 3
NO_BUCKET = "NoSuchBucket"
REQUEST_SECONDS = 60
_HASH = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_MANIFEST = TypeAdapter(Manifest)

Answer = TypeVar("Answer")


def describe_url(url: str) -> str:
    """Raises `Misused` if it is not the address of an object store, or has a password in it."""
    parts = urlsplit(url)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise Misused(
            f"The address of the object store {parts.scheme}://{parts.hostname or ''}{parts.path} contains credentials or options.",
            advice="Leave them out; set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL and AWS_REGION.",
        )
    is_file, is_bucket = parts.scheme == "file" and not parts.netloc and parts.path.strip("/"), parts.scheme == "s3" and parts.netloc
    if not (is_file or is_bucket):
        raise Misused(f"{url!r} is not an address of an object store.", advice='Write "s3://BUCKET/PREFIX" or "file:///PATH".')
    return url.rstrip("/")


def open_blobs(settings: "Settings") -> "BlobStore":
    """The object store that `[engine.temporal] blobs` names; each project has a folder of its own in it."""
    url, project = settings.engine.temporal.blobs, settings.engine.project
    if url is None or project is None:
        raise Misused(
            "No object store is configured for the files of this project.",
            advice='Set [engine] project = "NAME" and [engine.temporal] blobs = "s3://BUCKET/PREFIX".',
        )
    return BlobStore(f"{url.rstrip('/')}/{project}")


class BlobStore:
    """The `Blobs` at `url`. Raises `Unavailable` (STORE_UNAVAILABLE) if it cannot be used."""

    def __init__(self, url: str) -> None:
        self.address = describe_url(url)
        try:
            import obstore
        except ImportError:
            raise Misused("Shipping files needs the package obstore.", advice="Install it: pip install 'remit[blobs]'.") from None
        self._api = obstore
        self._folder = Path(unquote(urlsplit(url).path)) if url.startswith("file:") else None
        self._store = self._write(self._open)

    def _open(self) -> "ObjectStore":
        from obstore.store import LocalStore, S3Store

        if self._folder is not None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return LocalStore(self._folder)
        return S3Store.from_url(
            self.address,
            client_options={
                "timeout": timedelta(seconds=REQUEST_SECONDS),
                "connect_timeout": timedelta(seconds=5),
                "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("true", "1"),  # options given here hide the variable
            },
            retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=REQUEST_SECONDS)},
        )

    def check(self) -> None:
        """Raises `Unavailable` if it cannot be read and written."""
        self._write(lambda: self._api.put(self._store, "remit.txt", b"Files of remit: blobs by their sha256, manifests by session.\n"))

    # ---- blobs

    def put(self, descriptor: int, sha256: str | None = None) -> tuple[str, int]:
        """Hash and size of the file, which is in the store from now on. `sha256`: the hash it is known to have had.

        Raises `Failed` if the file changes whenever it is read."""
        for _ in range(TRIES):
            size = os.fstat(descriptor).st_size
            known = sha256 or _hash_of(descriptor, size)
            found = self._find(known)
            # Not soon to be pruned by a rule that removes old objects.
            if found and found["size"] == size and time.time() - found["last_modified"].timestamp() < RENEWED_SECONDS:
                return known, size
            part, is_large = max(PART_BYTES, size // MOST_PARTS + 1), size > PART_BYTES
            with contextlib.suppress(_FileChanged):
                parts = _checked(descriptor, known, size)
                content = parts if is_large else b"".join(parts)
                options = {"chunk_size": part, "max_concurrency": AT_ONCE, "use_multipart": is_large}
                self._write(lambda: self._api.put(self._store, _key(known), content, **options))  # noqa: B023
                return known, size
            sha256 = None
        raise Failed("It changes while it is read.", code=CORRUPT, advice="Write it under another name and rename it when it is whole.")

    def has(self, sha256: str) -> bool:
        return self._find(sha256) is not None

    def _find(self, sha256: str) -> Mapping[str, Any] | None:
        try:
            found: Mapping[str, Any] = self._ask(lambda: self._api.head(self._store, _key(sha256)))
        except FileNotFoundError:
            return None
        return found

    def get(self, sha256: str, size: int, descriptor: int) -> None:
        """Write the blob to an empty file. Raises `Failed` if it is not there, or is not what its name says; then the file is worthless."""
        if not _HASH.fullmatch(sha256) or size < 0:
            raise Failed(f"{sha256[:80]!r} names no blob.", code=CORRUPT, advice="Its manifest is damaged: delegate the work again.")
        try:
            found = self._ask(lambda: self._api.head(self._store, _key(sha256)))["size"]
            digest = hashlib.sha256()
            for start in range(0, size, PART_BYTES) if found == size else ():
                length = min(PART_BYTES, size - start)
                part = memoryview(self._ask(lambda: self._api.get_range(self._store, _key(sha256), start=start, length=length)))  # noqa: B023
                digest.update(part)
                while part:
                    part = part[os.write(descriptor, part) :]
        except FileNotFoundError:
            advice = "It is being uploaded, was pruned, or its worker was lost."
            raise Failed(f"{self.address} has no blob {sha256}.", code="FILE_NOT_FOUND", advice=advice) from None
        if found != size or digest.hexdigest() != sha256:
            raise Failed(
                f"The blob {sha256} in {self.address} is damaged: its content has another hash or size.",
                code=CORRUPT,
                advice="It is not used. Remove the object, and delegate the work again.",
            )

    # ---- manifests

    def write_manifest(self, session_id: str, manifest: Manifest) -> None:
        """After the blobs that it names. Each attempt has its own, so that a superseded worker overwrites nothing."""
        self._write(lambda: self._api.put(self._store, _manifest_key(session_id, manifest.attempt), _MANIFEST.dump_json(manifest)))

    def manifest(self, session_id: str) -> Manifest | None:
        """Of the newest attempt; None: nothing was shipped. Raises `Failed` if it is damaged."""
        if not is_session_id(session_id):
            return None
        names = [entry["path"].rpartition("/")[2].removesuffix(".json") for entry in self._list(f"sessions/{session_id}/")]
        numbers = [int(name) for name in names if name.isdigit()]
        if not numbers:
            return None
        key = _manifest_key(session_id, max(numbers))
        try:
            if self._ask(lambda: self._api.head(self._store, key))["size"] > MANIFEST_BYTES:
                raise ValueError("it is too large")
            manifest = _MANIFEST.validate_json(bytes(self._ask(lambda: self._api.get(self._store, key)).bytes()))
            for file in manifest.files:
                fault = path_fault(file.path) or (None if file.path.isprintable() else "contains control characters")
                if fault is not None or not _HASH.fullmatch(file.sha256) or file.size < 0:
                    raise ValueError(f"it names {file.path[:200]!r}, which {fault or 'has no valid hash'}")
            if manifest.base and not _COMMIT.fullmatch(manifest.base):
                raise ValueError("it names no valid commit")
        except FileNotFoundError:
            return None
        except (ValueError, ValidationError) as error:
            why = str(error).splitlines()[0]
            raise Failed(
                f"The list of files of {session_id} in {self.address} cannot be used: {why}.",
                code=CORRUPT,
                advice="Delegate the work again.",
            ) from None
        return manifest

    def _list(self, prefix: str) -> Iterator[Mapping[str, Any]]:
        pages = iter(self._api.list(self._store, prefix.rstrip("/")))
        while (page := self._ask(lambda: next(pages, None))) is not None:
            yield from page

    def _write(self, change: "Callable[[], Answer]") -> "Answer":
        try:
            return self._ask(change)
        except FileNotFoundError as error:  # of the bucket or the directory itself
            raise _unavailable(self.address, error) from None

    def _ask(self, question: "Callable[[], Answer]") -> "Answer":
        """Raises `Unavailable` in words that say what to do; lets `FileNotFoundError` and what the file itself raised pass."""
        from obstore import exceptions

        try:
            return question()
        except (FileNotFoundError, _FileChanged) as error:
            if NO_BUCKET in str(error):
                raise _unavailable(self.address, error) from None
            raise
        except (exceptions.BaseError, OSError, ValueError) as error:
            raise _unavailable(self.address, error) from None


class _FileChanged(Exception):
    """The file is not what it was when it was hashed."""


def _key(sha256: str) -> str:
    return f"blobs/{sha256[:2]}/{sha256}"


def _manifest_key(session_id: str, attempt: int) -> str:
    return f"sessions/{session_id}/{attempt}.json"


def _parts(descriptor: int, limit: int) -> Iterator[bytes]:
    """The file from its start, `limit` bytes of it."""
    position = 0
    while position < limit and (part := os.pread(descriptor, min(1 << 20, limit - position), position)):
        position += len(part)
        yield part


def _hash_of(descriptor: int, size: int) -> str:
    digest = hashlib.sha256()
    for part in _parts(descriptor, size):
        digest.update(part)
    return digest.hexdigest()


def _checked(descriptor: int, sha256: str, size: int) -> Iterator[bytes]:
    """The content. Raises before its last part if it has another hash: then the upload is abandoned, and nothing has its name."""
    digest, held, length = hashlib.sha256(), b"", 0
    for part in _parts(descriptor, size):
        if held:
            yield held
        digest.update(part)
        held, length = part, length + len(part)
    if length != size or digest.hexdigest() != sha256:
        raise _FileChanged
    yield held


def _unavailable(address: str, error: Exception) -> Unavailable:
    told = str(error)
    code = re.search(r"<Code>(.*?)</Code>(?:.*?<Message>(.*?)</Message>)?", told)
    said = f"{code[1]} ({code[2]})" if code is not None else (told.splitlines() or [type(error).__name__])[0]
    advice = (
        "Check the directory, its permissions and its disk."
        if address.startswith("file:")
        else "Check that it runs and the bucket exists, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL and AWS_REGION "
        "(AWS_ALLOW_HTTP=true for an address without TLS)."
    )
    return Unavailable(f"The object store {address} cannot be used: {said[:400].rstrip('. ')}.", code=CODE, advice=advice)
