"""An independent reader of a board, for tests: state.json, TODO.md, plans, artifacts and git log, read by its own small parsers.

Imports nothing of remit, on purpose: what remit wrote must make sense to somebody who has only the files. `disagreements` says where
they contradict one another.
"""

import json
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SESSION = re.compile(r"sess_\d{8,}_[a-z0-9]{6}")
HEADING = re.compile(r"^### (\d+)\. (.+)$")
FIELD = re.compile(r"^- \*\*(.+?)\*\*: (.+)$")
PHASE = re.compile(r"^### Phase (\d+): (.+) \[([A-Z ]+)\]$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)]+)\)")


@dataclass
class Block:
    """A task as TODO.md shows it."""

    number: int
    title: str
    section: str
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def links(self) -> list[str]:
        return [target for value in self.fields.values() for target in LINK.findall(value)]


def state_of(root: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((root / "specs" / "state.json").read_text())
    return data


def blocks_of(root: Path) -> dict[int, Block]:
    blocks: dict[int, Block] = {}
    section, current = "", None
    for line in (root / "specs" / "TODO.md").read_text().splitlines():
        if line.startswith("## "):
            section, current = line[3:].removesuffix(" Priority").lower(), None
        elif found := HEADING.match(line):
            current = blocks[int(found[1])] = Block(int(found[1]), found[2], section)
        elif current is not None and (said := FIELD.match(line)):
            current.fields[said[1]] = said[2]
    return blocks


def phases_of(root: Path, plan: str) -> list[tuple[int, str, str]]:
    """Number, name and marker of each phase."""
    return [(int(number), name, marker) for number, name, marker in PHASE.findall((root / plan).read_text())]


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True, timeout=30).stdout


def log_of(root: Path) -> list[tuple[str, str]]:
    """Subject and session of each commit, the oldest first."""
    listed = git(root, "log", "--reverse", "--format=%s%x09%(trailers:key=Session,valueonly,separator=%x2C)")
    return [(line.partition("\t")[0], line.partition("\t")[2].strip()) for line in listed.splitlines()]


def disagreements(root: Path) -> list[str]:
    """What state.json, TODO.md, plans, artifacts and git say differently; empty: they agree."""
    state, blocks, log = state_of(root), blocks_of(root), log_of(root)
    tasks = state["active_projects"]
    said = [f"TODO.md shows task {number}, state.json does not" for number in blocks.keys() - {one["project_number"] for one in tasks}]
    tracked = set(git(root, "ls-files").splitlines())
    for task in tasks:
        said += [f"task {task['project_number']}: {words}" for words in _of_task(root, task, blocks, log, tracked)]
    if state["next_project_number"] <= max((one["project_number"] for one in tasks), default=0):
        said.append("the next number is taken")
    dirty = git(root, "status", "--porcelain", "--", "specs").strip()
    return said + ([f"not committed: {dirty}"] if dirty else [])


def _of_task(root: Path, task: dict[str, Any], blocks: dict[int, Block], log: list[tuple[str, str]], tracked: set[str]) -> list[str]:
    number, said = task["project_number"], list[str]()
    block = blocks.get(number)
    if block is None:
        return ["it is not in TODO.md"]
    marker = f"[{task['status'].upper().replace('_', ' ')}]"
    pairs = ((block.title, task["title"]), (block.fields.get("Status"), marker), (block.section, task["priority"]))
    said += [f"TODO.md says {shown!r}, state.json {known!r}" for shown, known in pairs if shown != known]
    for path in [one["path"] for one in task["artifacts"]] + ([task["plan_path"]] if task.get("plan_path") else []):
        if not (root / path).is_file() or not (root / path).stat().st_size:
            said.append(f"{path} is missing or empty")
        if path not in tracked:
            said.append(f"{path} is not in git")
    said += [f"the link {link} leads nowhere" for link in block.links if not (root / "specs" / link).exists()]
    return said + (_of_completed(root, task, log) if task["status"] == "completed" else [])


def _of_completed(root: Path, task: dict[str, Any], log: list[tuple[str, str]]) -> list[str]:
    number = task["project_number"]
    subjects = [subject for subject, _ in log]
    said = [] if subjects.count(f"task {number}: complete implementation") == 1 else ["its completion is not committed once"]
    said += [] if task.get("completion_summary") and task.get("completed") else ["it does not say what was done and when"]
    for phase, name, marker in phases_of(root, task["plan_path"]) if task.get("plan_path") else []:
        if marker != "COMPLETED":
            said.append(f"phase {phase} is {marker}")
        commits = [(subject, session) for subject, session in log if subject.startswith(f"task {number} phase {phase}: ")]
        if len(commits) != 1 or name[:20] not in commits[0][0] or not SESSION.fullmatch(commits[0][1]):
            said.append(f"phase {phase} has the commits {commits}")
    return said
