"""For the tests of those who use or extend remit: scripted and hostile agents, clocks, and the promises of each port as a suite.

`engine_suite` and `store_suite` are run over every engine and store of ours, and can be run over yours. Needs no test framework.
"""

from remit.testing.clock import JumpingClock, ManualClock
from remit.testing.scripted import Scripted, Turn, answer, fail, hand_on, hang, say, wait

__all__ = ["JumpingClock", "ManualClock", "Scripted", "Turn", "answer", "fail", "hand_on", "hang", "say", "wait"]
