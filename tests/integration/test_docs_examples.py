"""The examples run, print the output that the documents show, and are shown as they are."""

from pathlib import Path

import pytest
from documents import EXAMPLES, ROOT, SCRIPTS, blocks, check_outputs, no_block_limit  # noqa: F401 - a fixture

HALF = len(SCRIPTS) // 2


@pytest.mark.timeout(600)  # dozens of processes, also on a slow machine
def test_first_half_of_the_examples_prints_the_documented_output(tmp_path: Path) -> None:
    check_outputs(SCRIPTS[:HALF], tmp_path)


def test_every_python_block_matches_its_file() -> None:
    for name, block in blocks("file"):
        assert block["text"] == (ROOT / block["path"]).read_text(), f"{name}: {block['path']}"
    assert [(name, block["text"]) for name, block in blocks(None) if block["language"] in ("python", "py")] == [], "a block without a file"


def test_every_example_is_used_in_a_document() -> None:
    assert {block["path"] for _, block in blocks("file")} == {path.relative_to(ROOT).as_posix() for path in EXAMPLES.rglob("*.py")}
    assert {block["path"] for _, block in blocks("output")} <= {script.relative_to(ROOT).as_posix() for script in SCRIPTS}
