"""`meta`: new agents and commands from a description, written only if they load."""

from pathlib import Path
from typing import Any

import pytest

from remit import Remit, RemitError
from remit.board.meta import Kind, MetaRequest, find_place, meta
from remit.cli.command_table import COMMANDS
from remit.testing import Scripted, answer


def wrote(text: str) -> Any:
    return answer({"status": "completed", "summary": "Wrote it. It is good.", "artifacts": [], "errors": [], "data": {"file": text}})


async def made(root: Path, text: str, *, builder: Scripted | None = None, **more: Any) -> Any:
    async with Remit.open(root, agents=[builder] if builder else []) as remit:
        return await meta(remit, MetaRequest(text=text, built_in_commands=("task",), **more))


async def test_file_written_by_the_agent_is_saved_if_it_loads(tmp_path: Path) -> None:
    text = "---\ndescription: Finds dead links.\n---\nYou find dead links."
    builder = Scripted("meta-builder", wrote(text))
    outcome = await made(tmp_path, "Finds dead links", builder=builder, name="links")
    assert outcome.status == "completed"
    assert (tmp_path / ".remit/agents/links.md").read_text() == f"{text}\n"
    assert "named links" in builder.calls[0]["task"]
    assert builder.calls[0]["description"] == "Finds dead links"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("You find links.", "it has no front matter"),
        ("---\nname: other\ndescription: x\n---\nx", "its name is 'other'"),
        ("---\ndescription: x\nremit:\n  command: [rm, -rf, /]\n---\nx", "command would give it more than its executor has"),
        ("---\ndescription: x\nremit:\n  allow: [execute]\n---\nx", "allow would give it more"),
        ("---\ndescription: x\nremit:\n  timeout: never\n---\nx", "timeout"),
        ("---\ndescription: x\n---\n", "it has no text below its front matter"),
        ("---\ndescription: [\n---\nx", "its front matter is not YAML"),
    ],
)
async def test_invalid_file_is_refused_with_its_fault(tmp_path: Path, text: str, fault: str) -> None:
    builder = Scripted("meta-builder", wrote(text))
    outcome = await made(tmp_path, "Finds dead links", builder=builder, name="links")
    assert (outcome.status, outcome.errors[0].code) == ("failed", "VALIDATION_FAILED")
    assert fault in outcome.summary
    assert not (tmp_path / ".remit/agents/links.md").exists()


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Kind.AGENT, "planner"),
        (Kind.AGENT, "worker"),
        (Kind.AGENT, "Coder"),
        (Kind.AGENT, "Task-Executor"),
        (Kind.AGENT, "there"),
        (Kind.COMMAND, "task"),
        (Kind.COMMAND, "THERE"),
        (Kind.AGENT, "a/b"),
        (Kind.AGENT, "_hidden"),
        (Kind.COMMAND, "README"),
    ],
)
def test_invalid_or_existing_name_is_refused_before_anything_runs(tmp_path: Path, kind: Kind, name: str) -> None:
    for folder in ("agents", "commands"):
        (tmp_path / ".remit" / folder).mkdir(parents=True)
        (tmp_path / ".remit" / folder / "there.md").write_text("mine")
    with pytest.raises(RemitError):
        find_place(tmp_path, MetaRequest(text="x", kind=kind, name=name, built_in_commands=tuple(COMMANDS)), ["planner"])


async def test_derived_name_is_unused_and_no_file_is_overwritten(tmp_path: Path) -> None:
    good = wrote("---\ndescription: x\n---\nYou are it.")
    first = await made(tmp_path, "Finds dead links", builder=Scripted("meta-builder", good))
    mine = tmp_path / ".remit/agents/finds-dead-links.md"
    before = mine.read_text()
    second = await made(tmp_path, "Finds dead links", builder=Scripted("meta-builder", good))
    assert (first.data["name"], second.data["name"]) == ("finds-dead-links", "finds-dead-links-2")
    assert mine.read_text() == before
