"""Old boards with all the damage that years of several hands do to a TODO.md and a state.json: for tests of `remit board import`.

`damaged_board(seed)` gives the files, and, made independently of any reader, what is in them: each task, and every word that must still be
found somewhere afterwards. Each such word is unique (`kw17`). Uses none of remit's reading or drawing.
"""

import json
import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_MARKERS = {
    "not_started": ("[NOT STARTED]", "[not started]", "[ ]", "TODO", ""),
    "researching": ("[RESEARCHING]", "[RESEARCH IN PROGRESS]"),
    "researched": ("[RESEARCHED]", "researched", "[Research Completed]"),
    "planned": ("[PLANNED]", "[plan completed]"),
    "implementing": ("[IN PROGRESS]", "[IMPLEMENTING]", "[in progress]", "🚧"),
    "partial": ("[PARTIAL]", "[PARTIALLY COMPLETED]"),
    "blocked": ("[BLOCKED]", "[ON HOLD]"),
    "abandoned": ("[ABANDONED]", "[CANCELLED]", "❌"),
    "completed": ("[COMPLETED]", "[x]", "✅", "[X] ✅", "done", "[completed]"),
}
_ENTRY_WORDS = {
    "not_started": ("not_started", "pending", "todo"),
    "researching": ("researching", "research_in_progress"),
    "researched": ("researched", "completed_research"),
    "planned": ("planned", "plan_completed"),
    "implementing": ("implementing", "in_progress"),
    "partial": ("partial", "partially_completed"),
    "blocked": ("blocked", "on_hold"),
    "abandoned": ("abandoned", "cancelled"),
    "completed": ("completed", "done", "COMPLETED"),
}
_ORDER = tuple(_MARKERS)
_VERBS = ("Fix", "Add", "Prove", "Remove", "Explain", "Measure", "Rewrite", "Test")
_THINGS = ("the parser", "a cache", "the lemma", "old flags", "the café page", "startup", "the index", "日本 support")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One task that is in the files."""

    word: str
    """In its title, and in no other."""
    number: int | None
    """The one it goes by there; another may as well."""
    status: str
    """The one further along of those it has, in state.json's spelling; empty: none that can be read."""
    in_todo: bool
    in_state: bool


@dataclass(slots=True)
class DamagedBoard:
    files: dict[str, bytes] = field(default_factory=dict)
    """By path within the folder: TODO.md, state.json, archives."""
    facts: list[Fact] = field(default_factory=list)
    words: set[str] = field(default_factory=set)
    """Each stands in a line or a value that must not be lost."""

    def write(self, folder: Path) -> None:
        for name, data in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def damaged_board(seed: int, tasks: int = 300) -> DamagedBoard:
    return _Maker(seed).board(tasks)


class _Maker:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.made = DamagedBoard()
        self.sections: dict[str, list[str]] = {
            name: [] for name in ("High Priority", "Medium Priority Tasks", "Low Priority", "Completed Tasks")
        }
        self.active: list[Any] = []
        self.completed: list[Any] = []
        self.shelves: list[list[Any]] = [[], []]
        self.count = 0

    def often(self, share: float) -> bool:
        return self.random.random() < share

    def word(self) -> str:
        self.count += 1
        return f"kw{self.count}"

    def board(self, tasks: int) -> DamagedBoard:
        number = 0
        for _ in range(tasks):
            number += 1 if self.often(0.9) else self.random.randint(2, 5)
            self.task(number)
            if self.often(0.03):
                self.task(number, is_second=True)
        self.active += [None, f"not a task {self.word()}", 7] if self.often(0.5) else []
        self.made.files["TODO.md"] = self.todo()
        self.made.files["state.json"] = self.state(number)
        self.made.files["archive/state.json"] = self.shelf(0)
        self.made.files["archive/2024/state.json"] = self.shelf(1)
        self.made.words = set(re.findall("kw[0-9]+", "\n".join(data.decode("latin-1") for data in self.made.files.values())))
        return self.made

    def task(self, number: int, *, is_second: bool = False) -> None:
        """`is_second`: the number has another task already. It is in both files: else nobody could tell the two from one that drifted."""
        title_word = self.word()
        title = f"{self.random.choice(_VERBS)} {self.random.choice(_THINGS)} {title_word}"
        has_number = is_second or not self.often(0.02)
        in_todo, in_state = self.random.choice([(True, True)] * 8 + [(True, False), (False, True)])
        if is_second:
            in_todo, in_state = True, True
        elif not has_number:
            in_todo, in_state = True, False
        status = self.random.choice(_ORDER)
        other = self.random.choice(_ORDER) if self.often(0.25) else status
        found: list[str] = []
        if in_state:
            found += self.entry(number, title, status, is_away=not in_todo and status in ("completed", "abandoned") and self.often(0.7))
        if in_todo:
            found += self.block(number if has_number else None, title, other, is_plain=not in_state)
        further = max(found, key=_ORDER.index) if found else ""
        self.made.facts.append(
            Fact(word=title_word, number=number if has_number else None, status=further, in_todo=in_todo, in_state=in_state)
        )

    # ---- TODO.md

    def block(self, number: int | None, title: str, status: str, *, is_plain: bool) -> list[str]:
        """`is_plain`: known from here alone, so that it has to look like a task."""
        shown: list[str] = [status]
        marker = self.random.choice(_MARKERS[status])
        heading, is_in_heading = (f"### {title}", False) if number is None else self.heading(number, title, marker)
        lines = [heading]
        bullet = self.random.choice(["- ", "", "* ", "-   "])
        if is_in_heading or (self.often(0.05) and not is_plain):
            shown = [status] if is_in_heading else []
        else:
            lines.append(f"{bullet}**Status**: {marker}")
            if not marker:
                shown = []
        if self.often(0.6):
            lines.append(f"{bullet}**Effort**: 3 hours {self.word()}")
        if self.often(0.7):
            lines.append(f"{bullet}**Priority**: {self.random.choice(['High', 'medium', 'LOW', 'Urgent', 'someday ' + self.word()])}")
        lines += self.more_lines(bullet)
        lines += ["", *self.description()]
        text = "\n".join(lines)
        section = self.random.choice(list(self.sections))
        self.sections[section].append(text)
        if self.often(0.02):
            self.sections[section].append(text)  # once more, word for word
        if self.often(0.08):
            self.sections[section].append(f"A note between tasks {self.word()}\n\n* with {self.word()}")
        return shown

    def heading(self, number: int, title: str, marker: str) -> tuple[str, bool]:
        """And whether the status is in it."""
        if self.often(0.1) and marker not in ("", "TODO", "done", "researched"):
            return f"### {number}. {title} {marker}", True
        rare = [f"### Task {number}: {title}", f"### #{number}. {title}", f"### {number:03d}. {title}"]
        return self.random.choice([f"### {number}. {title}"] * 6 + rare), False

    def more_lines(self, bullet: str) -> list[str]:
        choices = [
            f"{bullet}**Language**: python",
            f"{bullet}**Dependencies**: 1, 2",
            f"{bullet}**Dependencies**: after {self.word()}",
            f"{bullet}**Started**: 2025-12-01",
            f"{bullet}**Started**: yesterday {self.word()}",
            f"{bullet}**Completed**: 2025-13-45 {self.word()}",
            f"{bullet}**Blocking Reason**: waits for {self.word()}",
            f"{bullet}**Owner**: Ann {self.word()}",
            f"{bullet}**Files Affected**:\n  - src/{self.word()}.py\n  - tests/x.py",
            f"{bullet}**Research**: [Report](reports/{self.word()}.md) and {self.word()}",
            f"{bullet}**Plan**: [implementation-001.md](007_x/plans/{self.word()}-implementation-001.md)",
            f"loose words {self.word()}",
            f"<!-- a comment {self.word()}\n--- \n-->",
        ]
        return self.random.sample(choices, self.random.randint(0, 4))

    def description(self) -> list[str]:
        words = f"Words {self.word()} about it."
        choices = [
            f"**Description**: {words}",
            f"**Description**: {words}\n\nSecond paragraph {self.word()}.",
            f"**Description**:\n```sh\n---\n### 9. not a task\n{self.word()}\n```\n{words}",
            f"**Description:** {words}\n\n- [ ] step {self.word()}\n- [x] step",
            words,
            f"{words}\n\n#### Detail\n\n| a | b |\n|---|---|\n| {self.word()} | 2 |",
        ]
        return [self.random.choice(choices), "", *(["---", ""] if self.often(0.85) else [])]

    def todo(self) -> bytes:
        parts = [f"# TODO\n\n**Last Updated**: {self.word()}\n\n## Overview\n\n- Total: many {self.word()}\n"]
        for name, blocks in self.sections.items():
            parts.append(f"## {name}\n\n{self.word() if self.often(0.5) else ''}\n")
            parts += [block + "\n" for block in blocks]
        parts.append(f"## Notes\n\nKeep {self.word()}\n\n### Not a task {self.word()}\n\nwords\n")
        text = "\n".join(parts)
        if self.often(0.3):
            text = text.replace("\n", "\r\n")
        data = text.encode()
        if self.often(0.3):
            data = b"\xef\xbb\xbf" + data
        return data + (b"caf\xe9 " + self.word().encode() if self.often(0.5) else b"")

    # ---- state.json

    def entry(self, number: int, title: str, status: str, *, is_away: bool) -> list[str]:
        name = title.lower().replace(" ", "_")
        entry: dict[str, Any] = {
            "project_number": self.random.choice([number, number, number, str(number), float(number)]),
            "project_name": name if name.isascii() else name.encode("ascii", "ignore").decode(),
            "title": title,
            "status": self.random.choice(_ENTRY_WORDS[status]),
            "priority": self.random.choice(["high", "medium", "Low", 3, None, f"whenever {self.word()}"]),
            "language": self.random.choice(["python", None, ["lean", self.word()]]),
            "description": self.random.choice([f"Entry words {self.word()}.", None, "", 42]),
            "effort": self.random.choice(["2 hours", 4, None, {"hours": self.word()}]),
            "dependencies": self.random.choice([[], [1, "2"], "1, 2", None, ["none"], [{"on": self.word()}]]),
            "created": self.random.choice(["2025-11-30", "2025-11-30T10:00:00Z", f"once {self.word()}", 20251130]),
            "started": self.random.choice(["2025-12-01", None, f"soon {self.word()}"]),
            "last_updated": "2025-12-02",
            "artifacts": self.random.choice(
                [[], [f"specs/{number}_x/reports/{self.word()}.md"], {"research": self.word()},
                 [{"type": "plan", "path": f"p/{self.word()}.md"}], [{"kind": self.word()}], f"a/{self.word()}.md"]
            ),
            "plan_path": self.random.choice(["", f"specs/{self.word()}/plan.md", None]),
            "phases": {"done": [1, self.word()]},
            self.word(): "an unknown key",
        }  # fmt: skip
        for key in self.random.sample(list(entry), self.random.randint(0, 4)):
            if key not in ("project_number", "title", "project_name") and not (key.startswith("kw")):
                del entry[key]
        shown = [status] if "status" in entry else []
        if is_away:
            place = self.random.choice([self.completed, *self.shelves])
            place.append(entry)
            return shown or ["completed"]
        self.active.append(entry)
        if self.often(0.03):
            self.active.append({**entry, "note": self.word()})  # the same once more
        return shown

    def state(self, number: int) -> bytes:
        active: Any = self.active
        data = {
            "_schema_version": self.random.choice(["1.0.0", "1.1.0", 1]),
            "_last_updated": self.random.choice(["2025-12-31T00:00:00Z", 5]),
            "next_project_number": self.random.choice([number, str(number + 1), 3, None]),
            "active_projects": active,
            "completed_projects": self.completed,
            "recent_activities": self.random.choice([[{"timestamp": "2025-12-31", "activity": self.word()}], {"last": self.word()}]),
            "repository_health": {"score": self.word()},
            "maintenance_operations": [self.word()],
        }
        return json.dumps(data, indent=2, ensure_ascii=self.often(0.5)).encode()

    def shelf(self, which: int) -> bytes:
        data = {"_schema_version": "1.0.0", "archived_projects": self.shelves[which], "archive_reason": self.word()}
        return json.dumps(data).encode()
