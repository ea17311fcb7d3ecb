"""`remit` and `python -m remit`. Who changes their mind while it is still being loaded sees no traceback."""

import gc
import sys


def console() -> None:
    """What can be answered at once is (see `cli.quick`); only the rest waits for the whole command line to be loaded."""
    gc.disable()  # nothing of what is loaded is garbage
    try:
        from remit.cli.quick import leave, run, steady_streams

        steady_streams()
        code = run(sys.argv[1:])
        if code is not None:
            leave(code)
        from remit.cli.main import console as loaded
    except KeyboardInterrupt:
        sys.exit(130)  # `Exit.INTERRUPTED`, which is not loaded yet
    gc.enable()
    loaded()


if __name__ == "__main__":
    console()
