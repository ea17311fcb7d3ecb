"""Parts of the sandbox that are tested without one: output names, visible folders, the bubblewrap command line."""

import os
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.system.sandbox import landlock, recipes
from remit.system.sandbox.bubblewrap import box_profile, enclose
from remit.system.sandbox.recipes import Limits, is_plain


@given(name=st.text(st.characters(), max_size=40) | st.lists(st.sampled_from(["a", "..", ".", "", "b c", "\0", "\n"])).map("/".join))
def test_accepted_name_stays_below_its_folder(name: str) -> None:
    if is_plain(name):
        assert not PurePosixPath(name).is_absolute()
        assert ".." not in name.split("/")
        assert os.path.normpath(f"/box/{name}") == f"/box/{name}"
        assert name.isprintable()


@pytest.mark.parametrize("name", ["", "/a", "../a", "a/../b", "a//b", "a/", "./a", "a\nb", "a\0b", "a\\b", "x" * 256, "\ud800"])
def test_unsafe_names_are_refused(name: str) -> None:
    assert not is_plain(name)


def test_hidden_folder_is_excluded_and_its_siblings_are_readable(tmp_path: Path) -> None:
    for name in ("shown", "inside/project/.remit", "inside/other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "inside" / "project")
    shown = landlock.readable([tmp_path], [tmp_path / "inside" / "project"])
    assert shown == [tmp_path / "inside" / "other", tmp_path / "shown"]
    assert landlock.readable([tmp_path / "inside" / "project"], [tmp_path / "inside" / "project"]) == []
    assert landlock.readable([tmp_path / "shown"], [tmp_path / "inside"]) == [tmp_path / "shown"]


def test_project_inside_a_system_folder_is_hidden() -> None:
    profile = box_profile(Limits(), (Path("/usr/lib"), Path("/srv/app")))
    argv = " ".join(enclose(Path("bwrap"), profile, {}, locks_namespaces=True, has_keeper=True))
    assert "--tmpfs /usr/lib " in argv
    assert "--remount-ro /usr/lib " in argv
    assert "/srv/app" not in argv


def fresh(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """A machine where Node is installed in a home folder."""
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home / 'bin'}:/usr/bin:/bin")
    for name in ("node", "folders"):
        monkeypatch.setattr(recipes, name, getattr(recipes, name).__wrapped__)


def test_home_folder_is_not_shown_because_an_interpreter_is_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    program = tmp_path / "bin" / "node"
    program.write_bytes(b"\x7fELF")
    program.chmod(0o755)
    fresh(monkeypatch, tmp_path)
    shown = [path for path in recipes.folders() if path.is_relative_to(tmp_path)]
    assert shown == [program, tmp_path / "lib"]
