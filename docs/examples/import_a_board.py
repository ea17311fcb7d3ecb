"""An old pair of files that differ, made into a board; then a person's edit of the new TODO.md merged."""

import json
from pathlib import Path

from remit import Board, import_board

old = Path(".opencode/specs")
old.mkdir(parents=True)
(old / "TODO.md").write_text(
    "## High Priority Tasks\n\n### 7. Fix the parser\n- **Status**: [COMPLETED]\n- **Owner**: Ann\n\n---\n\n"
    "### 8. Explain it\n- **Status**: [PLANNED]\n\n---\n"
)
(old / "state.json").write_text(
    json.dumps(
        {"active_projects": [{"project_number": "7", "title": "Fix the parser", "status": "implementing", "effort": [3], "sprint": 4}]}
    )
)

board = Board(Path.cwd())
done = import_board(board)
print(done.summary.partition("\n")[0], *done.warnings, sep="\n")
for task in board.look().state.tasks:
    print(task.number, task.title, f"[{task.status.marker}]", *task.lines, dict(task.extra))

board.todo_path.write_text(board.todo_path.read_text().replace("[PLANNED]", "[COMPLETED]") + "\n### Celebrate\n")
print(*board.look().notices, sep="\n")
