"""The state machine of a delegation: one table, one end."""

from remit.engines.embedded.delegation_run import TRANSITIONS, Phase


def test_every_phase_leads_to_the_outcome_and_none_leads_back() -> None:
    assert set(TRANSITIONS) == set(Phase)
    assert TRANSITIONS[Phase.SETTLED] == frozenset()
    for phase, following in TRANSITIONS.items():
        assert all(after > phase for after in following)
        assert phase is Phase.SETTLED or following
