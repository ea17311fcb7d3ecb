"""Commands as agents: input, environment and returns. All commands are real."""

import os
from pathlib import Path
from typing import Any

import pytest
from command_agents import HAND_IN, RETURN, left, project, python, sh

from remit import EventKind, Status, StopReason

# ---- the prompt


@pytest.mark.parametrize(
    ("command", "prompt"),
    [
        (["cat"], "stdin"),
        ([*sh('printf %s "$1"'), "sh", "{prompt}"], "argument"),
        ([*sh('printf %s "$1"'), "sh", "{prompt}"], "stdin"),
        ([*sh('printf %s "$1"'), "sh"], "argument"),
        (sh('cat "$REMIT_PROMPT_FILE"'), "file"),
        (["cat", "{prompt_file}"], "file"),
    ],
    ids=["stdin", "placeholder", "placeholder-decides", "appended", "file-by-environment", "file-by-placeholder"],
)
async def test_command_gets_its_task_by_argument_stdin_or_file(tmp_path: Path, command: list[str], prompt: str) -> None:
    async with project(tmp_path, command, prompt=prompt, answers="value", instructions="You are careful.") as remit:
        result = await remit.delegate("cmd", task="Count the {scratch} sheep: ¾ of them, 'quoted' $HOME.", flock=["a", 2])
    assert result.status is Status.COMPLETED, result
    output = str(result.data)
    assert output.startswith("You are careful.")
    assert "Count the {scratch} sheep: ¾ of them, 'quoted' $HOME." in output
    assert '- flock: ["a", 2]' in output


@pytest.mark.parametrize(
    ("command", "parameters", "expected"),
    [
        (["echo"], {"task": "x" * 200_000}, "stdin"),
        (["cat"], {"words": "no task"}, "task: it is required"),
        (["wc", "-l", "{path}"], {"task": "Count."}, "path: it is required"),
    ],
    ids=["too long for an argument", "no task", "no parameter"],
)
async def test_invalid_parameters_are_refused_with_advice(
    tmp_path: Path, command: list[str], parameters: dict[str, str], expected: str
) -> None:
    prompt = {"prompt": "argument"} if command == ["echo"] else {}
    async with project(tmp_path, command, answers="value", **prompt) as remit:
        result = await remit.delegate("cmd", **parameters)
    assert result.errors[0].code == "INVALID_PARAMETERS"
    assert expected in f"{result.errors[0].message} {result.errors[0].recommendation}"


# ---- parameters

HOSTILE = [
    "; touch pwned",
    "$(touch pwned)",
    "`touch pwned`",
    "' ; touch pwned; '",
    '"; touch pwned; "',
    "{scratch}",
    "-n",
    "a\nb",
    "ä",
    "*",
]


async def test_parameters_are_passed_as_single_arguments(tmp_path: Path) -> None:
    command = [*sh('printf "%s|" "$@"'), "sh", "{word}", "--x={word}", "{list}", "{workspace}", "{{word}}", "{number}"]
    async with project(tmp_path, command, answers="value") as remit:
        for word in HOSTILE:
            result = await remit.delegate("cmd", word=word, list=[word, 1, {"a": None}], number=2.5)
            output = f'{word}|--x={word}|{word}|1|{{"a": null}}|{tmp_path}|{{word}}|2.5|'
            assert result.data == output, result
    assert not (tmp_path / "pwned").exists()


# ---- environment


async def environment(root: Path, **declared: Any) -> dict[str, str]:
    async with project(root, ["env", "-0"], answers="value", **declared) as remit:
        result = await remit.delegate("cmd", task="Say.", timeout=100)
    assert isinstance(result.data, str), result
    return dict(line.split("=", 1) for line in result.data.split("\0") if "=" in line)


async def test_only_allowed_environment_variables_are_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SOME_API_KEY", "AWS_REGION", "AWS_SECRET", "WANTED"):
        monkeypatch.setenv(name, f"value of {name}")
    found = await environment(tmp_path, pass_environment=["AWS_REG*", "WANTED"], environment={"OWN": "set for it"})
    assert "SOME_API_KEY" not in found
    assert "AWS_SECRET" not in found
    assert found["AWS_REGION"] == "value of AWS_REGION"
    assert found["WANTED"] == "value of WANTED"
    assert found["OWN"] == "set for it"
    assert found["PATH"] == os.environ["PATH"]


async def test_command_gets_only_its_own_session_and_deadlines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens, marks and deadlines of another delegation must not leak."""
    own = await environment(tmp_path)
    assert own["REMIT_RETURN_FILE"] == f"{own['REMIT_SCRATCH']}/return.json"
    assert own["REMIT_SESSION"] in own["REMIT_SCRATCH"]
    assert own["REMIT_ROOT"] == str(tmp_path)
    assert 9 < float(own["REMIT_DEADLINE"]) - float(own["REMIT_SOFT_DEADLINE"]) < 11
    assert own["REMIT_MARK"].endswith(own["REMIT_SESSION"])
    for name in ("REMIT_SOMETHING", "REMIT_PROMPT_FILE"):
        monkeypatch.setenv(name, "somebody else's")
    found = await environment(tmp_path, pass_environment=["*", "REMIT_SOMETHING"])
    assert {name for name in found if name.startswith("REMIT_")} == {name for name in own if name.startswith("REMIT_")}


@pytest.mark.parametrize(("folder", "code"), [("", ""), ("below", ""), ("..", "INVALID_PARAMETERS"), ("nowhere", "AGENT_UNAVAILABLE")])
async def test_command_starts_in_its_folder_or_reports_why_not(tmp_path: Path, folder: str, code: str) -> None:
    (tmp_path / "below").mkdir()
    async with project(tmp_path, ["pwd"], answers="value", **({"folder": folder} if folder else {})) as remit:
        result = await remit.delegate("cmd", task="Where?")
    if not code:
        assert result.data == str(tmp_path / folder)
        return
    assert result.errors[0].code == code
    assert folder in result.errors[0].message


async def test_command_inherits_only_the_standard_streams(tmp_path: Path) -> None:
    script = "import os; print(sorted(os.listdir('/proc/self/fd')), os.getsid(0) == os.getpid(), os.read(0, 9))"
    async with project(tmp_path, python(script), prompt="file", answers="value") as remit:
        result = await remit.delegate("cmd", task="Look.")
    assert result.data == "['0', '1', '2', '3'] True b''"  # 3 is the folder being listed


# ---- the return


@pytest.mark.parametrize(
    "script",
    [
        HAND_IN,
        f"echo 'Here it is:'; echo '```json'; {HAND_IN}; echo '```'; echo Bye.",
        f"echo Working on it.; {HAND_IN}; echo So it is.",
        f"{HAND_IN} > $REMIT_RETURN_FILE",
        f"echo Some prose.; {HAND_IN} > $REMIT_RETURN_FILE",
        f"{HAND_IN}; exit 3",
        f"{HAND_IN} > $REMIT_RETURN_FILE; kill -9 $$",
        f"printf '\\377\\376 no text \\0'; {HAND_IN}",
    ],
    ids=["json", "fence", "prose", "file", "file-and-prose", "exit-code", "killed-after-file", "binary"],
)
async def test_return_is_found_anywhere_in_the_output(tmp_path: Path, script: str) -> None:
    async with project(tmp_path, sh(script)) as remit:
        result = await remit.delegate("cmd", task="Do it.")
    assert result.status is Status.COMPLETED, result
    assert result.summary == "It is done. All is well."


async def test_prose_is_repaired_by_one_more_run_with_the_faults(tmp_path: Path) -> None:
    script = f"cat > prompt.txt; if grep -q 'What was wrong' prompt.txt; then {HAND_IN}; else echo 'I am finished, I think.'; fi"
    async with project(tmp_path, sh(script)) as remit:
        result = await remit.delegate("cmd", task="Do it.")
    assert result.status is Status.COMPLETED, result
    prompt = (tmp_path / "prompt.txt").read_text()
    assert "Do it." in prompt
    assert "I am finished, I think." in prompt
    assert "Return is not valid JSON" in prompt
    assert any("answer.txt" in artifact.path for artifact in result.artifacts), "the prose is kept"


PROSE = [["echo", "prose"], ["echo", RETURN % "sess_1700000000_abcdef"], ["cat"]]


@pytest.mark.parametrize("command", PROSE, ids=["prose", "another session", "cat"])
async def test_prose_foreign_session_or_echoed_prompt_is_an_invalid_return(tmp_path: Path, command: list[str]) -> None:
    """Neither the example in the prompt nor a return quoted in the task is an answer."""
    task = f"Do as I say:\n```json\n{RETURN % '{session_id}'}\n```\n{RETURN % 'sess_1700000000_abcdef'}"
    async with project(tmp_path, command) as remit:
        result = await remit.delegate("cmd", task=task)
    assert (result.status, result.errors[0].code) == (Status.FAILED, "VALIDATION_FAILED")
    assert result.errors[0].recommendation.startswith("Fix cmd subagent return format. Its answer is kept in ")
    if command[-1] == "prose":
        assert (tmp_path / result.artifacts[0].path).read_text() == "prose\n"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo half an answer; echo 'it went wrong' >&2; exit 3", ["exit code 3", "it went wrong"]),
        ("kill -SEGV $$", ["signal 11 (SIGSEGV)"]),
    ],
)
async def test_exit_without_a_return_is_a_crash_with_its_cause(tmp_path: Path, script: str, expected: list[str]) -> None:
    async with project(tmp_path, sh(script)) as remit:
        result = await remit.delegate("cmd", task="Do it.")
    assert (result.status, result.stop_reason, result.errors[0].code) == (Status.FAILED, StopReason.CRASHED, "AGENT_CRASHED")
    assert all(part in result.errors[0].message for part in expected)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("no-such-program", "cannot be started: No such file"),
        ("./plain.txt", "cannot be started: Permission denied"),
        ("./empty", "cannot be started: Exec format error"),
    ],
)
async def test_command_that_cannot_start_is_unavailable_with_advice(tmp_path: Path, command: str, expected: str) -> None:
    (tmp_path / "plain.txt").write_text("not a program")
    (tmp_path / "empty").write_text("no first line\n")
    (tmp_path / "empty").chmod(0o755)
    async with project(tmp_path, [command]) as remit:
        result = await remit.delegate("cmd", task="Do it.")
        assert left(remit) == []
    assert (result.stop_reason, result.errors[0].code) == (StopReason.UNAVAILABLE, "AGENT_UNAVAILABLE")
    assert command in result.errors[0].message
    assert expected in result.errors[0].message
    assert result.errors[0].recommendation


# ---- streaming


async def test_output_is_streamed_in_chunks(tmp_path: Path) -> None:
    async with project(
        tmp_path, sh("echo first; sleep 0.3; echo second; sleep 0.3; printf '\\303'; sleep 0.3; printf '\\244'"), answers="value"
    ) as remit:
        handle = await remit.start("cmd", task="Say.")
        result = await handle.result()
        events = await remit.events(handle.session_id)
    chunks = [event.body["chunk"] for event in events if event.kind is EventKind.DATA]
    assert chunks == ["first\n", "second\n", "ä"], "no character is split"
    assert result.data == "first\nsecond\nä"


async def test_return_after_a_hundred_megabytes_is_found_with_few_events(tmp_path: Path) -> None:
    script = f"""
import os
for n in range(20000):
    os.write(1, b'x\\n')
for n in range(1600):
    os.write(1, b'0123456789abcde\\n' * 4096)
print({RETURN!r} % os.environ['REMIT_SESSION'])
"""
    before = peak_kilobytes()
    async with project(tmp_path, python(script)) as remit:
        result = await remit.delegate("cmd", task="Say.", timeout=100)
        chunks = [event.body["chunk"] for event in await remit.events(result.session_id) if event.kind is EventKind.DATA]
    assert result.status is Status.COMPLETED, result
    assert 0 < sum(str(chunk).startswith("x") for chunk in chunks) < 500
    assert peak_kilobytes() - before < 200_000


def peak_kilobytes() -> int:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
