"""Entry point of `remit` and `python -m remit`."""

import sys


def console() -> None:
    """Run the command line. Ctrl-C during its import prints no traceback."""
    try:
        if sys.argv[1:] == ["--version"]:
            from importlib.metadata import version

            print(f"remit {version('remit')}")
            return
        from remit.cli.main import console as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    console()
