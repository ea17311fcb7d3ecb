"""For the tests of those who use or extend remit: their own agents, scripted and hostile ones, clocks, and the promises of each port.

`engine_suite` and `store_suite` are run over every engine and store of ours, and can be run over yours. Needs no test framework.
"""

from remit.testing.clock import JumpingClock, ManualClock
from remit.testing.load import load_agents
from remit.testing.scripted import Scripted, Turn, answer, fail, hand_on, hang, say, wait

__all__ = ["JumpingClock", "ManualClock", "Scripted", "Turn", "answer", "fail", "hand_on", "hang", "load_agents", "say", "wait"]
