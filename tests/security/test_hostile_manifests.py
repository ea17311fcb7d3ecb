"""Files of remote workers: a hostile agent, worker or object store cannot reach protected files on either side."""

import base64
import hashlib
import os
import threading
import zlib
from pathlib import Path

import pytest

from remit import Artifact, RemitError
from remit.runtime import shipment as module
from remit.runtime.shipment import FileFetcher, Shipment, fetch_warnings
from support.repository import begin, git
from support.s3 import BlobStore, Manifest, ShippedFile

SESSION, OTHER = "sess_1794989656_4dxt0g", "sess_1794989656_4s8tev"


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(f"file://{tmp_path}/blobs")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / ".remit" / "access").mkdir(parents=True)
    (root / ".remit" / "access" / "tokens.json").write_text("secret")
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / "plain.md").write_text("plain")
    return root


def stored(blobs: BlobStore, tmp_path: Path, content: bytes) -> tuple[str, int]:
    (tmp_path / "content").write_bytes(content)
    with open(tmp_path / "content", "rb") as file:
        return blobs.put(file.fileno())


def ship(blobs: BlobStore, root: Path, *paths: str) -> dict[str, str]:
    return Shipment(blobs, root, SESSION, 1, "worker").ship([Artifact(type="report", path=path) for path in paths], None)


def shipped(blobs: BlobStore) -> list[str]:
    manifest = blobs.manifest(SESSION)
    return [] if manifest is None else [file.path for file in manifest.files]


def test_worker_does_not_upload_files_behind_links_or_path_traversal(blobs: BlobStore, root: Path) -> None:
    (root / "link.md").symlink_to(".remit/access/tokens.json")
    (root / "folder").symlink_to(".remit/access")
    (root / "hooks").symlink_to(".git")
    (root / "outside.md").symlink_to("/etc/passwd")
    (root / ".git" / "config").write_text("[user]")
    os.mkfifo(root / "pipe")
    (root / "two\nlines").write_text("x")
    hostile = ["link.md", "folder/tokens.json", "hooks/config", "outside.md", "/etc/passwd", "../project/plain.md", "pipe", "two\nlines"]
    problems = ship(blobs, root, *hostile, ".remit/access/tokens.json", "plain.md")
    assert problems.keys() == {*hostile, ".remit/access/tokens.json"}
    assert problems["link.md"] == problems["folder/tokens.json"] == "it is protected"
    assert shipped(blobs) == ["plain.md"]


def test_worker_uploads_nothing_private_while_a_folder_is_swapped(blobs: BlobStore, root: Path) -> None:
    """A path alternates between a folder and a symlink to a private folder. Nothing private is ever uploaded."""
    (root / "real").mkdir()
    (root / "real" / "tokens.json").write_text("harmless")
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            (root / "swapped.new").symlink_to(".remit/access")
            os.replace(root / "swapped.new", root / "swapped")
            (root / "swapped.new").symlink_to("real")
            os.replace(root / "swapped.new", root / "swapped")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(300):
            ship(blobs, root, "swapped/tokens.json")
    finally:
        done.set()
        swapping.join()
    assert {entry["size"] for entry in blobs._list("blobs/")} <= {len("harmless")}


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/post-checkout", "sub/.git/config", ".GIT/config", "remit.toml", "./remit.toml", "a/..b/../../remit.toml",
        ".remit/remit.db", ".remit/agents/x.py", f".remit/work/{SESSION}", f".remit/scratch/{SESSION}", f".remit/scratch/{OTHER}/x",
        "hooks/x", "away/x", "plain.md/x", "plain.md", "a" * 300, "line\nbreak", "escape\x1b[31m",
    ],
)  # fmt: skip
def test_hostile_manifest_cannot_write_protected_files(blobs: BlobStore, root: Path, tmp_path: Path, path: str) -> None:
    (root / "hooks").symlink_to(".git/hooks")
    (root / "away").symlink_to(tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and "blobs" not in file.parts}
    file = ShippedFile(path, *stored(blobs, tmp_path, b"hostile"))
    (tmp_path / "content").unlink()
    blobs.write_manifest(SESSION, Manifest((file,), at=1.0))
    if ".." in path.split("/") or not path.isprintable():
        with pytest.raises(RemitError, match="cannot be used"):
            FileFetcher(blobs, root, SESSION).fetch()
    else:
        report = FileFetcher(blobs, root, SESSION).fetch()
        assert list(report.refused) == [path]
        assert len(fetch_warnings(report, SESSION)) == 1
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and "blobs" not in file.parts} == before


def binary_patch(path: str, size: int) -> bytes:
    """Creates a file of zeros."""
    packed = zlib.compress(bytes(size), 9)
    lines = [packed[start : start + 52] for start in range(0, len(packed), 52)]
    lengths = [bytes([len(line) + (64 if len(line) <= 26 else 70)]) for line in lines]
    data = b"".join(length + base64.b85encode(line, pad=True) + b"\n" for length, line in zip(lengths, lines, strict=True))
    blob = hashlib.sha1(f"blob {size}\0".encode() + bytes(size)).hexdigest()
    head = f"diff --git a/{path} b/{path}\nnew file mode 100644\nindex {'0' * 40}..{blob}\nGIT binary patch\nliteral {size}\n"
    return head.encode() + data + b"\nliteral 0\nHcmV?d00001\n\n"


@pytest.mark.parametrize("is_hostile", [False, True], ids=["ordinary", "hostile"])
def test_diff_that_inflates_is_not_applied(is_hostile: bool, blobs: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, mb = tmp_path / "checkout", 1 << 20
    root.mkdir()
    begin(root)
    (root / "large.bin").write_text("x" * mb)
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "Begin")
    base = git(root, "rev-parse", "HEAD").strip()
    monkeypatch.setattr(module, "APPLIED_BYTES", 64 * mb)
    most = 80 if is_hostile else 2
    content = b"".join(binary_patch(f"{number}.bin", mb) for number in range(most))
    path = f".remit/scratch/{SESSION}/changes.diff"
    blobs.write_manifest(SESSION, Manifest((ShippedFile(path, *stored(blobs, tmp_path, content)),), 1.0, 1, "worker", base=base))
    report = FileFetcher(blobs, root, SESSION).fetch()
    tree = root / ".remit" / "work" / SESSION
    if is_hostile:
        assert [why for why in report.refused.values() if "take more than 64 MB" in why and path in why] != []
        assert not tree.exists()
    else:
        assert report.refused == {}
        assert sum(file.stat().st_size for file in tree.rglob("*.bin")) == 3 * mb


def test_blob_with_a_wrong_hash_is_not_written(blobs: BlobStore, root: Path, tmp_path: Path) -> None:
    sha256, size = stored(blobs, tmp_path, b"content")
    blobs._api.put(blobs._store, f"blobs/{sha256[:2]}/{sha256}", b"hostile")
    blobs.write_manifest(SESSION, Manifest((ShippedFile("new.md", sha256, size), ShippedFile("huge.md", sha256, 1 << 60)), at=1.0))
    report = FileFetcher(blobs, root, SESSION).fetch(limit_bytes=None)
    assert report.refused.keys() == {"new.md", "huge.md"}
    assert sorted(path.name for path in root.iterdir()) == [".git", ".remit", "plain.md"]
