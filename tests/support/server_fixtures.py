"""Real servers that tests share: each starts when the first test of a process needs it, and ends with the last."""

from collections.abc import Iterator
from contextlib import closing

import pytest


@pytest.fixture(scope="session")
def temporal() -> "Iterator[object]":
    from support.temporal_server import temporal_server

    with temporal_server() as server:
        yield server


@pytest.fixture(scope="session")
def forks() -> "Iterator[object]":
    """Starts worker processes."""
    from support.worker_processes import WorkerForks

    with closing(WorkerForks()) as forks:
        yield forks


@pytest.fixture(scope="session")
def postgres() -> "Iterator[object]":
    from support.postgres import postgres_server

    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def s3() -> "Iterator[object]":
    from support.s3 import S3Server

    server = S3Server()
    try:
        server.start()
        yield server
    finally:
        server.remove()
