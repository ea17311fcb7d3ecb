"""Importing the library is cheap: what only some projects need is loaded when it is needed."""

import subprocess
import sys

HEAVY = (
    "cedarpy",
    "remit.models",
    "remit.builtin.assistant",
    "remit.core.settings",
    "remit.runtime.validate",
    "remit.policy",
    "typer",
    "rich",
    "mcp",
)


def test_the_library_is_imported_without_what_only_an_open_project_needs() -> None:
    """`python -m bench --only start` measures it."""
    code = "import sys; from remit import Remit, Return, agent; print('\\n'.join(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = ran.stdout.splitlines()
    assert [name for name in loaded if name in HEAVY or name.startswith(tuple(f"{one}." for one in HEAVY))] == []
