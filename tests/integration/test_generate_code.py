"""`coder.generate_code`: blocked without a model, handed to an agent that the settings name, or written by a model (issue 4, item 5)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from remit import Remit, Status
from remit.agents.builtin.coder.generate import CodeAsked, CodeWritten, use_model

WRITES = """
import json, os, pathlib, sys
prompt = sys.stdin.read()
pathlib.Path("made.py").write_text("made = True\\n")
pathlib.Path("prompt.txt").write_text(prompt)
print(json.dumps({
    "status": "completed", "summary": "The file made.py was written. It holds one line.",
    "artifacts": [{"type": "implementation", "path": "made.py"}],
    "metadata": {"session_id": os.environ["REMIT_SESSION"], "agent_type": "writer", "delegation_depth": 2,
                 "delegation_path": ["orchestrator", "coder.generate_code", "writer"]},
}))
"""


def settings(root: Path, generate_on: str) -> None:
    (root / "writer.py").write_text(WRITES)
    (root / "remit.toml").write_text(
        f'generate_on = "{generate_on}"\n\n[agents.writer]\nkind = "command"\ncommand = ["python3", "writer.py"]\n'
        'prompt = "stdin"\ntimeout = 30\n'
    )


class Model:
    name = "parrot"

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files
        self.asked: CodeAsked | None = None

    async def write(self, asked: CodeAsked) -> CodeWritten:
        self.asked = asked
        return CodeWritten(files=self.files, tokens=10)


@pytest.fixture
def no_model() -> Iterator[None]:
    yield
    use_model(None)


async def test_without_a_model_it_is_blocked_and_says_what_to_set(tmp_path: Path) -> None:
    async with Remit.open(tmp_path) as remit:
        result = await remit.delegate("coder.generate_code", spec="A function that adds.")
    assert (result.status, result.errors[0].code) == (Status.BLOCKED, "TOOL_UNAVAILABLE")
    assert "generate_on" in result.errors[0].recommendation


async def test_the_agent_that_the_settings_name_writes_it(tmp_path: Path) -> None:
    settings(tmp_path, "writer")
    async with Remit.open(tmp_path) as remit:
        result = await remit.delegate("coder.generate_code", spec="A flag.", language="python", framework="none at all")
    assert result.status is Status.COMPLETED, json.dumps(result.to_dict())
    assert [artifact.path for artifact in result.artifacts] == ["made.py"]
    assert result.data["by"] == "writer"
    prompt = (tmp_path / "prompt.txt").read_text()
    assert "Language: python\nFramework: none at all" in prompt
    assert "## Specification\n\nA flag." in prompt


async def test_an_agent_that_was_named_when_the_project_was_opened_writes_it_too(tmp_path: Path) -> None:
    settings(tmp_path, "nobody")
    async with Remit.open(tmp_path, settings={"generate_on": "writer"}) as remit:
        result = await remit.delegate("coder.generate_code", spec="A flag.")
    assert result.status is Status.COMPLETED, json.dumps(result.to_dict())
    assert result.data["by"] == "writer"


async def test_an_agent_that_is_not_there_is_named(tmp_path: Path) -> None:
    settings(tmp_path, "nobody")
    async with Remit.open(tmp_path) as remit:
        result = await remit.delegate("coder.generate_code", spec="A flag.")
    assert (result.status, result.errors[0].code) == (Status.BLOCKED, "TOOL_UNAVAILABLE")
    assert "'nobody'" in result.errors[0].message


async def test_it_does_not_hand_the_work_to_itself(tmp_path: Path) -> None:
    settings(tmp_path, "coder.generate_code")
    async with Remit.open(tmp_path) as remit:
        result = await remit.delegate("coder.generate_code", spec="A flag.")
    assert not result.ok
    assert result.errors[0].code == "CYCLE_DETECTED"


@pytest.mark.parametrize("parameters", [{"spec": "  "}, {"spec": "x", "language": "a\nb"}, {"spec": "x" * 200_001}])
async def test_a_bad_order_is_refused(tmp_path: Path, parameters: dict[str, str]) -> None:
    async with Remit.open(tmp_path) as remit:
        result = await remit.delegate("coder.generate_code", parameters=parameters)
    assert (result.ok, result.errors[0].code) == (False, "INVALID_PARAMETERS")


async def test_a_model_writes_into_a_folder_of_the_delegations_own(tmp_path: Path, no_model: None) -> None:
    model = Model({"pkg/a.py": "a = 1\n", "b.py": "b = 2\n"})
    use_model(model)
    async with Remit.open(tmp_path) as remit:
        result = await remit.delegate("coder.generate_code", spec="Two files.", language="python")
    assert result.status is Status.COMPLETED, result
    assert result.data["files"] == ["b.py", "pkg/a.py"]
    assert model.asked == CodeAsked(spec="Two files.", language="python")
    assert all(artifact.path.startswith(".remit/scratch/") for artifact in result.artifacts)


@pytest.mark.parametrize("name", ["../out.py", "/abs.py", "a//b", "a/../../b", "nul\0.py", ""])
async def test_a_model_that_names_a_path_outside_is_not_believed(tmp_path: Path, no_model: None, name: str) -> None:
    use_model(Model({name: "x\n"}))
    async with Remit.open(tmp_path) as remit:
        result = await remit.delegate("coder.generate_code", spec="One file.")
    assert (result.status, result.errors[0].code) == (Status.FAILED, "VALIDATION_FAILED")
