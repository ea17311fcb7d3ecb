"""Tables as this command line draws them: no frames, so that lines can be read, copied and searched."""

from rich import box
from rich.table import Table


def table(*columns: str, folding: str | None = None) -> Table:
    """Columns with headings; all keep to one line but `folding`, which takes the room that is left."""
    made = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
    for name in columns:
        if name == folding:
            made.add_column(name, overflow="fold", ratio=1)
        else:
            made.add_column(name, overflow="ellipsis", no_wrap=True)
    return made
