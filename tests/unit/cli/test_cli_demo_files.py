"""The demo's work on files: bounded, sorted into portions, measured."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from remit.cli.demo.files import MOST_FILES, MOST_GROUPS, Finds, find_files, groups_of, portions_of
from remit.cli.demo.measuring import Measure, total
from remit.cli.demo.report import Chapter, report_text
from remit.flow.search import Found

names = st.text(st.sampled_from("abc"), min_size=1, max_size=2)
path = st.builds(lambda folders, name: "/".join([*folders, name]), st.lists(names, max_size=3), st.from_regex(r"\A[ab]{1,2}\.(py|md|x)\Z"))
paths = st.lists(path, unique=True, max_size=80)


@given(paths)
def test_every_file_is_in_exactly_one_portion_of_one_group(listed: list[str]) -> None:
    groups = groups_of([Found(path, 1, 0.0) for path in listed])
    portions = [path for files in groups.values() for portion in portions_of(files).values() for path in portion]
    assert sorted(portions) == sorted(listed)
    assert len(groups) <= MOST_GROUPS + 1


def test_a_huge_folder_is_sampled_from_the_top_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for number in range(MOST_FILES + 50):
        (tmp_path / "deep" / f"{number}.txt").touch()
    (tmp_path / "top.py").write_text("x\n")
    finds = find_files(tmp_path)
    assert (len(finds.files), finds.seen, finds.files[0].path) == (MOST_FILES, MOST_FILES + 51, "top.py")


def test_files_are_measured_by_lines_size_and_marks(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n# TODO: more\n# FIXME(me) this\ny = 2")
    (tmp_path / "b.bin").write_bytes(b"\0" * 500)
    measure = Measure()
    for name in ("a.py", "b.bin", "missing.txt"):
        measure.add_file(tmp_path, name)
    assert (measure.files, measure.lines, measure.unread) == (3, 4, 2)
    assert measure.size == 500 + (tmp_path / "a.py").stat().st_size
    assert measure.marks == {"TODO": 1, "FIXME": 1}
    assert measure.notes[0][:2] == ["a.py", 2]
    assert measure.longest[0] == [4, "a.py"]
    assert measure.largest[0] == [500, "b.bin"]


def test_measures_add_up(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1\n2\n")
    one = Measure()
    one.add_file(tmp_path, "a.py")
    both = total([one.to_dict(), one.to_dict()])
    assert (both.files, both.lines, both.languages) == (2, 4, {"Python": [2, 4, 8]})


def test_the_report_cannot_be_broken_by_a_file_name(tmp_path: Path) -> None:
    measure = Measure(files=1, lines=3, size=3, longest=[[3, "a|b`c\nd.py"]], languages={"Python": [1, 3, 3]})
    chapter = Chapter(name="x|y", measure=measure, session_id="sess_1700000000_abc123", seconds=0.1, is_whole=True)
    text = report_text(tmp_path, Finds(files=[], seen=1, is_whole=False), [chapter], [])
    assert "`a\\|b'c d.py`" in text
    assert "x\\|y" in text
    assert "stopped at its bounds" in text
