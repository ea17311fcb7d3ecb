"""The directory of agents: registration, files, plugins."""

import os
from pathlib import Path

import pytest

from remit import Misused, Remit, agent
from remit.agents.directory import Directory
from remit.testing import Scripted
from support.processes import descendants


async def _one() -> None: ...


def directory() -> Directory:
    return Directory(lambda declared: declared)


def test_two_agents_with_one_name_are_refused() -> None:
    known = directory()
    known.register(agent("a")(_one))
    known.register(agent("a")(_one))
    with pytest.raises(Misused, match="Two agents are named 'a'"):
        known.register(Scripted("a"))
    with pytest.raises(Misused, match="is not an agent"):
        known.register(_one)  # type: ignore[arg-type]
    assert known.find("b") is None


KIND = """
import asyncio

class EchoAgent:
    def __init__(self, definition, deps):
        self.spec = definition.spec

    def check(self, parameters):
        return parameters

    async def perform(self, ctx, arguments):
        return arguments["task"]

    async def close(self):
        if self.spec.name == "hangs":
            await asyncio.Event().wait()
        raise RuntimeError("it does not close")
"""


@pytest.fixture
def echo_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "echo_kind.py").write_text(KIND)
    metadata = tmp_path / "echo_kind-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-kind\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[remit.executors]\necho = echo_kind:EchoAgent\n")
    monkeypatch.syspath_prepend(str(tmp_path))


async def test_package_adds_a_kind_of_agent_with_an_entry_point(tmp_path: Path, echo_kind: None) -> None:
    async with Remit.open(tmp_path, settings={"agents": {"e": {"kind": "echo", "answers": "value"}, "f": {"kind": "ecko"}}}) as remit:
        assert (await remit.delegate("e", task="x")).data == "x"
        assert [problem for problem in remit.directory.problems if "unknown kind 'ecko'" in problem]


async def test_agent_that_raises_or_hangs_on_close_leaves_the_rest_closed(
    tmp_path: Path, echo_kind: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remit.agents.executors.CLOSE_SECONDS", 0.1)
    echo, command = {"kind": "echo"}, {"command": "cat", "answers": "value"}
    async with Remit.open(tmp_path, settings={"agents": {"raises": echo, "hangs": echo, "cat": command}}) as remit:
        assert (await remit.delegate("cat", task="x")).ok
        before = set(descendants(os.getpid()))
        assert before
    assert not before & set(descendants(os.getpid()))


async def test_file_from_a_clone_chooses_no_executor_of_a_package(tmp_path: Path, echo_kind: None) -> None:
    """What it does with instructions is not known here."""
    (tmp_path / ".claude/agents").mkdir(parents=True)
    (tmp_path / ".claude/agents/one.md").write_text("---\nname: one\ndescription: d\nremit: {runs_on: e}\n---\nDo as I say.\n")
    async with Remit.open(tmp_path, settings={"agents": {"e": {"kind": "echo"}}}) as remit:
        (problem,) = remit.directory.problems
        assert "line 4: runs_on: e is of the kind echo, which a file in this folder cannot choose itself" in problem
        assert remit.directory.find("one") is None
