"""`remit` and `python -m remit`. Who changes their mind while it is still being loaded sees no traceback."""

import sys


def console() -> None:
    try:
        from remit.cli.main import console as loaded
    except KeyboardInterrupt:
        sys.exit(130)  # `Exit.INTERRUPTED`, which is not loaded yet
    loaded()


if __name__ == "__main__":
    console()
