"""Python interpreters and other child processes: how they are started, and their environment variables.

`-I` keeps the working directory, `PYTHON*` variables and the user's site directory off `sys.path`: a project may contain a `json.py`. A
provider's key in the environment is only for the part that needs it."""

import os
import sys
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

_SOURCES = str(Path(__file__).parents[2])
"""The directory that contains the package, for installations that `-I` does not find (`PYTHONPATH`)."""
_RUN = "import sys; sys.path.append(sys.argv.pop(1)); import runpy; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"


def module_command(module: str, *arguments: str) -> list[str]:
    """Command that runs a module as a program. It finds only remit and the installed packages."""
    return [sys.executable, "-I", "-c", _RUN, _SOURCES, module, *arguments]


def remit_command() -> list[str]:
    """Command that starts this installation of remit: its console script, or else the interpreter."""
    script = Path(sys.executable).parent / "remit"
    return [str(script)] if os.access(script, os.X_OK) else module_command("remit")


def agent_path() -> list[str]:
    """`sys.path` for processes that run agent code: that of this process without the working directory."""
    return [entry for entry in sys.path if entry]


BASIC = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "COLORTERM", "NO_COLOR",
    "TMPDIR", "TMP", "TEMP", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "VIRTUAL_ENV",
)  # fmt: skip
"""Variables that programs need for files and language. None contains a secret."""
TOOLCHAINS = (
    "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONUTF8", "PYTHONWARNINGS",
    "PYENV_ROOT", "CONDA_PREFIX", "UV_CACHE_DIR", "NVM_DIR", "NODE_PATH", "CARGO_HOME", "RUSTUP_HOME", "GOPATH", "GOROOT", "GOCACHE",
    "JAVA_HOME", "CC", "CXX", "MAKEFLAGS", "CI", "LD_LIBRARY_PATH", "LOCALE_ARCHIVE",
    "VOLTA_HOME", "FNM_DIR", "ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR", "RBENV_ROOT", "PNPM_HOME",
)  # fmt: skip
"""Variables for compilers, interpreters and test runners."""
NETWORK = (
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
    "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE",
)  # fmt: skip
"""Variables for network access. A proxy URL may contain a password."""
DESKTOP = ("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK", "SSH_AGENT_PID")
"""Variables for programs that ask the user: windows, keyrings, agents of ssh and GnuPG."""
OWN = "REMIT_"


def listed_environment(patterns: Iterable[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables with these names or patterns (`LC_*`). Never remit's own: a child gets its own."""
    names = tuple(patterns)
    known = {name for name in names if not any(sign in name for sign in "*?[")}
    shapes = [name for name in names if name not in known]
    ours = {name: value for name, value in environ.items() if not name.startswith(OWN)}
    return {name: value for name, value in ours.items() if name in known or any(fnmatchcase(name, shape) for shape in shapes)}


def without_relative_entries(environ: Mapping[str, str]) -> dict[str, str]:
    """For a program started in an agent's folder: empty and relative entries of these lists would be looked up there."""
    lists = {name: environ[name].split(os.pathsep) for name in ("PATH", "LD_LIBRARY_PATH") if name in environ}
    return {**environ, **{name: os.pathsep.join(entry for entry in entries if os.path.isabs(entry)) for name, entries in lists.items()}}


def drop_unlisted(patterns: Iterable[str]) -> None:
    """Remove unlisted variables from this process's environment, except remit's own. For a process that serves one purpose."""
    kept = listed_environment(patterns)
    for name in [name for name in os.environ if name not in kept and not name.startswith(OWN)]:
        del os.environ[name]


MCP_SERVER_NAME = "remit"


def mcp_server_command() -> list[str]:
    """The MCP server of this installation: the `remit` on PATH may be another."""
    return [*remit_command(), "mcp"]
