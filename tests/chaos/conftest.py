"""For the tests of the sandbox: a folder for its boxes alone."""

from pathlib import Path

import pytest

from remit.system.sandbox import boxes


@pytest.fixture
def box_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where boxes are made: other tests make theirs in the usual place at the same time."""
    made = tmp_path / "boxes"
    made.mkdir()
    monkeypatch.setattr(boxes, "_parent_for", lambda _: str(made))
    for folder in made.parents[:-2]:
        folder.chmod(0o755)  # whoever the code is made must get there
    made.chmod(0o1777)  # as the usual place: should we be killed, the keeper removes its box
    return made
