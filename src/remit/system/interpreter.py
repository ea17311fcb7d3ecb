"""Fresh Python interpreters and other child processes: how they are started, and which environment variables they get.

`-I` keeps the working directory, `PYTHON*` variables and the user's site directory off `sys.path`: a project may contain a `json.py`.
A provider's key in our environment is for the one part that needs it."""

import os
import sys
from collections.abc import Iterable
from fnmatch import fnmatchcase
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


BASIC = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "COLORTERM", "NO_COLOR",
    "TMPDIR", "TMP", "TEMP", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "VIRTUAL_ENV",
)  # fmt: skip
"""What programs need to find their files and speak the user's language. None of them contains a secret."""
TOOLCHAINS = (
    "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONUTF8", "PYTHONWARNINGS",
    "PYENV_ROOT", "CONDA_PREFIX", "UV_CACHE_DIR", "NVM_DIR", "NODE_PATH", "CARGO_HOME", "RUSTUP_HOME", "GOPATH", "GOROOT", "GOCACHE",
    "JAVA_HOME", "CC", "CXX", "MAKEFLAGS", "CI",
)  # fmt: skip
"""What compilers, interpreters and test runners need to find their parts."""
OWN = "REMIT_"


def listed_environment(patterns: Iterable[str]) -> dict[str, str]:
    """The variables of these names, or that match these patterns (`LC_*`). Never one of remit's: a child gets its own."""
    names = tuple(patterns)
    known = {name for name in names if not any(sign in name for sign in "*?[")}
    shapes = [name for name in names if name not in known]
    ours = {name: value for name, value in os.environ.items() if not name.startswith(OWN)}
    return {name: value for name, value in ours.items() if name in known or any(fnmatchcase(name, shape) for shape in shapes)}
