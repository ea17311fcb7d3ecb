"""What is said of a role that is bound to nobody: lines that put it right, and never others."""

import tomllib
from pathlib import Path

import pytest

from remit.agents.bindings import binding_problems
from remit.agents.files import declarations_of
from remit.agents.uncarried import lines_for
from remit.core.errors import Misused
from remit.settings import load_settings


@pytest.mark.parametrize(
    ("wanted", "agent"),
    [(None, "claude"), ("task-executor", "claude"), ("Built-In", "claude"), ("worker", "claude"), ("coder.x", "claude"), ("mine", "mine")],
)
def test_the_lines_to_add_can_be_read_and_take_no_roles_place(wanted: str | None, agent: str) -> None:
    lines = [line.strip() for line in lines_for("implementer", wanted).splitlines() if line.startswith("    ")]
    said = tomllib.loads("\n".join(lines))
    assert list(said["agents"]) == [agent]
    assert said["roles"] == {"implementer": agent}


def test_roles_in_a_circle_are_named_as_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text('[roles]\nimplementer = "task-executor"\ntask-executor = "implementer"\n')
    problems = list(binding_problems(declarations_of(tmp_path, load_settings(tmp_path)), ()))
    assert len(problems) == 2
    assert all("is a role itself: name the coding agent" in problem for problem in problems)


def test_an_empty_binding_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text('[roles]\nplanner = ""\n')
    with pytest.raises(Misused, match=r"roles\.planner must be text that is not empty"):
        load_settings(tmp_path)
