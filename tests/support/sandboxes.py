"""The sandboxes of this machine, for tests that run code in one directly."""

from remit.system.sandbox.boxes import Job
from remit.system.sandbox.probe import Offer, probe, required
from remit.system.sandbox.recipes import MEBIBYTE, Limits, node, python
from remit.system.sandbox.run import RunResult, run

__all__ = ["MEBIBYTE", "Job", "Limits", "Offer", "RunResult", "node", "probe", "python", "required", "run"]
