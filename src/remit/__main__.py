"""`python -m remit`: the same as the console script."""

from remit.cli.main import main

if __name__ == "__main__":
    main()
