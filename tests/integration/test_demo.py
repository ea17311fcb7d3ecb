"""`remit demo`: real work in a real folder."""

import os
from pathlib import Path

from cli_project import remit

from support.repository import begin, git


def test_demo_shows_the_promises_and_next_steps(tmp_path: Path) -> None:
    for name in ("src/a.py", "src/deep/b.py", "docs/guide.md", "tool.sh"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("one\ntwo\nthree\n")
    begin(tmp_path)
    done = remit(tmp_path, "demo", env={**os.environ, "PATH": os.defpath})  # without `remit` on the path
    assert done.returncode == 0, done.stdout + done.stderr
    for expected in ("What you saw", "An agent hung", "A cycle was refused", "Try next", "show last"):
        assert expected in done.stdout
    assert "✗" not in done.stdout
    assert "asking once more" in done.stderr
    report = (tmp_path / ".remit" / "demo" / "report.md").read_text()
    assert all(expected in report for expected in ("src/", "docs/", "top level"))
    assert "demo" not in git(tmp_path, "status", "--short", ".remit")
