"""`remit board import`: an existing pair of `TODO.md` and `state.json` made into a board of ours without losing a line.

Read patiently (`words`, `old_state`, `old_todo`), paired (`pairing`), settled by one rule (`settling`), written once (`running`). The rule:
where both files say something and differ, state.json counts; of two statuses the one further along. What does not count is kept in the
task's entry under `imported`.
"""

from remit.board.importing.running import Imported, import_board
from remit.board.importing.settling import Drift

__all__ = ["Drift", "Imported", "import_board"]
