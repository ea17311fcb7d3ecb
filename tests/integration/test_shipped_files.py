"""Workers on other machines, as far as one machine can show it: each has a checkout of its own, and files come through an object store."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from collector import collecting
from remit import Remit, RemitError, Return, Status
from remit.runtime import shipment as shipping
from support import cli
from support.audit import audit_log
from support.postgres import PostgresServer, new_schema
from support.repository import begin, git
from support.s3 import BUCKET, BlobStore, Manifest, S3Server, ShippedFile
from support.temporal_server import TemporalServer

AGENTS = """
import asyncio, os
from pathlib import Path
from remit import Context, agent

@agent("writer")
async def writer(ctx: Context, files: dict[str, str]) -> dict:
    artifacts = []
    for path, text in files.items():
        target = ctx.workspace / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        artifacts.append({"type": "report", "path": path})
    note = ctx.scratch / "note.md"
    note.write_text("in its scratch folder")
    artifacts.append({"type": "report", "path": str(note.relative_to(ctx.root))})
    return {"status": "completed", "summary": "Wrote them all. Nothing else was asked.", "artifacts": artifacts}

@agent("large")
async def large(ctx: Context, sizes: list[int]) -> dict:
    artifacts = []
    for size in sizes:
        with open(ctx.scratch / f"{size}.bin", "wb") as file:
            file.write(os.urandom(1000))
            file.truncate(size)
        artifacts.append({"type": "data", "path": str((ctx.scratch / f"{size}.bin").relative_to(ctx.root))})
    return {"status": "completed", "summary": "Wrote large files. They are in its scratch folder.", "artifacts": artifacts}

@agent("editor", workspace="worktree")
async def editor(ctx: Context) -> str:
    (ctx.workspace / "code.txt").write_text("edited\\n")
    (ctx.workspace / "new.bin").write_bytes(bytes(range(256)))
    return "Edited in a worktree of its own."

@agent("merger", workspace="worktree", merge=True)
async def merger(ctx: Context) -> str:
    (ctx.workspace / "code.txt").write_text("merged\\n")
    return "Edited what is to be merged."

@agent("slow", timeout=60)
async def slow(ctx: Context) -> str:
    (ctx.scratch / "half.md").write_text("half of it")
    ctx.artifact(ctx.scratch / "half.md", "report")
    await asyncio.sleep(50)
    return "never"

@agent("again", resumable=True, workspace="worktree", timeout=60)
async def again(ctx: Context) -> dict:
    if (ctx.scratch / "first.md").exists():
        seen = {"scratch": (ctx.scratch / "first.md").read_text(), "code": (ctx.workspace / "code.txt").read_text()}
        return {"status": "completed", "summary": "Continued with the files of before. That was all.", "data": seen}
    (ctx.scratch / "first.md").write_text("from the first")
    (ctx.workspace / "code.txt").write_text("by the first\\n")
    ctx.progress("written")
    await asyncio.sleep(50)
    return {}

@agent("fails", spread=True)
async def fails() -> None:
    raise ValueError("the cellar is flooded")

@agent("asks")
async def asks(ctx: Context) -> None:
    await ctx.delegate("fails")
"""


@dataclass
class Machines:
    """Checkouts of one project. `here` is the caller's."""

    folder: Path
    settings: dict[str, Any]
    processes: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def here(self) -> Path:
        return self.folder / "here"

    @property
    def there(self) -> Path:
        return self.folder / "there"

    @property
    def blobs(self) -> BlobStore:
        engine = self.settings["engine"]
        return BlobStore(f"{engine['temporal']['blobs']}/{engine['project']}")

    def make(self) -> None:
        self.here.mkdir()
        begin(self.here)
        (self.here / "code.txt").write_text("as it was\n")
        (self.here / ".gitignore").write_text(".remit\nremit.toml\n")
        git(self.here, "add", ".")
        git(self.here, "commit", "-q", "-m", "Begin")
        git(self.folder, "clone", "-q", "here", "there")
        git(self.there, "config", "user.name", "Ada")
        git(self.there, "config", "user.email", "ada@example.com")
        for root in (self.here, self.there):
            self.add_files(root)

    def add_files(self, root: Path) -> None:
        (root / ".remit" / "agents").mkdir(parents=True, exist_ok=True)
        (root / ".remit" / "agents" / "work.py").write_text(AGENTS)
        temporal, store = self.settings["engine"]["temporal"], self.settings["store"]
        (root / "remit.toml").write_text(
            f'builtin_agents = []\ndescribe_seconds = 30.0\n[store]\nurl = "{store["url"]}"\nschema = "{store["schema"]}"\n'
            f'[engine]\nkind = "temporal"\nproject = "{self.settings["engine"]["project"]}"\n[engine.temporal]\n'
            + "".join(f"{key} = {json.dumps(value)}\n" for key, value in temporal.items())
        )

    def open(self, root: Path, **settings: Any) -> Remit:
        return Remit.open(root, trust=True, settings=settings)

    def worker(self, number: int) -> "subprocess.Popen[str]":
        """A process in a checkout of its own that looks for changed files every half second."""
        root = self.folder / f"worker-{number}"
        if not root.exists():
            git(self.folder, "clone", "-q", "here", str(root))
            self.add_files(root)
        script = (
            "import asyncio, sys; from remit import Remit; from remit.runtime import shipment as shipping; shipping.SYNC_SECONDS = 0.5\n"
            "async def main():\n"
            "    async with Remit.open(sys.argv[1], trust=True) as remit:\n"
            "        await remit.work(); print('works', flush=True); await asyncio.sleep(60)\n"
            "asyncio.run(main())"
        )
        words = [sys.executable, "-c", script, str(root)]
        started = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.processes.append(started)
        assert started.stdout is not None
        assert started.stdout.readline() == "works\n"
        return started

    async def delegate(self, agent: str, timeout: float = 60, **parameters: Any) -> Return:
        async with self.open(self.there) as worker:
            await worker.work()
            async with self.open(self.here) as remit:
                return await remit.delegate(agent, timeout=timeout, **parameters)


@pytest.fixture
def machines(temporal: TemporalServer, postgres: PostgresServer, tmp_path: Path) -> Iterator[Machines]:
    settings = {
        "store": {"url": postgres.url, "schema": new_schema()},
        "engine": {"project": new_schema(), "temporal": {
            "address": temporal.address, "heartbeat_seconds": 2.0, "files": "shipped", "blobs": f"file://{tmp_path}/blobs"}},
    }  # fmt: skip
    machines = Machines(tmp_path, settings)
    machines.make()
    yield machines
    for process in machines.processes:
        process.kill()
        process.wait()


@pytest.fixture
def on_s3(machines: Machines, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Machines:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    machines.settings["engine"]["temporal"]["blobs"] = f"s3://{BUCKET}/{machines.folder.name}"
    for root in (machines.here, machines.there):
        machines.add_files(root)
    return machines


async def test_artifacts_of_a_remote_worker_arrive_with_its_return(on_s3: Machines) -> None:
    done = await on_s3.delegate("writer", files={"reports/one.md": "first", "two.md": "second"})
    assert (done.status, done.warnings) == (Status.COMPLETED, ())
    assert (on_s3.here / "reports" / "one.md").read_text() == "first"
    assert (on_s3.here / "two.md").read_text() == "second"
    assert (on_s3.here / ".remit" / "scratch" / done.session_id / "note.md").read_text() == "in its scratch folder"
    again = await on_s3.delegate("writer", files={"two.md": "newer"})
    assert again.warnings == (), "what was here had been shipped: nothing is lost"
    assert (on_s3.here / "two.md").read_text() == "newer"


async def test_decisions_errors_and_spans_are_written_on_the_machine_of_the_agent(machines: Machines) -> None:
    """Only the decision about what the caller itself asked for is on its machine; the spans of both are one trace."""
    with collecting() as collected:
        signals = {"otlp_url": collected.url}
        async with machines.open(machines.there, signals=signals) as worker, machines.open(machines.here, signals=signals) as remit:
            await worker.work()
            assert (await remit.delegate("asks", timeout=60)).ok
        asked, failed = collected.span("invoke_agent asks"), collected.span("invoke_agent fails")
    assert (failed.trace_id, failed.parent_span_id, failed.status.code) == (asked.trace_id, asked.span_id, 2)
    assert len([span for span in collected.spans if span.trace_id == asked.trace_id]) == 2, "each once"
    decided = {root: {entry.get("action") for entry in audit_log(root)} for root in (machines.here, machines.there)}
    assert "fails" in decided[machines.there]
    assert "fails" not in decided[machines.here]
    assert "asks" in decided[machines.here]
    assert "flooded" in (machines.there / ".remit" / "errors.json").read_text()
    assert not (machines.here / ".remit" / "errors.json").exists()


async def test_files_of_the_caller_and_protected_paths_are_not_overwritten(machines: Machines) -> None:
    (machines.here / "mine.md").write_text("precious")
    (machines.here / "out").symlink_to(machines.folder)
    (machines.here / "hooks").symlink_to(".git/hooks")
    hostile = ("remit.toml", ".claude/settings.json", ".envrc", "pyproject.toml", "out/x", "hooks/post-index", "hooks/new/x")
    files = dict.fromkeys((*hostile, "mine.md", "fine.md"), "hostile")
    done = await machines.delegate("writer", files=files)
    assert (machines.here / "mine.md").read_text() == "precious"
    assert (machines.here / "fine.md").read_text() == "hostile"
    assert (machines.here / "remit.toml").read_text() != "hostile"
    for name in (".claude", ".envrc", "pyproject.toml", ".git/hooks/post-index", ".git/hooks/new"):
        assert not (machines.here / name).exists()
    assert not (machines.folder / "x").exists()
    assert any("mine.md was not fetched: another file is here" in warning for warning in done.warnings)
    (machines.here / "mine.md").rename(machines.here / "moved.md")
    cli.run("fetch", done.session_id, cwd=machines.here)
    assert (machines.here / "mine.md").read_text() == "hostile"


async def test_worktree_of_a_remote_worker_is_restored_and_can_be_merged(machines: Machines) -> None:
    done = await machines.delegate("editor")
    assert (done.status, done.warnings) == (Status.COMPLETED, ())
    folder = machines.here / done.extra["workspace"]["folder"]
    assert (folder / "code.txt").read_text() == "edited\n"
    assert (folder / "new.bin").read_bytes() == bytes(range(256))
    assert (machines.here / "code.txt").read_text() == "as it was\n"
    merged = cli.run_process("workspaces", done.session_id, "--merge", cwd=machines.here)
    assert merged.code == 0, merged.stderr
    assert (machines.here / "code.txt").read_text() == "edited\n"


async def test_work_to_be_merged_waits_in_the_checkout_of_the_caller(machines: Machines) -> None:
    done = await machines.delegate("merger")
    assert (done.status, done.errors[0].code) == (Status.PARTIAL, "MERGE_WAITING")
    assert git(machines.there, "log", "--oneline", "main").count("\n") == 1, "nothing was merged into the checkout of the worker"
    assert git(machines.here, "show", f"{done.extra['workspace']['branch']}:code.txt") == "merged\n"


async def test_worktree_with_an_unknown_commit_is_returned_as_a_diff(machines: Machines) -> None:
    (machines.there / "code.txt").write_text("ahead of the caller\n")
    git(machines.there, "commit", "-q", "-a", "-m", "Ahead")
    done = await machines.delegate("editor")
    assert done.status is Status.COMPLETED
    diff = next(artifact.path for artifact in done.artifacts if artifact.path.endswith(".diff"))
    assert "-ahead of the caller" in (machines.here / diff).read_text()
    assert any("does not have the commit" in warning and f"apply {diff} by hand" in warning for warning in done.warnings)


async def test_files_beyond_64_mb_are_fetched_on_demand(machines: Machines) -> None:
    done = await machines.delegate("large", sizes=[1000, 80 << 20])
    large, small = (machines.here / ".remit" / "scratch" / done.session_id / f"{size}.bin" for size in (80 << 20, 1000))
    assert small.stat().st_size == 1000
    assert not large.exists()
    assert any(f"{80 << 20}.bin" in warning and f"remit fetch {done.session_id}" in warning for warning in done.warnings)
    assert cli.run("fetch", done.session_id, cwd=machines.here).code == 0
    assert large.stat().st_size == 80 << 20
    assert cli.run("fetch", done.session_id, cwd=machines.here).stdout.startswith("same "), "nothing is fetched twice"


async def test_stopped_agent_returns_its_files(machines: Machines) -> None:
    done = await machines.delegate("slow", timeout=3)
    assert done.status is Status.PARTIAL
    assert (machines.here / ".remit" / "scratch" / done.session_id / "half.md").read_text() == "half of it"


async def test_next_worker_continues_with_the_files_of_a_lost_machine(machines: Machines) -> None:
    """And what cannot continue is returned with the files of its last upload."""
    worker = machines.worker(1)
    async with machines.open(machines.here) as remit:
        handles = [await remit.start(name, timeout=50) for name in ("slow", "again")]
        for handle in handles:
            await uploaded(machines, handle.session_id)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        (machines.folder / "worker-1").rename(machines.folder / "lost")
        machines.worker(2)
        crashed, done = [await handle.result() for handle in handles]
    assert crashed.errors[0].code == "AGENT_CRASHED"
    assert any("last uploaded" in warning for warning in crashed.warnings)
    assert (machines.here / ".remit" / "scratch" / crashed.session_id / "half.md").read_text() == "half of it"
    assert done.status is Status.COMPLETED, done
    assert done.data == {"scratch": "from the first", "code": "by the first\n"}


async def uploaded(machines: Machines, session_id: str) -> Manifest:
    end = time.monotonic() + 30
    while (manifest := machines.blobs.manifest(session_id)) is None or not manifest.files:
        assert time.monotonic() < end
        await asyncio.sleep(0.1)
    return manifest


async def test_object_store_outage_delays_files_and_not_the_return(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "RETRY_SECONDS", (0.2,) * 100)
    blobs = machines.folder / "blobs"
    async with machines.open(machines.there) as worker, machines.open(machines.here) as remit:
        await worker.work()
        blobs.rename(machines.folder / "away")
        blobs.touch()  # a file where the directory was: nothing can be written
        done = await remit.delegate("writer", files={"late.md": "late"}, timeout=30)
        assert done.status is Status.COMPLETED
        assert any("could not be uploaded yet" in warning for warning in done.warnings)
        assert not (machines.here / "late.md").exists()
        blobs.unlink()
        (machines.folder / "away").rename(blobs)
        await uploaded(machines, done.session_id)
    assert cli.run("fetch", done.session_id, cwd=machines.here).code == 0
    assert (machines.here / "late.md").read_text() == "late"


async def test_manifest_that_differs_from_the_record_is_refused(machines: Machines) -> None:
    async with machines.open(machines.there) as worker, machines.open(machines.here) as remit:
        await worker.work()
        honest = await remit.delegate("writer", files={"a.md": "honest"}, timeout=30)
    (machines.here / "a.md").unlink()
    with (machines.folder / "evil").open("w+b") as file:
        file.write(b"evil")
        file.flush()
        forged = ShippedFile("a.md", *machines.blobs.put(file.fileno()))
    machines.blobs.write_manifest(honest.session_id, Manifest((forged,), at=time.time(), attempt=99))
    report = shipping.FileFetcher(machines.blobs, machines.here, honest.session_id).fetch(honest.artifacts)
    assert "another content than the record" in report.refused["a.md"]
    assert not (machines.here / "a.md").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"blobs": None}, "requires an object store"), ({"blobs": "file:///dev/null/x"}, "cannot be used")],
)
async def test_shipping_without_an_object_store_is_refused(machines: Machines, changes: dict[str, Any], message: str) -> None:
    temporal = {key: value for key, value in {**machines.settings["engine"]["temporal"], **changes}.items() if value is not None}
    machines.settings["engine"]["temporal"] = temporal
    machines.add_files(machines.here)
    with pytest.raises(RemitError, match=message):
        async with machines.open(machines.here):
            pass
