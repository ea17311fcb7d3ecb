"""Parts of the sandbox that need no sandbox: names that come out, folders that are shown, the command line of bubblewrap."""

import os
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.core.errors import Misused
from remit.system.sandbox import landlock, recipes
from remit.system.sandbox.bubblewrap import command
from remit.system.sandbox.probe import Offer
from remit.system.sandbox.recipes import Grants, Limits
from remit.system.sandbox.wire import is_plain


@given(name=st.text(st.characters(), max_size=40) | st.lists(st.sampled_from(["a", "..", ".", "", "b c", "\0", "\n"])).map("/".join))
def test_a_name_that_is_taken_stays_below_its_folder(name: str) -> None:
    if is_plain(name):
        assert not PurePosixPath(name).is_absolute()
        assert ".." not in name.split("/")
        assert os.path.normpath(f"/box/{name}") == f"/box/{name}"
        assert name.isprintable()


@pytest.mark.parametrize("name", ["a", "a/b.txt", "ä/ö", ".hidden", "a b"])
def test_ordinary_names_are_taken(name: str) -> None:
    assert is_plain(name)


@pytest.mark.parametrize("name", ["", "/a", "../a", "a/../b", "a//b", "a/", "./a", "a\nb", "a\0b", "a\\b", "x" * 256, "\ud800"])
def test_other_names_are_not(name: str) -> None:
    assert not is_plain(name)


def test_what_is_hidden_is_left_out_and_all_beside_it_shown(tmp_path: Path) -> None:
    for name in ("shown", "inside/project/.remit", "inside/other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "inside" / "project")
    shown = landlock.readable([tmp_path], [tmp_path / "inside" / "project"])
    assert shown == [tmp_path / "inside" / "other", tmp_path / "shown"]
    assert landlock.readable([tmp_path / "inside" / "project"], [tmp_path / "inside" / "project"]) == []
    assert landlock.readable([tmp_path / "shown"], [tmp_path / "inside"]) == [tmp_path / "shown"]


def test_a_project_in_a_folder_of_the_system_is_covered() -> None:
    argv = command(Path("bwrap"), Limits(), Grants(), (Path("/usr/src/app"),), locks_namespaces=True)
    place = argv.index("/usr/src/app")
    assert argv[place - 1 : place + 3] == ["--tmpfs", "/usr/src/app", "--remount-ro", "/usr/src/app"]


def test_the_network_is_shared_only_when_it_is_granted() -> None:
    without = command(Path("bwrap"), Limits(), Grants(), (), locks_namespaces=True)
    granted = command(Path("bwrap"), Limits(), Grants(network=True), (), locks_namespaces=True)
    assert "--unshare-net" in without
    assert "/etc/resolv.conf" not in without
    assert "--unshare-net" not in granted
    assert "/etc/resolv.conf" in granted


def test_every_file_system_that_can_be_written_has_a_size() -> None:
    argv = command(Path("bwrap"), Limits(), Grants(), (), locks_namespaces=True)
    places = [index for index, word in enumerate(argv) if word == "--tmpfs"]
    assert len(places) == 3
    assert all(argv[index - 2] == "--size" for index in places)
    assert argv[-7:] == ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/workspace", "--"]


@pytest.mark.parametrize(
    ("name", "language"), [("py", "python"), ("JS", "javascript"), ("node", "javascript"), ("bash", "shell"), (" sh ", "shell")]
)
def test_languages_have_other_names(name: str, language: str) -> None:
    assert recipes.language_of(name) == language


def test_an_unknown_language_is_told_which_there_are() -> None:
    with pytest.raises(Misused, match="python"):
        recipes.language_of("cobol")


def test_the_stack_in_force_is_named_in_words() -> None:
    assert Offer(bubblewrap=Path("bwrap"), landlock=4, seccomp=True).stack == "bubblewrap + Landlock 4 + seccomp"
    assert Offer(bubblewrap=Path("bwrap"), fault="no", landlock=4, seccomp=True).stack == "Landlock 4 + seccomp"
    assert Offer(bubblewrap=Path("bwrap"), fault="no", landlock=4).stack == "none"
    assert not Offer(landlock=4).is_enough


def fresh(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """As a machine where Node is installed to somebody's home folder."""
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home / 'bin'}:/usr/bin:/bin")
    for name in ("node", "folders"):
        monkeypatch.setattr(recipes, name, getattr(recipes, name).__wrapped__)


def test_a_home_folder_is_not_shown_because_an_interpreter_lies_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    program = tmp_path / "bin" / "node"
    program.write_bytes(b"\x7fELF")
    program.chmod(0o755)
    fresh(monkeypatch, tmp_path)
    shown = [path for path in recipes.folders() if path.is_relative_to(tmp_path)]
    assert shown == [program, tmp_path / "lib"]


def test_a_script_that_chooses_among_nodes_is_asked_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "node"
    script.write_text("#!/bin/sh\necho /bin/sh\n")
    script.chmod(0o755)
    fresh(monkeypatch, tmp_path)
    assert recipes.node() == Path(os.path.realpath("/bin/sh"))
    script.write_text("#!/bin/sh\nexit 1\n")
    assert recipes.node() is None


def test_an_interpreter_below_tmp_is_seen_though_tmp_is_the_sandboxs_own() -> None:
    argv = command(Path("bwrap"), Limits(), Grants(read_only=(Path("/tmp/build/bin"),)), (), locks_namespaces=True)
    covered = len(argv) - 1 - argv[::-1].index("/tmp")
    assert argv[covered + 1 :].count("/tmp/build/bin") == 2
    assert "/tmp/build" in argv[covered + 1 :]
