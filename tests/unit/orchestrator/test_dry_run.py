"""`--dry-run` says who would do the work in the words of `remit roles`."""

from pathlib import Path

from remit.cli.project import open_directory
from remit.orchestrator.lifecycle import carried_by

AGENT = 'from remit import agent\n\n@agent("planner")\nasync def planner(task: str) -> str:\n    return "x"\n'


def test_who_carries_a_role_out_is_named_as_the_settings_name_it(tmp_path: Path) -> None:
    (tmp_path / ".remit" / "agents").mkdir(parents=True)
    (tmp_path / ".remit" / "agents" / "planner.py").write_text(AGENT)
    (tmp_path / "remit.toml").write_text('[agents.patcher]\ncommand = ["true"]\n\n[roles]\nimplementer = "patcher"\n')
    find = open_directory(tmp_path).find
    roles = ("researcher", "implementer", "lean-implementation-agent", "no-such-role")
    assert [carried_by(find(role)) for role in roles] == ["built-in", "patcher (command)", "nobody", "nobody"]
    assert carried_by(find("planner")).startswith("function (")
    assert carried_by(find("planner")).endswith("planner.py:planner)")
