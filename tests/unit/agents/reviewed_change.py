"""For the tests of reviews: a folder of files, a change to them, and the review of it, without a delegation around it."""

import subprocess
import time
from pathlib import Path

from remit.agents.builtin.coder.review.applying import Applied, apply
from remit.agents.builtin.coder.review.guidelines import read_guidelines
from remit.agents.builtin.coder.review.matter import ChangedFile, Matter
from remit.agents.builtin.coder.review.patch import read_diff
from remit.agents.builtin.coder.review.reviewing import Reviewed, review
from remit.agents.builtin.coder.review.secrets import Masking
from remit.agents.builtin.coder.review.source import find_source
from remit.agents.builtin.coder.review.tree import read_below


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())


def diff_of(folder: Path, before: dict[str, str], after: dict[str, str]) -> str:
    """What git says of the change. The folder is left as it was before."""
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


def applied(folder: Path, diff: str) -> list[Applied]:
    return apply(read_diff(diff), lambda path: read_below(folder, path))


def reviewed(folder: Path, diff: str, guidelines: str | list[str] | None = None) -> Reviewed:
    stop_at = time.monotonic() + 60
    source = find_source(diff, folder, stop_at, lambda path: "")
    matter = Matter(
        files=[ChangedFile(one) for one in apply(read_diff(source.text), source.read)],
        workspace=folder,
        masking=Masking(),
        guidelines=read_guidelines(guidelines, lambda path: read_below(folder, path)),
        stop_at=stop_at,
        is_late=lambda: False,
        in_workspace=source.in_workspace,
    )
    return review(matter, source.what, lambda check, fraction: None)


def added(folder: Path, name: str, text: str, guidelines: str | list[str] | None = None) -> dict[str, str]:
    """Rule and severity of what is found in a new file (one for each rule)."""
    lines = text.splitlines()
    diff = f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n@@ -0,0 +1,{len(lines)} @@\n"
    found = reviewed(folder, diff + "".join(f"+{line}\n" for line in lines), guidelines).findings
    return {finding.rule: str(finding.severity) for finding in reversed(found)}
