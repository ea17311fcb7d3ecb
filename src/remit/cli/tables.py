"""Tables as this command line draws them: no frames, so that lines can be read, copied and searched."""

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text


def table(*columns: str, folding: str | Sequence[str] = (), shrinking: Sequence[str] = ()) -> Table:
    """Where room is short, `folding` columns take more lines and `shrinking` columns are cut visibly; the others stay whole."""
    made = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
    folded = (folding,) if isinstance(folding, str) else folding
    for name in columns:
        made.add_column(name, overflow="fold" if name in folded else "ellipsis", no_wrap=name not in folded and name not in shrinking)
    return made


def cut(text: str, style: str = "") -> Text:
    """A cell of a shrinking column: one line, whatever room there is."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")
