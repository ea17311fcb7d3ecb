"""Fresh Python interpreters for modules of remit. Every other module that starts a Python uses this one.

`-I` keeps the working directory, `PYTHON*` variables and the user's site directory off `sys.path`: a project may contain a `json.py`.
"""

import os
import sys
from pathlib import Path

_SOURCES = str(Path(__file__).parents[2])
"""The directory that contains the package, for installations that `-I` does not find (`PYTHONPATH`)."""
_RUN = "import sys; sys.path.append(sys.argv.pop(1)); import runpy; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"


def module_command(module: str, *arguments: str) -> list[str]:
    """Command that runs a module as a program. It finds remit and the installed packages, and nothing else."""
    return [sys.executable, "-I", "-c", _RUN, _SOURCES, module, *arguments]


def remit_command() -> list[str]:
    """Command that starts this installation of remit: its console script, or else the interpreter."""
    script = Path(sys.executable).parent / "remit"
    return [str(script)] if os.access(script, os.X_OK) else module_command("remit")


def agent_path() -> list[str]:
    """`sys.path` for processes that run an agent's code: that of this process without the working directory."""
    return [entry for entry in sys.path if entry]
