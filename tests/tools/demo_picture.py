"""Draw docs/demo.svg: what `remit demo` leaves on a terminal of 100 columns. Run by `make picture`."""

import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[2]
COLUMNS, SECONDS = 100, 60
CURSOR = re.compile(r"\x1b\[\?25[hl]")
CLEARED = re.compile(r"\x1b\[(?:\d*A|2K)")
"""Cursor up and line cleared: what a live tree writes before it is drawn again."""
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Fetched from the web otherwise; any monospaced font will do."""


def recorded(folder: Path) -> str:
    """All that the demo writes to a terminal."""
    reading_end, terminal = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "LINES": "60", "TERM": "xterm-256color"}
    demo = subprocess.Popen([sys.executable, "-m", "remit", "demo"], cwd=folder, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    written = b""
    try:
        while part := os.read(reading_end, 1 << 16):
            written += part
    except OSError:  # Linux says so when the other end is closed
        pass
    demo.wait(SECONDS)
    return written.decode().replace("\r\n", "\n").replace("\r", "")


def last_screen(written: str) -> str:
    """The last drawing of the live tree, which the demo clears at its end, and what it prints after it."""
    *_, tree, summary = [part for part in CLEARED.split(CURSOR.sub("", written)) if part.strip()]
    return tree.rstrip() + "\n\n" + re.split(r"\n\S*Session", summary)[0]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "project"
        shutil.copytree(ROOT / "docs", project / "docs")
        screen = last_screen(recorded(project)).replace(str(project), "project")
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(Text("$ remit demo", style="bold"))
    console.print(Text.from_ansi(screen))
    svg = console.export_svg(title="remit demo", unique_id="remit-demo")
    (ROOT / "docs" / "demo.svg").write_text(FONTS.sub("", svg))


if __name__ == "__main__":
    main()
