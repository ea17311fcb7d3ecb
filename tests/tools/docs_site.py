"""Hook of mkdocs: pages at the top of the repository become pages of the site, and links to other files are shown as code."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    for name in PAGES:
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, files: Any, **_: Any) -> str:
    """Relative to the page as it is in the repository; the top of the repository is the top of the site."""
    is_top = page.file.src_uri in PAGES
    folder = Path() if is_top else Path("docs", page.file.src_uri).parent

    def linked(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        place = (ROOT / folder / target).resolve()
        if not place.is_relative_to(ROOT):
            return words
        inside = place.relative_to(ROOT).as_posix()
        uri = inside if inside in PAGES else inside.removeprefix("docs/")
        if files.get_file_from_path(uri) is None:
            return words if words.startswith("`") else f"{words} (`{inside}`)"
        here = Path(page.file.src_uri).parent
        up = "/".join([".."] * len(here.parts))
        return f"[{words}]({up + '/' if up else ''}{uri}{anchor})"

    return _LINK.sub(linked, markdown)
