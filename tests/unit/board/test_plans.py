"""Plans: read tolerantly, changed at one marker only."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.board.plans import read_plan, with_phase
from remit.board.task import PhaseStatus

PLAN = """# Implementation plan: CSV export

- **Task**: 12
- **Accept**: `pytest -q`

## Phases

### Phase 1: Read rows [COMPLETED]

- **Goal**: Rows come out of the file,
  in order.
- **Tasks**:
  - [x] read
  - [ ] count
- **Timing**: 1 hour
- **Accept**: `test -s rows.py`
- **Accept**: `python -m rows`

### Phase 2: Write CSV [NOT STARTED]

- **Goal**: A file

## Risks

- **Accept**: `true`
"""


def test_plan_in_the_usual_format_is_parsed_completely() -> None:
    plan = read_plan(PLAN)
    first, second = plan.phases
    assert (first.number, first.name, first.status) == (1, "Read rows", PhaseStatus.COMPLETED)
    assert first.goal == "Rows come out of the file, in order."
    assert first.accept == ("test -s rows.py", "python -m rows")
    assert first.text.startswith("### Phase 1: Read rows [COMPLETED]\n")
    assert first.text.endswith("`python -m rows`")
    assert second.text == "### Phase 2: Write CSV [NOT STARTED]\n\n- **Goal**: A file"
    assert plan.accept == ("pytest -q", "true")
    assert plan.first_open == second
    assert plan.faults == ()
    assert plan.doubled == ()


@pytest.mark.parametrize(
    ("heading", "name", "status"),
    [
        ("### Phase 3: Name", "Name", PhaseStatus.NOT_STARTED),
        ("### phase 3: Name [in progress]", "Name", PhaseStatus.IN_PROGRESS),
        ("## Phase 3 - Name [In_Progress]", "Name", PhaseStatus.IN_PROGRESS),
        ("### **Phase 3: Name** [COMPLETED] ###", "Name", PhaseStatus.COMPLETED),
        ("### Phase 3: Lists [int] [PARTIAL]", "Lists [int]", PhaseStatus.PARTIAL),
        ("### Phase 3: Lists [int]", "Lists [int]", PhaseStatus.NOT_STARTED),
        ("### Phase 3 [ABANDONED]", "Phase 3", PhaseStatus.ABANDONED),
        ("### Phase 3: Name [BLOCKED]\r", "Name", PhaseStatus.BLOCKED),
    ],
)
def test_phase_headings_are_parsed_in_many_spellings(heading: str, name: str, status: PhaseStatus) -> None:
    (phase,) = read_plan(f"# Plan\n\n{heading}\n\ntext\n").phases
    assert (phase.number, phase.name, phase.status) == (3, name, status)


def test_code_blocks_and_comments_contain_no_phase_and_no_command() -> None:
    code = "```md\n### Phase 9: Not one [NOT STARTED]\n- **Accept**: `rm -rf x`\n```\n"
    text = f"# P\n\n{code}<!--\n### Phase 8: Nor this\n-->\n\n### Phase 1: One\n"
    plan = read_plan(text)
    assert [phase.number for phase in plan.phases] == [1]
    assert plan.accept == ()
    assert plan.phases[0].accept == ()


def test_duplicate_and_missing_phases_are_reported() -> None:
    plan = read_plan("### Phase 4: D [WIP]\n### Phase 2: B\n### Phase 2: C\n### Phase 3a: E\n")
    assert plan.doubled == (2,)
    faults = " ".join(plan.faults)
    for words in ("Phase 2 occurs more than once (lines 2, 3)", "There is no phase 1, 3"):
        assert words in faults


def test_prose_is_never_run_as_a_command() -> None:
    plan = read_plan("### Phase 1: A\n- **Accept**: all tests pass\n- **Accept**: none\n- **Acceptance**:\n  - ``echo `date` ``\n")
    assert plan.phases[0].accept == ("echo `date`",)
    assert plan.faults == ("Phase 1: `Accept: all tests pass` is not a command; to run it, write it in backticks.",)


NAMES = st.text(st.sampled_from("ab Z9:-–.`*_[]()#é|~"), max_size=12).map(lambda name: "n" + name)
LINES = st.one_of(
    st.builds(
        lambda hashes, number, name, status: f"{'#' * hashes} Phase {number}: {name}{status}",
        st.integers(2, 4), st.integers(1, 4), NAMES,
        st.sampled_from(["", " [NOT STARTED]", " [completed]", "  [IN PROGRESS] ", " [x]", " [PARTIAL] #"]),
    ),
    st.sampled_from(["```", "~~~ py", "text", "", "\r", "- **Accept**: `x`", "- **Tasks**:"]),
    st.sampled_from(["  - [ ] y", "## Other", "<!--", "-->", "\x0b\u2028", "### Phase"]),
    st.text(max_size=20).map(lambda line: line.replace("\n", "")),
)  # fmt: skip


@settings(max_examples=80)
@given(st.lists(LINES, max_size=14).map("\n".join), st.sampled_from(PhaseStatus))
def test_marking_a_phase_changes_only_its_marker(text: str, status: PhaseStatus) -> None:
    """The new status is read back, and every other character stays."""
    before = read_plan(text)
    for phase in before.phases:
        if phase.number in before.doubled:
            continue
        changed = with_phase(text, phase.number, status)
        start, end = phase.marker
        assert changed.startswith(text[:start])
        assert changed.endswith(text[end:])
        after = read_plan(changed)
        assert next(one for one in after.phases if one.number == phase.number).status is status
        assert [(one.number, one.name) for one in after.phases] == [(one.number, one.name) for one in before.phases]
        assert [one.status for one in after.phases if one.number != phase.number] == [
            one.status for one in before.phases if one.number != phase.number
        ]


@pytest.mark.parametrize(
    "line",
    [
        "### Phase 1: a" + " " * 200_000 + "b",
        "### Phase 1: " + " #" * 50_000 + "x",
        "- **Accept**: " + "`a``b" * 20_000,
        "- " + "*" * 200_000,
    ],
    ids=["spaces", "hashes", "backticks", "stars"],
)
@pytest.mark.timeout(20)
def test_hostile_lines_are_parsed_in_linear_time(line: str) -> None:
    assert len(read_plan(f"{line}\n### Phase 2: B\n").phases) >= 1
