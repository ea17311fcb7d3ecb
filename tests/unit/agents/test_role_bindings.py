"""Which agent executes a role: precedence of bindings, and errors of invalid ones."""

from pathlib import Path

import pytest

from remit import load_settings
from remit.agents.directory import Directory
from remit.agents.profiles import definition_for
from remit.agents.python_files import describe_project
from remit.agents.role_bindings import role_info, role_infos
from remit.agents.roles import BUILT_INS, FOLDER, declared_role
from remit.core.agents import ROLES, is_built_in, is_role

CODERS = '[agents.claude]\nkind = "claude"\n[agents.codex]\nkind = "codex"\n'


def directory(root: Path, toml: str = "", environ: dict[str, str] | None = None) -> Directory:
    (root / "remit.toml").write_text(toml)
    settings = load_settings(root, environ=environ or {})
    made = Directory(lambda agent: agent)
    made.load_files(describe_project(root / ".remit", lambda path, data: True, 30.0))
    made.load_definitions(root, settings)
    made.offer_roles()
    return made


def own_file(root: Path, name: str, head: str = "", folder: str = ".remit/agents") -> None:
    place = root / folder / f"{name}.md"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"---\nname: {name}\ndescription: Ours.\n{head}---\nDo it our way.\n")


def executor(root: Path, name: str, toml: str) -> tuple[str, str]:
    found = role_info(directory(root, toml), name)
    assert found is not None
    return found.carried_by, found.by


@pytest.mark.parametrize(
    ("role", "toml", "expected"),
    [
        ("planner", "", ("built-in", "built-in")),
        ("implementer", "", ("nobody", "nobody")),
        ("planner", CODERS, ("claude", "first")),
        ("planner", 'model = "anthropic:x"\n', ("model", "model")),
        ("researcher", CODERS, ("built-in", "built-in")),
        ("meta-builder", '[roles]\nmeta-builder = "built-in"\n', ("nobody", "nobody")),
        ("implementer", CODERS, ("claude", "first")),
        ("planner", f'profiles_on = "codex"\n{CODERS}', ("codex", "profiles_on")),
        ("planner", f'profiles_on = "codex"\n{CODERS}[roles]\nplanner = "claude"\n', ("claude", "setting")),
        ("planner", f'profiles_on = "codex"\n{CODERS}[roles]\nplanner = "built-in"\n', ("built-in", "setting")),
        ("implementer", f'{CODERS}[roles]\nimplementer = "codex"\n', ("codex", "setting")),
        ("implementer", f'{CODERS}[roles]\nimplementer = "gone"\n', ("nobody", "nobody")),
        ("planner", f'{CODERS}[roles]\nplanner = "gone"\n', ("nobody", "nobody")),
        ("planner", 'profiles_on = "gone"\n', ("nobody", "nobody")),
        ("planner", '[agents.clerk]\ncommand = "cat"\n[roles]\nplanner = "clerk"\n', ("clerk", "setting")),
    ],
)
def test_first_binding_wins(tmp_path: Path, role: str, toml: str, expected: tuple[str, str]) -> None:
    assert executor(tmp_path, role, toml) == expected


@pytest.mark.parametrize(
    ("head", "toml", "expected"),
    [
        ("", CODERS, ("claude", "first")),
        ("", "", ("nobody", "nobody")),
        ("remit:\n  built_in: planner\n", CODERS, ("claude", "first")),
        ("remit:\n  built_in: meta-builder\n", "", ("nobody", "nobody")),
        ("remit:\n  built_in: planner\n  runs_on: codex\n", CODERS, ("codex", "file")),
        ("remit:\n  runs_on: codex\n", f'{CODERS}[roles]\nplanner = "claude"\n', ("claude", "setting")),
        ("", '[roles]\nplanner = "built-in"\n', ("built-in", "setting")),
    ],
)
def test_file_of_the_project_replaces_the_role(tmp_path: Path, head: str, toml: str, expected: tuple[str, str]) -> None:
    own_file(tmp_path, "planner", head)
    found = role_info(directory(tmp_path, toml), "planner")
    assert found is not None
    assert (found.carried_by, found.by) == expected
    assert found.is_own
    assert found.description == "Ours."


@pytest.mark.parametrize("folder", [".claude/agents", ".opencode/agent"])
def test_file_of_another_tool_replaces_a_role_without_a_built_in(tmp_path: Path, folder: str) -> None:
    own_file(tmp_path, "planner", folder=folder)
    assert executor(tmp_path, "planner", CODERS) == ("claude", "first")
    own_file(tmp_path, "planner", "remit:\n  built_in: atomic-task-numberer\n", folder=folder)
    assert any("built_in would give it more" in problem for problem in directory(tmp_path).problems)


def test_python_function_replaces_a_role(tmp_path: Path) -> None:
    folder = tmp_path / ".remit" / "agents"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text('from remit import agent\n@agent("planner")\nasync def plan(task: str) -> str:\n    return task\n')
    made = directory(tmp_path, '[roles]\nplanner = "built-in"\n')
    found = role_info(made, "planner")
    assert found is not None
    assert (found.carried_by, found.by, found.file) == ("Python function", "replaced", None)
    assert any("planner is the project's own agent" in problem for problem in made.problems)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('plannr = "claude"', "there is no role or agent file 'plannr'. Did you mean planner?"),
        (
            'planner = "claud"',
            "'claud' cannot carry it out",
        ),
        ('implementer = "built-in"', "implementer has no built-in: it takes a coding agent or a language model."),
        ('planner = "careful"', "'careful' cannot carry it out: name a coding agent"),
        ('planner = "pyfun"', "'pyfun' cannot carry it out: name a coding agent"),
    ],
)
def test_invalid_binding_is_reported_with_its_place(tmp_path: Path, line: str, expected: str) -> None:
    own_file(tmp_path, "careful")
    (tmp_path / ".remit/agents/pyfun.py").write_text("from remit import agent\n@agent\nasync def pyfun() -> str:\n    return ''\n")
    (problem,) = directory(tmp_path, f"{CODERS}[roles]\n{line}\n").problems
    assert problem.startswith(f"remit.toml:[roles].{line.partition(' ')[0]}: {expected}")


def test_every_role_has_a_file_with_instructions_and_a_valid_built_in(tmp_path: Path) -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.md")) == sorted(ROLES)
    made = directory(tmp_path)
    for role in ROLES:
        declared = definition_for(declared_role(role))
        assert declared.spec.description
        assert all(part in declared.instructions for part in ("## What you are given", "## What you hand back", "## What you must not do"))
        assert declared.built_in == (role if role in BUILT_INS else None)
        found = made.find(role)
        assert found is not None, made.problems
        assert is_role(found.spec)
        assert is_built_in(found.spec)
    assert made.problems == []
    assert made.find("planner").spec.requires_artifacts  # type: ignore[union-attr]
    assert [role.name for role in role_infos(made)] == list(ROLES)
