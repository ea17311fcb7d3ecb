"""Support for tests of reviews: files, a change to them, and its review without a delegation."""

import subprocess
import time
from pathlib import Path

from remit.builtin.coder.review.change import Change, ChangedFile, ChangeSource, Files
from remit.builtin.coder.review.checks import Checks, SecretMask
from remit.builtin.coder.review.report import Review


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())


def diff_of(folder: Path, before: dict[str, str], after: dict[str, str]) -> str:
    """The change as git writes it. The folder is left as it was."""
    if not (folder / ".git").exists():
        git(folder, "init", "-q")
    write(folder, before)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "before")
    write(folder, after)
    for name in before.keys() - after.keys():
        (folder / name).unlink()
    git(folder, "add", "-A")
    text = git(folder, "diff", "--cached", "-M")
    git(folder, "reset", "-q")
    for name in after.keys() - before.keys():
        (folder / name).unlink()
    write(folder, before)
    return text


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main", "-c", "core.autocrlf=false")
    return subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True).stdout.decode()


def source(folder: Path) -> ChangeSource:
    return ChangeSource(Files(folder, lambda paths: paths), time.monotonic() + 60)


def parse_changes(folder: Path, diff: str) -> list[ChangedFile]:
    return list(source(folder).from_text(diff, "a diff").files)


def run_review(change: Change) -> Review:
    stop_at = time.monotonic() + 60
    return Checks(change=change, masking=SecretMask(), stop_at=stop_at, is_late=lambda: False).run((), lambda name, fraction: None)


def new_file(name: str, text: str) -> str:
    lines = text.splitlines()
    head = f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n@@ -0,0 +1,{len(lines)} @@\n"
    return head + "".join(f"+{line}\n" for line in lines)


def review_files(folder: Path, files: dict[str, str]) -> dict[str, dict[str, str]]:
    """Rule and severity of the findings in each of these files, added by one change."""
    found: dict[str, dict[str, str]] = {name: {} for name in files}
    for finding in reversed(run_review(source(folder).from_text("".join(map(new_file, files, files.values())), "a diff")).findings):
        found.setdefault(finding.file, {})[finding.rule] = str(finding.severity)
    return found
