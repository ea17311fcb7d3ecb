"""No path leads out of the workspace, for any tree with any links; `os.path.realpath` is the reference."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remit import RemitError
from remit.system.beneath import Root, parts_of
from remit.system.edits import remove_one, remove_tree, replace_file

NAMES = st.sampled_from(["a", "b", "c", "d"])
PARTS = st.lists(st.one_of(NAMES, st.sampled_from(["..", ".", ""])), min_size=1, max_size=5)
RELATIVE = PARTS.map("/".join)
ABSOLUTE = st.tuples(st.sampled_from(["@root", "@outside", "@top", "/etc"]), RELATIVE).map("/".join)
TARGETS = st.one_of(RELATIVE, ABSOLUTE)
PLACES = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
THINGS = st.lists(
    st.one_of(st.tuples(st.just("file"), PLACES, st.just("")), st.tuples(st.just("link"), PLACES, TARGETS)), min_size=1, max_size=12
)
QUICK = settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


@contextlib.contextmanager
def make_tree(things: list[tuple[str, str, str]]) -> Iterator[tuple[Path, Path]]:
    top = Path(tempfile.mkdtemp(prefix="remit-paths-"))
    root, outside = top / "root", top / "outside"
    try:
        for folder in (root, outside / "a" / "b"):
            folder.mkdir(parents=True)
        for name in ("a/c", "a/b/d", "c", "d"):
            (outside / name).write_text("outside")
        for kind, place, target in things:
            with contextlib.suppress(OSError):
                path = root / place
                real = Path(os.path.realpath(path.parent))
                if not real.is_relative_to(root):
                    continue
                real.mkdir(parents=True, exist_ok=True)
                if kind == "file":
                    (real / path.name).write_text("inside") if not (real / path.name).is_symlink() else None
                else:
                    (real / path.name).symlink_to(expand(target, top) or ".")
        yield root, outside
    finally:
        shutil.rmtree(top)


def expand(text: str, top: Path) -> str:
    for mark, folder in (("@root", top / "root"), ("@outside", top / "outside"), ("@top", top)):
        text = text.replace(mark, str(folder))
    return text


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def attempt(root: Path, path: str) -> str | None:
    try:
        with Root(root) as opened, opened.place(path) as place, os.fdopen(place.open_file()) as file:
            return f"{place.path}: {file.read()}"
    except RemitError:
        return None


@QUICK
@given(things=THINGS, path=TARGETS)
def test_read_file_is_inside_and_the_one_the_path_names(things: list[tuple[str, str, str]], path: str) -> None:
    with make_tree(things) as (root, _):
        asked = expand(path, root.parent)
        read = attempt(root, asked)
        if read is not None:
            real = os.path.realpath(root / asked)
            assert read == f"{os.path.relpath(real, root)}: inside"
            assert Path(real).is_relative_to(root)
        for file in (one for one in root.rglob("*") if one.is_file() and not one.is_symlink()):
            assert attempt(root, str(file.relative_to(root))) is not None, "files inside without links are found"


@QUICK
@given(things=THINGS, path=TARGETS, how=st.sampled_from(["write", "remove", "remove tree"]))
def test_nothing_outside_is_changed(things: list[tuple[str, str, str]], path: str, how: str) -> None:
    with make_tree(things) as (root, outside):
        before = contents(outside)
        asked = expand(path, root.parent)
        with contextlib.suppress(RemitError), Root(root) as opened, opened.place(asked, follow=how == "write") as place:
            if how == "write":
                replace_file(place, b"written")
            elif how == "remove":
                remove_one(place)
            else:
                remove_tree(place, lambda: False)
        assert contents(outside) == before


@settings(max_examples=80)
@given(path=st.text(max_size=30))
def test_any_text_is_a_path_inside_or_refused(path: str) -> None:
    with contextlib.suppress(RemitError):
        parts = parts_of(path)
        assert not {"..", ".", ""} & set(parts)
        assert not any("/" in part or "\0" in part for part in parts)
