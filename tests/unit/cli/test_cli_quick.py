"""The quick way in reads what typer reads, and leaves to typer whatever is not plain."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.cli import board, task, todo
from remit.cli.declaring import for_typer
from remit.cli.quick import read

WORDS = st.sampled_from(
    [
        *(
            "fix it",
            "12",
            "-",
            "--",
            "--priority",
            "high",
            "--priority=low",
            "--abandon",
            "3,4-5",
            "--reason",
            "",
            "x=y",
            "--sync",
            "--json",
        ),
        *(
            "--accept",
            "make test",
            "--dry-run",
            "--force",
            "--root",
            ".",
            "--help",
            "-h",
            "--nonsense",
            "--depends=1",
            "-x",
            "--no-sync",
            "é",
        ),
    ]
)


def as_typer_reads(command: Callable[..., Any], words: list[str]) -> dict[str, Any] | None:
    """None: a usage error, or help."""
    got: list[dict[str, Any]] = []

    def noted(**given: Any) -> None:
        got.append(given)

    noted.__signature__ = inspect.signature(command)  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command("it")(for_typer(noted))
    try:
        typer.main.get_command(app)(words, standalone_mode=False)
    except Exception:  # noqa: BLE001 - whatever kind of error a version of typer has for it
        return None
    return got[0] if got else None


@settings(max_examples=150, deadline=None)
@given(st.lists(WORDS, max_size=5))
def test_what_it_reads_is_what_typer_reads(words: list[str]) -> None:
    for command in (task.task, todo.todo):
        quick = read(command, words)
        if quick is not None:
            assert quick == as_typer_reads(command, words), words


@pytest.mark.parametrize(
    "words", [["--help"], ["-h"], ["--nonsense"], ["--reason"], ["--sync=1"], ["--priority", "low", "--priority", "high"]]
)
def test_what_is_not_plain_is_left_to_typer(words: list[str]) -> None:
    assert read(task.task, words) is None


def test_a_list_with_bullets_is_a_text_and_no_option() -> None:
    given = read(task.task, ["--divide", "4", "- first part\n- second part"])
    assert given is not None
    assert (given["divide"], given["text"]) == ("4", ["- first part\n- second part"])


def test_all_commands_that_answer_at_once_can_be_read_so() -> None:
    assert read(board.draw, ["--svg", "a.svg", "--all"]) is not None
    assert read(board.show, ["12", "--json"]) is not None
    assert read(todo.todo, ["--dry-run", "-y"]) is not None
    assert read(board.show, ["12", "13"]) is None


def test_they_are_read_and_called_without_typer() -> None:
    code = "import sys; sys.modules['typer'] = None; from remit.__main__ import console; console()"
    done = subprocess.run([sys.executable, "-c", code, "task", "--dry-run", "fix it"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
