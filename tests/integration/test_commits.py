"""Commits of the board in real repositories: only the named paths, with the user's identity; a failure is never fatal."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from remit.board.commits import CommitResult, commit
from support.processes import is_alive
from support.repository import all_committed, begin, git

SESSION = "sess_1770000000_abc123"


def put(root: Path, path: str, text: str = "text\n") -> str:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)
    return path


def hook(repository: Path, name: str, script: str) -> None:
    path = repository / ".git" / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{textwrap.dedent(script)}")
    path.chmod(0o755)


def in_head(root: Path, reference: str = "HEAD") -> list[str]:
    """The paths that a commit changed."""
    return sorted(one for one in git(root, "show", "--format=", "--name-only", "--no-renames", "-z", reference).split("\0") if one)


def status(root: Path) -> list[str]:
    return sorted(one for one in git(root, "status", "--porcelain=v1", "--no-renames", "-z", "-uall").split("\0") if one)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit and without the configuration of this machine."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    root = tmp_path / "project"
    put(root, "README.md")
    all_committed(root)
    return root


def test_commit_has_the_users_name_and_the_session(repository: Path) -> None:
    commit(repository, [put(repository, "a.md")], "task 7: complete research", session_id=SESSION)
    assert git(repository, "log", "-1", "--format=%an <%ae>|%s|%(trailers:key=Session,valueonly)").strip() == (
        f"Ada <ada@example.com>|task 7: complete research|{SESSION}"
    )


def test_nothing_to_commit_is_not_an_error(repository: Path) -> None:
    assert commit(repository, [], "task 1: x") == CommitResult()
    put(repository, "README.md", "staged\n")
    git(repository, "add", "README.md")
    put(repository, "README.md", "text\n")
    assert commit(repository, ["README.md"], "task 1: x") == CommitResult()
    assert status(repository) == ["MM README.md"]
    put(repository, ".gitattributes", "* text=auto\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "attributes")
    (repository / "README.md").write_bytes(b"text\r\n")
    assert commit(repository, ["README.md"], "task 1: x") == CommitResult(), "equal after git's filters"


def test_commits_are_off_without_git_or_a_checkout(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = tmp_path / "outside"
    path = put(outside, "a.md")
    assert commit(outside, [path], "task 1: x") == CommitResult()
    git(tmp_path, "init", "-q", "--bare", "bare")
    assert commit(tmp_path / "bare", ["HEAD"], "task 1: x") == CommitResult()
    put(repository, ".gitignore", "/hidden/\n")
    assert commit(repository / "hidden", [put(repository / "hidden", "a.md")], "task 1: x") == CommitResult()
    monkeypatch.setenv("PATH", str(outside))
    assert commit(repository, ["README.md"], "task 1: x") == CommitResult()


@pytest.mark.parametrize("where", ["remit.toml", "pyproject.toml", "environment"])
def test_commits_can_be_switched_off(repository: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    if where == "environment":
        monkeypatch.setenv("REMIT_BOARD_COMMITS", "false")
    else:
        put(repository, where, f"{'[tool.remit]' if where == 'pyproject.toml' else ''}\nboard_commits = false\n")
    assert commit(repository, [put(repository, "a.md")], "task 1: x") == CommitResult()


def test_repository_without_a_commit_and_detached_head(tmp_path: Path, repository: Path) -> None:
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    begin(fresh)
    put(fresh, "staged.md")
    git(fresh, "add", "staged.md")
    assert commit(fresh, [put(fresh, "specs/a.md")], "task 1: first").hash
    assert (in_head(fresh), status(fresh)) == (["specs/a.md"], ["A  staged.md"])

    git(repository, "checkout", "-q", "--detach")
    assert commit(repository, [put(repository, "b.md")], "task 1: x").hash == git(repository, "rev-parse", "HEAD").strip()


def test_paths_outside_or_of_git_or_remit_are_refused(repository: Path) -> None:
    put(repository.parent, "outside.md")
    (repository / "way-out").symlink_to(repository.parent)
    paths = ["../outside.md", "way-out/outside.md", ".git/config", put(repository, ".remit/db"), "/etc/passwd", ".", "nul\0"]
    done = commit(repository, [*paths, put(repository, ".remit/agents/helper.md")], "task 1: x")
    assert in_head(repository) == [".remit/agents/helper.md"]
    assert done.warning.count("outside the project") == 3
    assert done.warning.endswith(" and 2 more.")
    assert ".git/config (git's own), .remit/db (remit's own, of this machine)" in done.warning


def test_failing_hook_is_a_warning_and_leaves_the_index_unchanged(repository: Path) -> None:
    hook(repository, "pre-commit", "echo 'line too long in a.md' >&2; exit 1")
    put(repository, "staged.md")
    git(repository, "add", "staged.md")
    before = git(repository, "ls-files", "-s")

    done = commit(repository, [put(repository, "a.md"), "README.md", put(repository, "d/b.md")], "task 1: x")

    assert done.warning.startswith("GIT_COMMIT_FAILED: line too long in a.md.")
    assert not done.hash
    assert git(repository, "ls-files", "-s") == before
    assert status(repository) == ["?? a.md", "?? d/b.md", "A  staged.md"]


def test_hanging_hook_is_stopped_with_its_children(repository: Path) -> None:
    pids = repository.parent / "pids"
    hook(
        repository,
        "pre-commit",
        f"trap '' TERM; setsid sleep 300 & echo $! >> {pids}; sleep 300 & echo $! >> {pids}; echo $$ >> {pids}; wait",
    )
    done = commit(repository, [put(repository, "a.md")], "task 1: x", seconds=1.5)
    assert "GIT_COMMIT_FAILED: git commit did not end" in done.warning
    assert not any(is_alive(int(pid), None) for pid in pids.read_text().split())
    assert not (repository / ".git/index.lock").exists()
    assert status(repository) == ["?? a.md"]


def test_reformatting_hook_is_committed_and_in_the_index(repository: Path) -> None:
    hook(
        repository,
        "pre-commit",
        "for f in $(git diff --cached --name-only); do echo formatted >> $f; done; echo log > made.txt; git add -u; git add made.txt",
    )
    put(repository, "staged.md")
    git(repository, "add", "staged.md")
    put(repository, "README.md", "changed\n")
    commit(repository, [put(repository, "a.md"), "README.md"], "task 1: x")
    assert git(repository, "show", "HEAD:a.md") == "text\nformatted\n"
    assert in_head(repository) == ["README.md", "a.md", "made.txt"]
    assert status(repository) == ["A  staged.md"]


@pytest.mark.parametrize("what", ["merge", "rebase"])
def test_unfinished_merge_or_rebase_is_left_alone(repository: Path, what: str) -> None:
    git(repository, "checkout", "-qb", "other")
    put(repository, "README.md", "other\n")
    git(repository, "commit", "-qam", "other")
    git(repository, "checkout", "-q", "main")
    put(repository, "README.md", "ours\n")
    git(repository, "commit", "-qam", "ours")
    subprocess.run(["git", what, "other"], cwd=repository, capture_output=True, check=False)
    before = (git(repository, "rev-parse", "HEAD"), (repository / ".git/index").read_bytes())
    done = commit(repository, [put(repository, "a.md")], "task 1: x")
    assert f"a {what} is in progress" in done.warning
    assert (git(repository, "rev-parse", "HEAD"), (repository / ".git/index").read_bytes()) == before


def test_locked_index_is_waited_for_and_reported(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = repository / ".git/index.lock"
    lock.touch()
    monkeypatch.setattr("remit.board.commits.INDEX_SECONDS", 0.2)
    done = commit(repository, [put(repository, "a.md")], "task 1: x")
    assert "index.lock is held" in done.warning
    assert "remove it" in done.warning
    removing = subprocess.Popen(["sh", "-c", f"sleep 0.3; rm {lock}"])
    monkeypatch.setattr("remit.board.commits.INDEX_SECONDS", 10.0)
    assert commit(repository, ["a.md"], "task 1: x").hash
    assert removing.wait(60) == 0


def test_unresolved_conflict_is_never_committed(repository: Path) -> None:
    put(repository, "README.md", "stashed\n")
    git(repository, "stash", "-q")
    put(repository, "README.md", "other\n")
    git(repository, "commit", "-qam", "other")
    subprocess.run(["git", "stash", "pop"], cwd=repository, capture_output=True, check=False)
    done = commit(repository, [put(repository, "a.md"), "README.md"], "task 1: x")
    assert done.warning == "Not committed: README.md (has a conflict that is not resolved)."
    assert (in_head(repository), status(repository)) == (["a.md"], ["UU README.md"])


def test_concurrent_processes_commit_exactly_their_own_files(repository: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from remit.board.commits import commit\n"
        "number = sys.argv[1]\n"
        "for turn in range(6):\n"
        "    paths = [f'specs/{number}/{turn}-{part}.md' for part in range(2)]\n"
        "    for path in paths: Path(path).parent.mkdir(parents=True, exist_ok=True); Path(path).write_text(number)\n"
        "    done = commit(Path('.'), paths, f'task {number}: turn {turn}')\n"
        "    assert done.hash and not done.warning, done\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", script, number], cwd=repository) for number in "12"]
    assert [process.wait(60) for process in running] == [0, 0]
    commits = git(repository, "log", "-12", "--format=%H %s").splitlines()
    for line in commits:
        revision, _, number, _, turn = line.replace(":", "").split()
        assert in_head(repository, revision) == [f"specs/{number}/{turn}-{part}.md" for part in range(2)]
    assert status(repository) == []
