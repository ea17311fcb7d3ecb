"""`remit install`: the entry is written into a person's file, and nothing else of it is touched (issue 3, item 9)."""

import json
import os
import pty
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cli_project import remit, remit_json
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.cli.installing.change import Does, installing, undoing
from remit.cli.installing.documents import Broken, Json
from remit.cli.installing.tools import TOOLS, Tool, tool_named
from remit.core.errors import Misused, Unavailable

COMMAND = ("remit",)
CLAUDE, CODEX, OPENCODE = (tool_named(name) for name in ("claude", "codex", "opencode"))
each_tool = pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)

COMMENTED = """{
  // which model
  "model": "local/small", /* the small one */
  "mcp": {
    "other": {"type": "local", "command": ["x"],},  // keep
  },
}
"""
TOML = """# mine
model = "gpt-5"   # the good one

[mcp_servers.other]
command = "x"

# about the profile
[profiles.a]
model = "o3"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder that is a project, whatever lies above it; made so by something that is not looked at here."""
    folder = tmp_path / "project"
    folder.mkdir(parents=True)
    (folder / "remit.toml").touch()
    return folder


def held(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name != "remit.toml")


def write(root: Path, tool: Tool, text: str) -> Path:
    file = root / tool.files[0]
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text.encode())
    return file


def install(root: Path, tool: Tool, command: tuple[str, ...] = COMMAND) -> Does:
    change = installing(tool, root, command)
    if change.does is not Does.NOTHING:
        change.make()
    return change.does


def undo(root: Path, tool: Tool) -> Does:
    change = undoing(tool, root)
    if change.does is not Does.NOTHING:
        change.make()
    return change.does


# ---- as a person uses it


@each_tool
def test_without_a_terminal_the_change_is_shown_and_not_made(project: Path, tool: Tool) -> None:
    done = remit(project, "install", tool.name)
    assert done.returncode == 4
    assert f"+++ {tool.files[0]}" in done.stdout
    assert "--yes" in done.stderr
    assert held(project) == []


@each_tool
def test_yes_makes_it_once_and_undo_leaves_nothing(project: Path, tool: Tool) -> None:
    first = remit_json(project, "install", tool.name, "--yes")
    assert (first["does"], first["is_made"], first["file"]) == ("make", True, tool.files[0])
    assert (project / tool.files[0]).exists()
    again = remit_json(project, "install", tool.name, "--yes")
    assert (again["does"], again["is_made"]) == ("nothing", False)
    undone = remit(project, "install", tool.name, "--undo", "--yes")
    assert undone.returncode == 0
    assert f"--- {tool.files[0]}" in undone.stdout
    assert held(project) == []
    assert remit(project, "install", tool.name, "--undo", "--yes").stdout.startswith("Nothing to do")


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 6)])
def test_at_a_terminal_it_asks(project: Path, answer: str, code: int) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "remit.cli.main", "install", "claude"]
    process = subprocess.Popen(command, cwd=project, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    os.write(ours, f"{answer}\n".encode())
    process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == code
    assert (project / ".mcp.json").exists() == (code == 0)


def test_no_answer_at_all_is_an_interruption_and_changes_nothing(project: Path) -> None:
    """The exit code is not that of a failure."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "remit", "install", "claude"]
    process = subprocess.Popen(command, cwd=project, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.write(ours, b"\x04")
    _, said = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert (process.returncode, "Nothing was changed" in said) == (130, True)
    assert not (project / ".mcp.json").exists()


def test_what_is_written_starts_this_very_remit(project: Path) -> None:
    """By its name only where a shell finds that, and finds this one."""
    beside = Path(sys.executable).parent / "remit"
    plain = {**os.environ, "PATH": str(project / "empty")}
    done = remit(project, "install", "claude", "--yes", env=plain)
    assert json.loads((project / ".mcp.json").read_text())["mcpServers"]["remit"]["command"] == str(beside)
    assert "this machine only" in done.stderr
    found = {**os.environ, "PATH": f"{beside.parent}:{os.environ['PATH']}"}
    remit(project, "install", "claude", "--yes", env=found)
    assert json.loads((project / ".mcp.json").read_text())["mcpServers"]["remit"] == {"command": "remit", "args": ["mcp"]}


def test_an_unknown_tool_and_a_broken_file_are_refused(project: Path) -> None:
    assert remit_json(project, "install", "emacs", "--yes", code=2)["error"]["advice"] == "Name one of claude, codex, opencode."
    (project / ".mcp.json").write_text('{\n  "mcpServers": {\n')
    done = remit(project, "install", "claude", "--yes")
    assert done.returncode == 2
    assert ".mcp.json: line 3: " in done.stderr
    assert held(project) == [".mcp.json"]


# ---- what is kept


def test_comments_order_and_form_of_everything_else_stay(tmp_path: Path) -> None:
    file = write(tmp_path, OPENCODE, COMMENTED)
    assert install(tmp_path, OPENCODE) is Does.ADD
    lines = file.read_text().splitlines()
    assert [line for line in COMMENTED.splitlines() if line not in lines] == []
    assert lines.index('    "remit": {') == 5
    file = write(tmp_path, CODEX, TOML)
    assert install(tmp_path, CODEX) is Does.ADD
    assert file.read_text().startswith(TOML)
    assert tomllib.loads(file.read_text())["mcp_servers"]["remit"]["env_vars"][0] == "REMIT_CALLER"


def test_an_empty_file_of_any_kind_is_filled_and_emptied_again(tmp_path: Path) -> None:
    for tool in TOOLS.values():
        for text in ("", "\n", "  \r\n"):
            file = write(tmp_path, tool, text)
            assert install(tmp_path, tool) is Does.ADD
            assert undo(tmp_path, tool) is Does.RESTORE
            assert file.read_bytes() == text.encode()
            assert [name for name in os.listdir(file.parent) if "backup" in name] == []


def test_opencodes_file_is_the_one_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "opencode.jsonc").write_text(COMMENTED)
    assert install(tmp_path, OPENCODE) is Does.ADD
    assert not (tmp_path / "opencode.json").exists()


def test_the_backup_is_the_file_byte_by_byte_with_its_mode_and_is_never_overwritten(tmp_path: Path) -> None:
    file = write(tmp_path, CLAUDE, '{"a":1}')
    file.chmod(0o600)
    older = tmp_path / ".mcp.json.remit-backup"
    older.write_text("an older one")
    assert install(tmp_path, CLAUDE) is Does.ADD
    newer = tmp_path / ".mcp.json.remit-backup-2"
    assert (older.read_text(), newer.read_text()) == ("an older one", '{"a":1}')
    assert stat.S_IMODE(newer.stat().st_mode) == stat.S_IMODE(file.stat().st_mode) == 0o600
    assert undo(tmp_path, CLAUDE) is Does.RESTORE
    assert (file.read_text(), older.read_text(), newer.exists()) == ('{"a":1}', "an older one", False)


def test_another_entry_of_that_name_is_shown_replaced_and_comes_back(tmp_path: Path) -> None:
    mine = '{"mcpServers": {"remit": {"command": "mine"}, "b": {"command": "b"}}}'
    file = write(tmp_path, CLAUDE, mine)
    change = installing(CLAUDE, tmp_path, COMMAND)
    assert change.does is Does.CHANGE
    assert "says something else" in change.notes[0]
    change.make()
    assert json.loads(file.read_text())["mcpServers"]["remit"]["command"] == "remit"
    file.write_text(file.read_text().replace('"b"', '"c"'))
    assert undo(tmp_path, CLAUDE) is Does.REMOVE
    assert json.loads(file.read_text()) == {"mcpServers": {"remit": {"command": "mine"}, "c": {"command": "c"}}}


def test_what_was_changed_since_stays_when_the_entry_goes(tmp_path: Path) -> None:
    file = write(tmp_path, OPENCODE, COMMENTED)
    install(tmp_path, OPENCODE)
    file.write_text(file.read_text().replace("// which model", "// which model, and why"))
    change = undoing(OPENCODE, tmp_path)
    assert change.does is Does.REMOVE
    assert "opencode.json.remit-backup" in change.notes[0]
    change.make()
    assert file.read_text() == COMMENTED.replace("// which model", "// which model, and why")
    file = write(tmp_path, CODEX, TOML)
    install(tmp_path, CODEX)
    file.write_text(file.read_text() + '\n# later\n[tui]\ntheme = "x"\n')
    assert undo(tmp_path, CODEX) is Does.REMOVE
    assert file.read_text() == TOML + '\n# later\n[tui]\ntheme = "x"\n'


def test_a_file_made_here_that_somebody_else_uses_now_stays(tmp_path: Path) -> None:
    install(tmp_path, CLAUDE)
    file = tmp_path / ".mcp.json"
    file.write_text(file.read_text().replace('"remit": {', '"other": {"command": "x"},\n    "remit": {'))
    assert undo(tmp_path, CLAUDE) is Does.REMOVE
    assert json.loads(file.read_text()) == {"mcpServers": {"other": {"command": "x"}}}


REFUSED = [
    (CLAUDE, "[]", "must be an object"),
    (CLAUDE, '{"mcpServers": 3}', "mcpServers must be an object"),
    (CLAUDE, '{\n"a": 1,\n}', "line 3"),
    (CLAUDE, '{"a": 1} // comment', "line 1"),
    (OPENCODE, '{\n"a": tru\n}', "line 2"),
    (OPENCODE, '{"a": "b\n"}', "line 1"),
    (OPENCODE, "[" * 5000, "nested too deeply"),
    (CODEX, 'a = 1\nb = "', "line 2"),
    (CODEX, 'mcp_servers = {x = {command = "x"}}', "without touching the rest"),
    (CODEX, "mcp_servers = 3", "mcp_servers must be a table"),
    (CODEX, "a = " + "[" * 5000, "nested too deeply"),
]


@pytest.mark.parametrize(("tool", "text", "said"), REFUSED, ids=[f"{tool.name}: {said}" for tool, _, said in REFUSED])
def test_what_cannot_be_changed_safely_is_left_alone(tmp_path: Path, tool: Tool, text: str, said: str) -> None:
    file = write(tmp_path, tool, text)
    with pytest.raises(Misused, match=said):
        installing(tool, tmp_path, COMMAND)
    assert file.read_text() == text


def test_a_link_out_of_the_project_and_a_file_changed_meanwhile_are_left_alone(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (tmp_path / "elsewhere.json").write_text("{}")
    (root / ".mcp.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(Misused, match="leads out of the project"):
        installing(CLAUDE, root, COMMAND)
    (root / ".mcp.json").unlink()
    change = installing(CLAUDE, root, COMMAND)
    (root / ".mcp.json").write_text('{"now": 1}')
    with pytest.raises(Unavailable, match="changed meanwhile"):
        change.make()
    assert (root / ".mcp.json").read_text() == '{"now": 1}'


def test_a_pipe_or_a_folder_in_the_place_of_the_file_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "opencode.json").mkdir()
    os.mkfifo(tmp_path / ".mcp.json")
    for tool in (CLAUDE, OPENCODE):
        with pytest.raises(Misused, match="is not a file"):
            installing(tool, tmp_path, COMMAND)


def test_a_file_made_through_a_link_is_removed_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").symlink_to("shared.json")
    assert install(tmp_path, CLAUDE) is Does.MAKE
    assert (tmp_path / "shared.json").exists()
    assert undo(tmp_path, CLAUDE) is Does.DELETE
    assert (tmp_path / ".mcp.json").is_symlink()
    assert not (tmp_path / "shared.json").exists()


def test_a_backup_of_an_earlier_file_keeps_no_file_of_ours_alive(tmp_path: Path) -> None:
    for tool in TOOLS.values():
        file = write(tmp_path, tool, TOML if tool is CODEX else '{"a": 1}')
        assert install(tmp_path, tool) is Does.ADD
        file.unlink()
        assert install(tmp_path, tool) is Does.MAKE
        assert undo(tmp_path, tool) is Does.DELETE
        assert not file.exists()


def test_a_byte_order_mark_is_borne_and_stays(tmp_path: Path) -> None:
    """Interop: editors of some systems write one, and the tools read it."""
    for tool, text in ((CLAUDE, '{"a": 1}'), (OPENCODE, "{}\r\n"), (CODEX, 'model = "x"\r\n')):
        file = write(tmp_path, tool, "\ufeff" + text)
        assert install(tmp_path, tool) is Does.ADD
        assert file.read_bytes().startswith(b"\xef\xbb\xbf")
        assert undo(tmp_path, tool) is Does.RESTORE
        assert file.read_bytes() == ("\ufeff" + text).encode()


# ---- for any document

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=5) | st.sampled_from(["remit", "mcp", "mcpServers"])
values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
servers = st.dictionaries(names, st.dictionaries(names, values, max_size=2), max_size=2)
objects = st.dictionaries(names, values, max_size=4).flatmap(
    lambda base: st.builds(lambda found: {**base, **found}, st.fixed_dictionaries({}, optional={"mcpServers": servers, "mcp": servers}))
)
json_texts = st.builds(
    lambda value, indent, end: json.dumps(value, indent=indent, ensure_ascii=False).replace("\n", end),
    objects,
    st.sampled_from([None, 0, 2, "\t"]),
    st.sampled_from(["\n", "\r\n"]),
)
toml_values = st.integers() | st.booleans() | st.floats() | names.map(lambda text: text)


def toml_text(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value).replace("\x7f", "\\u007f")


toml_texts = st.builds(
    lambda first, tables, end: end.join(
        [
            *(f"{json.dumps(key)} = {toml_text(value)} # c" for key, value in first.items()),
            *(
                line
                for name, table in tables.items()
                for line in (
                    "",
                    f"# about {name!r}",
                    f"[{name}]",
                    *(f"{json.dumps(key)} = {toml_text(value)}" for key, value in table.items()),
                )
            ),
        ]
    ),
    st.dictionaries(st.from_regex(r"[a-z]{1,3}x", fullmatch=True), toml_values, max_size=3),
    st.dictionaries(
        st.sampled_from(["a", "mcp_servers.b", "mcp_servers.remit", "mcp_servers.remit.env", "z.y"]),
        st.dictionaries(st.sampled_from(["k", "l"]), toml_values, max_size=2),
        max_size=4,
    ),
    st.sampled_from(["\n", "\r\n"]),
)
documents = st.one_of(
    json_texts.map(lambda text: (CLAUDE, text)), json_texts.map(lambda text: (OPENCODE, text)), toml_texts.map(lambda text: (CODEX, text))
)


@settings(deadline=None)
@given(document=documents)
def test_install_and_undo_give_back_the_same_bytes_for_any_document(
    tmp_path_factory: pytest.TempPathFactory, document: tuple[Tool, str]
) -> None:
    tool, text = document
    root = tmp_path_factory.mktemp("any")
    file = write(root, tool, text)
    try:
        install(root, tool)
    except Misused:
        assert file.read_bytes() == text.encode()
        return
    assert tool.format.entry(file.read_bytes().decode(), tool.path) == tool.entry(COMMAND)
    assert install(root, tool) is Does.NOTHING
    undo(root, tool)
    assert file.read_bytes() == text.encode()


@settings(deadline=None)
@given(document=documents)
def test_taking_out_what_was_put_in_leaves_every_other_value(document: tuple[Tool, str]) -> None:
    tool, text = document
    try:
        before = tool.format.take_out(text, tool.path)
        put = tool.format.put(before, tool.path, tool.entry(COMMAND))
    except Broken:
        return
    after = tool.format.take_out(put, tool.path)
    load = json.loads if isinstance(tool.format, Json) else tomllib.loads
    first, second = (load(one) for one in (before, after))
    for one in (first, second):
        if one.get(tool.path[0]) == {}:
            del one[tool.path[0]]
    assert repr(first) == repr(second)
