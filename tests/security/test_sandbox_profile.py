"""The sandbox shows a workspace at its own path: the workspace and the toolchain are visible, the rest of the home is not."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from remit.system.sandbox import bubblewrap, seccomp
from remit.system.sandbox import probe as probes
from remit.system.sandbox.boxes import shell_box
from remit.system.sandbox.profile import Profile, git_directories, private_home, toolchain
from remit.system.sandbox.run import run_program
from support.repository import begin, git
from support.sandboxes import Limits, node, probe

pytestmark = pytest.mark.skipif(not probe().has_bubblewrap, reason="bubblewrap does not work here")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    (folder / ".ssh" / "id_ed25519").write_text("PRIVATE")
    (folder / "project").mkdir()
    (folder / "other").mkdir()
    (folder / "other" / "secret.txt").write_text("OTHER")
    monkeypatch.setenv("HOME", str(folder))
    return folder


def run(profile: Profile, script: str, exchange: Callable[[], None] = lambda: None) -> subprocess.CompletedProcess[str]:
    offer = probe()
    assert offer.bubblewrap is not None
    file = seccomp.open_program(seccomp.Filter(families=(1, 2, 10, 16), allows_within=True))
    try:
        with bubblewrap.pinned(profile) as pins:
            exchange()
            argv = bubblewrap.enclose(offer.bubblewrap, profile, pins, locks_namespaces=offer.locks_namespaces, filter_fd=file)
            return subprocess.run(
                [*argv, "/bin/sh", "-c", script], capture_output=True, text=True, check=False, timeout=30, pass_fds=(file, *pins.values())
            )
    finally:
        os.close(file)


def shown(workspace: Path) -> tuple[str, ...]:
    return tuple(map(str, (*toolchain(workspace, os.environ), *git_directories(workspace))))


def test_workspace_is_writable_and_the_rest_of_the_home_is_hidden(home: Path) -> None:
    project = home / "project"
    (project / ".remit").mkdir()
    (project / ".remit" / "remit.db").write_text("STATE")
    profile = Profile(workspace=project, home=private_home(project), hidden=(project / ".remit",))
    script = """
        echo made > made.txt; echo x > ~/x.txt; echo y > /tmp/y.txt; ls -A ~ /tmp .remit; pwd
        cat ~/.ssh/id_ed25519 ../other/secret.txt .remit/remit.db; echo z > .remit/z; grep CapEff /proc/self/status
    """
    ran = run(profile, script)
    assert (project / "made.txt").read_text() == "made\n"
    assert ran.stdout.splitlines()[:3] == [".remit:", "", "/tmp:"]
    assert str(project) in ran.stdout.splitlines()
    assert "CapEff:\t0000000000000000" in ran.stdout
    assert not {"PRIVATE", "OTHER", "STATE"} & set(ran.stdout.split())
    assert ran.stderr.count("No such file") == 3
    assert [one.name for one in (project / ".remit").iterdir()] == ["remit.db"]
    assert sorted(one.name for one in home.iterdir()) == [".ssh", "other", "project"]


def test_kernel_settings_are_read_only_even_for_root(home: Path) -> None:
    project = home / "project"
    ran = run(Profile(workspace=project), "for one in kernel/core_pattern kernel/hostname vm/drop_caches; do echo 1 > /proc/sys/$one; done")
    assert ran.stderr.count("cannot create") == 3


def test_symlinks_in_the_workspace_expose_nothing_outside_it(home: Path) -> None:
    """An agent replaces `.venv` and `.git` with symlinks to a directory with keys."""
    project = home / "project"
    (project / ".venv").symlink_to(home / ".ssh")
    (project / ".git").symlink_to(home / ".ssh")
    (project / "venv" / "bin").mkdir(parents=True)
    (project / "venv" / "pyvenv.cfg").write_text(f"home = {home / '.ssh' / 'bin'}\n")
    (project / "venv" / "bin" / "python").symlink_to(home / "other" / "bin" / "python")
    found = shown(project)
    assert str(project / "venv") in found
    assert not [path for path in found if path.startswith((str(home / ".ssh"), str(home / "other")))]
    (project / "fake" / "lib" / "python3.11").mkdir(parents=True)
    (project / "fake" / "lib" / "python3.11" / "os.py").touch()
    (home / "current").symlink_to(project)
    for way in (home / "current", project, Path("/proc/self/cwd")):
        (project / "venv" / "pyvenv.cfg").write_text(f"home = {way}/fake/bin\n")
        assert shown(project) == found
    (project / ".git").unlink()
    (project / ".git").write_text(f"gitdir: {home / '.ssh'}\n")
    assert git_directories(project) == (project / ".git",)
    for folder in (project / "worktrees" / "x", home / "worktrees"):
        folder.mkdir(parents=True)
        (folder / ".git").write_text("gitdir: .\n")
        (folder / "gitdir").write_text(".git\n")
        assert git_directories(folder) == (folder / ".git",)


def test_path_swapped_during_sandbox_setup_exposes_nothing_else(home: Path) -> None:
    """A process in the workspace replaces a virtual environment with a symlink to a directory with keys during setup."""
    project = home / "project"
    (project / ".venv").mkdir()
    (project / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    profile = Profile(workspace=project, read_only=toolchain(project, {}))

    def exchange() -> None:
        (project / ".venv").rename(project / "old")
        (project / ".venv").symlink_to(home / ".ssh")

    assert "PRIVATE" not in run(profile, "cat .venv/* old/* */*", exchange).stdout
    with pytest.raises(OSError, match="leads elsewhere"):
        run(profile, "true")


def test_writable_directory_swapped_during_sandbox_setup_is_the_checked_one(home: Path) -> None:
    """Mounting by name would follow a symlink that briefly replaces the directory."""
    project = home / "project"
    for name in ("lib", "next"):
        (project / name).mkdir()
        (project / name / name).touch()

    def exchange() -> None:
        (project / "lib").rename(project / "moved")
        (project / "next").rename(project / "lib")

    profile = Profile(workspace=project, writable=(project / "lib",))
    assert run(profile, "ls lib; touch lib/written", exchange).stdout.split() == ["lib"]
    assert sorted(os.listdir(project / "moved")) == ["lib", "written"]


async def test_landlock_alone_enforces_the_profile(home: Path) -> None:
    project = home / "project"
    for name in (".venv", "sources"):
        (project / name).mkdir()
    (project / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    offer = replace(probe(), bubblewrap=None)
    if not offer.has_keeper:
        pytest.skip("Landlock is not available")
    profile = Profile(workspace=project, read_only=toolchain(project, {}))
    command = "cat .venv/id_ed25519 sources/id_ed25519; echo evil > sources/authorized_keys; echo $?"
    output = os.open(home / "output", os.O_CREAT | os.O_WRONLY)
    async with shell_box(command, profile, offer, Limits(), {"PATH": os.defpath}) as box:
        for name in (".venv", "sources"):
            (project / name).rename(project / f"old {name}")
            (project / name).symlink_to(home / ".ssh")
        assert (await run_program(box, output=output, seconds=20)).exit_code == 0
    os.close(output)
    said = (home / "output").read_text()
    assert said.count("Permission denied") == 3, said
    assert sorted(os.listdir(home / ".ssh")) == ["id_ed25519"]


@pytest.mark.parametrize("layout", [".pyenv/versions/3.11.7", ".local/share/uv/python/cpython-3.11-linux-x86_64-gnu", "elsewhere/python"])
def test_virtualenv_interpreter_is_visible_at_any_location(home: Path, layout: str) -> None:
    project, prefix = home / "project", home / layout
    (prefix / "bin").mkdir(parents=True)
    shutil.copy(os.path.realpath(sys.executable), prefix / "bin" / "python3.11")
    (prefix / "lib").symlink_to(Path(sys.base_prefix) / "lib")
    alias = prefix.with_name(prefix.name + "-alias")
    alias.symlink_to(prefix)
    (project / ".venv" / "bin").mkdir(parents=True)
    (project / ".venv" / "bin" / "python").symlink_to(alias / "bin" / "python3.11")
    (project / ".venv" / "pyvenv.cfg").write_text(f"home = {alias / 'bin'}\n")
    found = toolchain(project, {"PATH": os.defpath})
    ran = run(Profile(workspace=project, read_only=found), ".venv/bin/python -c 'import sys; print(sys.prefix)'; touch .venv/x")
    assert ran.stdout.strip() == str(project / ".venv"), ran.stderr
    assert "Read-only file system" in ran.stderr
    assert str(home / "other") not in map(str, found)


def test_git_directory_of_a_worktree_is_read_only(home: Path) -> None:
    main, worktree = home / "project", home / "other" / "worktree"
    begin(main)
    git(main, "commit", "-q", "--allow-empty", "-m", "first")
    git(main, "worktree", "add", "-q", str(worktree))
    assert git_directories(worktree) == (worktree / ".git", main / ".git")
    profile = Profile(workspace=worktree, read_only=git_directories(worktree))
    script = f"git log --format=%s; echo x > a.txt; git status --short; echo evil > {main}/.git/hooks/post-checkout; echo evil > .git"
    ran = run(profile, script)
    assert ran.stdout.splitlines() == ["first", "?? a.txt"]
    assert ran.stderr.count("Read-only file system") == 2


def test_private_home_moves_to_tmp_when_the_workspace_contains_the_home(home: Path) -> None:
    assert private_home(home / "project") == home
    assert private_home(home) == Path("/tmp/home")
    assert private_home(home.parent) == Path("/tmp/home")


def test_bubblewrap_and_node_from_a_clone_are_not_started(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bwrap", "node"):
        (home / name).write_text("#!/bin/sh\ntouch started\n")
        (home / name).chmod(0o755)
    monkeypatch.chdir(home)
    monkeypatch.setenv("PATH", f".:{os.defpath}")
    assert all(path.is_absolute() for path in probes.find())
    assert node.__wrapped__() is None
    assert not (home / "started").exists()
