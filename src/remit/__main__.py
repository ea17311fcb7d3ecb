"""`python -m remit`: the same as the console script."""

from remit.cli.main import console

if __name__ == "__main__":
    console()
