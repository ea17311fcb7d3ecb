"""The project of the documented commands: a small shop in git, with fake coding agents."""

import subprocess
import sys
from pathlib import Path

from remit import Board, Task
from remit import TaskStatus as Status

FILES = {
    "README.md": "# Shop\n\nA deadline is checked by `check`. A process is killed with its descendants at the deadline.\n",
    "ARCHITECTURE.md": "# Architecture\n\nThe parser reads, the shop sells.\n",
    "ages.py": 'def age(text):\n    """Years, as a number."""\n    return int(text)\n',
    "src/app.py": "def check(deadline):\n    return deadline > 0\n",
    "src/parser/dates.py": "def is_leap(year):\n    return year % 4 == 0  # TODO: centuries\n",
    "docs/settings.md": "# Settings\n\n`max_depth` is 5 by default. remit makes sure that no orphan process is left.\n",
    "handbook/start.md": "# Start\n\nBegin here.\n",
    "notes/one.txt": "one\n",
    "notes/two.txt": "two\n",
    "a.txt": "the one\nthe other\nnone\n",
    "b.txt": "\n",
    "letter.txt": "Dear reader, all is well.\n",
    "names.txt": "Bo\nAnn\nBo\n",
    "script.py": "print(6 * 7)\n",
    "test_shop.py": "def test_shop():\n    pass\n",
}
AGENTS = """
from remit import Context, agent

AGES = {
    1: ("test_ages.py", "import ages\\n\\nassert ages.age('?') is None\\n"),
    2: ("ages.py", "def age(text):\\n    return int(text) if text.isdigit() else None\\n"),
    3: ("README.md", "# Ages\\n\\nAn age that is no number is None.\\n"),
}


@agent("implementer")
async def implementer(ctx: Context, task: str, phase: int = 1, **more: object) -> dict[str, object]:
    path, text = AGES[phase if "Test for None" in task else 2] if "ages" in task else (f"part-{ctx.session_id}.txt", "done\\n")
    (ctx.workspace / path).write_text(text)
    return {"status": "completed", "summary": f"Wrote {path}. It is short.", "artifacts": [{"type": "implementation", "path": path}]}
"""
PLAN = "# Plan\n\n### Phase 1: Write it [NOT STARTED]\n- **Goal**: it is written\n"
CODER = '''#!{python} -IS
"""Answers as claude, codex or opencode does, and writes one file."""
import json, os, sys

name = os.path.basename(sys.argv[0])
if "--version" in sys.argv:
    sys.exit(print("2.1.0"))
prompt = sys.argv[-1] if name == "opencode" else sys.stdin.read()
with open(f"by_{{name}}.txt", "w") as file:
    file.write("done\\n")
session = os.environ["REMIT_SESSION"]
done = {{"status": "completed", "summary": "It is done. Nothing is left.", "artifacts": [], "errors": []}}
text = json.dumps({{**done, "metadata": {{"session_id": session}}}})
if name == "claude":
    lines = [{{"type": "system", "subtype": "init", "session_id": "c-1"}}]
    lines.append({{"type": "result", "is_error": False, "result": text, "session_id": "c-1", "total_cost_usd": 0.01}})
elif name == "codex":
    lines = [{{"type": "thread.started", "thread_id": "c-1"}}]
    lines.append({{"type": "item.completed", "item": {{"type": "agent_message", "text": text}}}})
    lines.append({{"type": "turn.completed", "usage": {{"input_tokens": 10, "output_tokens": 5}}}})
else:
    lines = [{{"type": "text", "sessionID": "c-1", "part": {{"type": "text", "text": text}}}}]
for line in lines:
    print(json.dumps(line), flush=True)
'''


def make_project(folder: Path) -> Path:
    """Folders: `shop` is the project, `bin` is on the path, `home` is the home."""
    shop = folder / "shop"
    for name, text in FILES.items():
        path = shop / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    agents = folder / "shop" / ".remit" / "agents"
    agents.mkdir(parents=True)
    (agents / "implementer.py").write_text(AGENTS)
    (folder / "bin").mkdir()
    for name in ("claude", "codex", "opencode"):
        program = folder / "bin" / name
        program.write_text(CODER.format(python=sys.executable))
        program.chmod(0o755)
    (folder / "home").mkdir()
    (folder / "home" / ".gitconfig").write_text("[user]\nname = Ann\nemail = ann@example.org\n[init]\ndefaultBranch = main\n")
    for message in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "commit", "-qm", "Begin"],
    ):
        subprocess.run(["git", *message], cwd=shop, check=True)
    _make_board(folder / "home" / "board")
    return folder


def _make_board(folder: Path) -> None:
    """Planned tasks of one phase each, with an acceptance command."""
    folder.mkdir()
    with Board(folder).change(make=True) as draft:
        for number in (3, 5, 6, 7, 8, 9, 11, 12):
            plan = f"specs/{number:03}_part/plans/implementation-001.md"
            draft.write(plan, PLAN)
            task = Task(
                number=number,
                title=f"Part {number}",
                slug="part",
                status=Status.PLANNED,
                created=draft.at,
                plan_path=plan,
                accept=("true",),
            )
            draft.state = draft.state.with_task(task)
