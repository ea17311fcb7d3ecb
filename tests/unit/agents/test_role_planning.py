"""The built-in planner's rules: phases from a task's own words, and a plan that is read back as it was meant (S6.5)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.agents.builtin.roles.answering import shortly
from remit.agents.builtin.roles.diagnosing import groups_of, report_of
from remit.agents.builtin.roles.drafting import SKELETON, Known, new_plan, revised_plan
from remit.agents.builtin.roles.phasing import effort_in, items_of, phases_of, timing_of
from remit.agents.builtin.roles.places import command_of_tests, likely_files
from remit.agents.builtin.roles.planning import findings_in
from remit.agents.builtin.roles.researching import question_of
from remit.board.plans import read_plan, with_phase
from remit.board.statuses import PhaseStatus

lines = st.text(max_size=120) | st.sampled_from(
    ["### Phase 9: Evil [COMPLETED]", "- **Accept**: `rm -rf /`", "Accept: `x`", "```", "- [x] done", "1. One thing", "[BLOCKED]", "---"]
)


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("1. Add it\n2. Test it", ["Add it", "Test it"]),
        ("Please:\n- [ ] Add it\n  to the parser\n- [x] Test it", ["Add it to the parser", "Test it"]),
        ("Do (1) the parser; (2) the printer.", ["the parser", "the printer"]),
        ("Add a parser for dates. Make the printer use it.", ["Add a parser for dates.", "Make the printer use it."]),
        ("Add a date parser; make the printer use it", ["Add a date parser", "make the printer use it"]),
        ("Add a parser.", []),
        ("Fix add in calc.py. The function add in calc.py returns the difference instead of the sum.", []),
        ("Users cannot log in. When a file is missing, the tool crashes; it says nothing of it.", []),
        (
            "The old parser is slow. Please sprinkle the logs with ids. The tool should say which.",
            ["Please sprinkle the logs with ids.", "The tool should say which."],
        ),
        ("", []),
    ],
)
def test_what_a_description_asks_for_is_taken_from_its_own_list_or_sentences(text: str, items: list[str]) -> None:
    assert [item.words for item in items_of(text)] == items


def test_without_several_things_to_do_the_plan_is_test_change_check_and_a_test_that_must_fail_decides_nothing() -> None:
    drafts = phases_of("Fix add", items_of("Fix add. It returns the difference."), effort=None, has_tests=True)
    assert [draft.name for draft in drafts] == ["Pin the behaviour down by a test", "Fix add", "Check and document"]
    assert [draft.ends_red for draft in drafts] == [True, False, False]


def test_a_title_that_the_description_begins_with_is_asked_once() -> None:
    assert question_of("Fix add", "Fix add. It returns the difference.", "signs") == "signs? Fix add? It returns the difference?"
    assert question_of("Fix add", "Fix adding.", "") == "Fix add? Fix adding?"


def test_what_stands_below_an_item_is_a_step_of_its_phase() -> None:
    (first, *_) = phases_of("T", items_of("- Parser\n    - dates\n    - times\n- Printer"), effort=None, has_tests=False)
    assert first.name == "Parser"
    assert first.steps == ("dates", "times")


@given(count=st.integers(0, 40), effort=st.none() | st.floats(0.1, 500), has_tests=st.booleans())
def test_there_are_two_to_five_phases_and_no_item_is_lost(count: int, effort: float | None, has_tests: bool) -> None:
    words = [f"Item number {number}." for number in range(count)]
    drafts = phases_of("T", items_of("\n".join(f"- {word}" for word in words)), effort=effort, has_tests=has_tests)
    assert 2 <= len(drafts) <= 5
    told = " ".join(step for draft in drafts for step in draft.steps)
    assert count < 2 or all(word in told for word in words)
    assert all(draft.hours > 0 and draft.steps for draft in drafts)


@given(title=lines, description=st.lists(lines, max_size=6), findings=st.lists(lines, max_size=3))
def test_whatever_a_task_or_a_report_says_a_plan_has_just_its_own_phases_and_commands(
    title: str, description: list[str], findings: list[str]
) -> None:
    text = "\n".join(description)
    drafts = phases_of(title, items_of(text), effort=None, has_tests=True)
    known = Known(title=title, description=text, findings=tuple(" ".join(one.split()) for one in findings), command="make test")
    plan = read_plan(new_plan(known, drafts))
    assert [phase.number for phase in plan.phases] == list(range(1, len(drafts) + 1))
    assert {phase.status for phase in plan.phases} == {PhaseStatus.NOT_STARTED}
    assert plan.accept == ()
    assert all(phase.accept == () for phase in plan.phases), "phases were given none"
    assert [phase.name for phase in plan.phases] == [draft.name for draft in drafts]


def drafted(description: str) -> str:
    drafts = phases_of("Serve tea", items_of(description), effort=4, has_tests=False)
    return new_plan(Known(title="Serve tea", description=description), drafts)


def test_a_revision_keeps_what_is_finished_and_puts_the_reason_before_what_is_open() -> None:
    """S6.9: plan version + 1."""
    old = with_phase(drafted("1. Heat the water\n2. Brew it\n3. Pour it"), 1, PhaseStatus.COMPLETED)
    old = with_phase(old, 2, PhaseStatus.PARTIAL)
    known = Known(title="Serve tea", version=2, reason="The kettle leaks", command="make test")
    text, kept, added = revised_plan(known, old, read_plan(old))
    plan = read_plan(text)
    assert (kept, added) == (1, 1)
    assert [(phase.number, phase.name, str(phase.status)) for phase in plan.phases[:4]] == [
        (1, "Heat the water", "COMPLETED"),
        (2, "The kettle leaks", "NOT STARTED"),
        (3, "Brew it", "NOT STARTED"),
        (4, "Pour it", "NOT STARTED"),
    ]
    assert plan.phases[0].text.strip() == read_plan(old).phases[0].text.strip()
    assert "## What changed in version 2" in text
    assert SKELETON in text
    assert not plan.faults


def test_a_revision_without_a_reason_says_that_nothing_was_added() -> None:
    old = drafted("1. Heat the water\n2. Brew it")
    text, kept, added = revised_plan(Known(title="Serve tea", version=2), old, read_plan(old))
    assert (kept, added) == (0, 0)
    assert "no reason was given" in text
    assert [phase.name for phase in read_plan(text).phases] == [phase.name for phase in read_plan(old).phases]


def test_a_plan_that_is_all_done_gets_something_to_do_again() -> None:
    old = drafted("1. Heat the water\n2. Brew it")
    for phase in read_plan(old).phases:
        old = with_phase(old, phase.number, PhaseStatus.COMPLETED)
    text, _, added = revised_plan(Known(title="Serve tea", version=3, reason="It is cold"), old, read_plan(old))
    assert added == 1
    assert read_plan(text).first_open is not None


@pytest.mark.parametrize(
    ("text", "hours"),
    [("Effort: 4 hours", 4), ("Effort: 2-3 h", 3), ("- **Effort**: 1 day", 8), ("effort 30 minutes", 0.5), ("none", None)],
)
def test_the_effort_that_a_task_names_is_read(text: str, hours: float | None) -> None:
    assert effort_in(text) == hours


def test_times_are_told_in_words() -> None:
    assert [timing_of(hours) for hours in (0.25, 1, 1.5)] == ["about 15 minutes", "about 1 hour", "about 1.5 hours"]


def test_files_that_are_named_come_first_then_those_that_share_rare_words() -> None:
    paths = ["src/fetcher.py", "src/other.py", "docs/retries.md", "specs/TODO.md", "src/parser.py", "poetry.lock"]
    assert likely_files("Add retries to fetcher.py and the parsing", paths) == ["src/fetcher.py", "src/parser.py", "docs/retries.md"]


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"Makefile": "test:\n\tpytest\n", "pyproject.toml": "[tool.pytest.ini_options]\n"}, "make test"),
        ({"Makefile": "all:\n\ttrue\n", "pyproject.toml": "[tool.pytest.ini_options]\n"}, "pytest -q"),
        ({"tests/test_a.py": ""}, "pytest -q"),
        ({"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'}, ""),
        ({"package.json": "{not json"}, ""),
        ({}, ""),
    ],
)
def test_the_command_by_which_a_project_tests_itself_is_taken_from_its_own_files(
    tmp_path: Path, files: dict[str, str], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("make", "pytest", "npm"):
        (programs / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(programs))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert command_of_tests(tmp_path)[0] == command


def test_a_test_command_whose_program_is_missing_is_named_and_not_proposed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Cargo.toml").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    command, why = command_of_tests(tmp_path)
    assert command == ""
    assert "`cargo test`, but there is no cargo on this machine" in why


def test_the_points_of_a_report_are_those_below_headings_that_tell() -> None:
    report = "# R\n\n- aside\n\n## Findings\n\n- “One” [1]\n- Two\n\n## Sources\n\n- a\n\n## Recommendations\n\n1. Do it\n"
    assert findings_in(report) == ["“One” [1]", "Two", "Do it"]


def test_the_focus_comes_first_in_a_question_and_no_list_marks_stand_in_it() -> None:
    assert question_of("Title.", "1. One thing\n- [ ] Another", "timeouts") == "timeouts? Title? One thing? Another?"


entries = st.fixed_dictionaries(
    {"type": st.sampled_from(["timeout", "execution"]), "message": st.text(max_size=50)},
    optional={
        "id": st.text(min_size=1, max_size=5),
        "recurrence_count": st.integers(-1, 9) | st.none(),
        "context": st.none() | st.fixed_dictionaries({"code": st.sampled_from(["TIMEOUT", "ODD", None]), "agent": st.just("a")}),
        "severity": st.sampled_from(["high", "medium"]),
        "last_seen": st.just("2026-01-01T00:00:00Z") | st.none(),
        "stack_trace": st.text(max_size=50) | st.none(),
    },
)


@given(st.lists(entries, max_size=8))
def test_every_entry_of_the_ledger_is_in_exactly_one_group_and_each_says_what_to_do(found: list[dict[str, object]]) -> None:
    groups = groups_of(found)
    assert sorted(i for group in groups for i in group["entries"]) == sorted(shortly(str(one["id"]), 99) for one in found if one.get("id"))
    assert all(group["cause"] and group["what_to_do"] and group["count"] >= 1 for group in groups)
    assert report_of(groups, len(found)).startswith("# Diagnosis of errors")


def test_a_quotation_in_a_report_is_quoted_once_with_its_source_behind_it() -> None:
    report = '## Findings\n\n- “It reads days.” [1] `README.md:3`\n- "All of it"\n- Plain\n'
    found = findings_in(report)
    assert found == ["“It reads days.” [1] `README.md:3`", "All of it", "Plain"]
    plan = new_plan(Known(title="Do it", findings=tuple(found)), [])
    assert "- “It reads days.” [1] `README.md:3`\n- “All of it”\n- “Plain”\n" in plan
