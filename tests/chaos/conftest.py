"""Fixtures of the sandbox tests: a separate parent folder for sandboxes."""

from pathlib import Path

import pytest

from remit.system.sandbox import boxes


@pytest.fixture
def box_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Parent folder of the sandboxes of one test. Concurrent tests use the default folder."""
    made = tmp_path / "boxes"
    made.mkdir()
    monkeypatch.setattr(boxes, "_parent_for", lambda _: str(made))
    for folder in made.parents[:-2]:
        folder.chmod(0o755)  # the user that the code runs as must reach it
    made.chmod(0o1777)  # as the default folder: the keeper removes its box if this process is killed
    return made
