"""What is said where a framework that is used is not installed: the line that installs it. Used by what needs one."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs(extra: str, *packages: str) -> Iterator[None]:
    """Around the imports of an extra. What is missing deeper down, inside of such a package, is its own to say."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in packages:
            raise
        name = (error.name or "").partition(".")[0]
        raise ModuleNotFoundError(f"{name} is not installed: pip install 'remit[{extra}]'", name=error.name) from None
