"""Options and arguments that several commands share, declared once so that they read the same everywhere."""

from pathlib import Path
from typing import Annotated

from remit.cli.declaring import argument, option

Root = Annotated[
    Path | None,
    option(
        "--root",
        metavar="DIR",
        help="The project's folder. Default: the nearest one upwards with .remit, remit.toml or .git, else this one.",
        show_default=False,
    ),
]
Json = Annotated[bool, option("--json", help="One JSON document on stdout, nothing else there.")]
Session = Annotated[
    str,
    argument(metavar="SESSION", help="A session id, the beginning or end of one, or `last`.", show_default=False),
]
