"""An old pair of files, drifted apart, made into a board; then a person's edit of the new TODO.md taken over."""

import json
from pathlib import Path

from remit.board.book import Board
from remit.board.importing import import_board

old = Path(".opencode/specs")
old.mkdir(parents=True)
(old / "TODO.md").write_text(
    "## High Priority Tasks\n\n### 7. Mend the parser ✅\n**Effort**: 3h\n**Owner**: Ann\n\n### 8. Explain it\n**Status**: [IN PROGRESS]\n"
)
(old / "state.json").write_text(
    json.dumps({"active_projects": [{"project_number": "7", "title": "Mend the parser", "status": "in_progress", "sprint": 4}]})
)

board = Board(Path.cwd())
done = import_board(board)
for one in done.drifts:
    print(f"task {one.number} {one.field}: state.json {one.state}, TODO.md {one.todo} -> {one.settled}")
for task in board.look().state.tasks:
    print(task.number, task.title, f"[{task.status.marker}]", *task.lines, dict(task.extra))

board.todo_path.write_text(board.todo_path.read_text().replace("[IMPLEMENTING]", "[PLANNED]") + "\n### New: Celebrate\n")
print(*board.look().notices, sep="\n")
