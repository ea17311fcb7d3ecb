"""Runs inside the sandbox, in the code's process: Python code as `__main__`, in the interpreter that is there already, and its end."""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False  # as in `keeper`
if TYPE_CHECKING:
    from typing import Any


def run_python(job: dict[str, Any]) -> None:
    """The code as `__main__`, in this process, as if the interpreter had been started for it."""
    import _sitebuiltins
    import builtins

    path = f"{job['workspace']}/{job['script']}"
    module = type(sys)("__main__")
    module.__dict__.update(__file__=path, __builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = module
    sys.argv[:] = [path]
    sys.path.insert(0, job["workspace"])
    setattr(builtins, "exit", _sitebuiltins.Quitter("exit", "Ctrl-D (i.e. EOF)"))  # noqa: B010 - what `site` does
    setattr(builtins, "quit", _sitebuiltins.Quitter("quit", "Ctrl-D (i.e. EOF)"))  # noqa: B010 - the same
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    status = 0
    try:
        exec(compile(dict(job["files"])[job["script"]], path, "exec", dont_inherit=True), module.__dict__)
    except SystemExit as leaving:
        status = _status_of(leaving.code)
    except BaseException as error:  # noqa: BLE001 - whatever the code raises is shown as the interpreter would, without our lines
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != path:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        status = 1
    _leave(job["workspace"], status)


def _status_of(code: object) -> int:
    """What `sys.exit(code)` means."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF if -(1 << 63) <= code < 1 << 63 else 0xFF  # as the interpreter does with what is no number to C
    print(code, file=sys.stderr)
    return 1


def _leave(workspace: str, status: int) -> None:
    """As an interpreter ends: threads awaited, `atexit` called, files of the code closed. But the interpreter itself is not taken apart:
    in a fork that takes longer than everything else."""
    import atexit

    threading: Any = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()
    atexit._run_exitfuncs()
    own = [one for one in list(sys.modules.values()) if (getattr(one, "__file__", None) or "").startswith(workspace)]
    for module in own:
        module.__dict__.clear()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # closed by the code, or nobody reads it any more
            continue
    os._exit(status)
