"""One review: the diff read, tried on the files, every check run in its turn, and what came of it. Knows no delegation."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from remit.agents.builtin.coder.review import guided, interface, leftovers, linting, risky, secrets, syntax, whole
from remit.agents.builtin.coder.review.applying import State
from remit.agents.builtin.coder.review.findings import ORDER, Finding, Severity, in_order, struck
from remit.agents.builtin.coder.review.judging import Judgement
from remit.agents.builtin.coder.review.matter import Matter

Check = Callable[[Matter], Iterator[Finding]]
CHECKS: tuple[tuple[str, Check], ...] = (
    ("whether it applies", whole.applies),
    ("secrets", secrets.check),
    ("leftovers", leftovers.check),
    ("syntax", syntax.check),
    ("risky calls", risky.check),
    ("linters", linting.check),
    ("files and dependencies", whole.files),
    ("callers of what was removed", interface.check),
    ("tests", whole.tests),
    ("size", whole.size),
    ("guidelines", guided.check),
)
"""The gravest first: when time is short, the last are missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    what: str
    state: State
    verdict: str
    findings: list[Finding]
    left_out: int
    ran: list[str]
    matter: Matter
    late: bool
    judgement: Judgement | None = None
    """None: no model was asked."""

    @property
    def counts(self) -> dict[str, int]:
        found = Counter(str(finding.severity) for finding in self.findings)
        return {str(severity): found[str(severity)] for severity in Severity}

    @property
    def lines(self) -> tuple[int, int]:
        changes = [change for file in self.matter.files for change in file.applied.changes]
        return sum(change.count("+") for change in changes), sum(change.count("-") for change in changes)

    def to_data(self) -> dict[str, Any]:
        """As programs read it (S5.2)."""
        added, removed = self.lines
        return {
            "verdict": self.verdict,
            "applies": str(self.state),
            "files": [
                {
                    "path": clean(file.path),
                    "applies": str(file.applied.state),
                    **({"why": clean(file.applied.note)} if file.applied.note else {}),
                }
                for file in self.matter.files[:500]
            ],
            "filesChanged": len(self.matter.files),
            "linesAdded": added,
            "linesRemoved": removed,
            "counts": self.counts,
            "findings": [finding.to_dict() for finding in self.findings],
            "findingsLeftOut": self.left_out,
            "checked": self.ran,
            "notChecked": [clean(words) for words in self.not_checked],
            "tools": self.matter.tools,
            "guidelines": {"checked": self.matter.guidelines.checked, "notChecked": self.matter.guidelines.unchecked},
            **({"judgement": {**self.judgement.to_data(), "verdictWithout": self._without()}} if self.judgement is not None else {}),
        }

    def _without(self) -> str:
        """The verdict of the checks alone."""
        return _verdict(self.state, [finding for finding in self.findings if not finding.by])

    def judged(self, judgement: "Judgement") -> "Reviewed":
        """With a model's findings among the others, each below those of the same weight that a check found."""
        findings = sorted([*self.findings, *map(_shortened, judgement.findings)], key=lambda one: (ORDER[one.severity], bool(one.by)))
        return replace(self, findings=findings, verdict=_verdict(self.state, findings), judgement=judgement)

    @property
    def not_checked(self) -> list[str]:
        odd = [f"{file.path}: {file.applied.note}" for file in self.matter.files if file.applied.note][:20]
        failing = [
            f"{file.path} as a whole: the diff does not apply to it" for file in self.matter.files if file.applied.state is State.FAILS
        ][:20]
        unjudged = []
        if self.judgement is not None and self.judgement.fault:
            unjudged = [f"what only a reader sees: no model judged it ({self.judgement.fault})"]
        elif self.judgement is not None and self.judgement.unseen:
            unjudged = [f"{path}: too much for a model to judge with the rest" for path in self.judgement.unseen[:20]]
        return list(dict.fromkeys([*odd, *failing, *self.matter.unchecked, *unjudged]))


def clean(text: str) -> str:
    """Names of files may hold bytes that are no text."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def review(matter: Matter, what: str, tell: Callable[[str, float], None]) -> Reviewed:
    """Every check in its turn; those for which no time is left are named."""
    found: list[Finding] = []
    ran: list[str] = []
    late = False
    for number, (name, check) in enumerate(CHECKS):
        if matter.is_late():
            late = True
            matter.unchecked.append(f"{name}: time was up")
            continue
        tell(name, number / len(CHECKS))
        found += check(matter)
        ran.append(name)
    late = late or matter.is_late()
    for file in matter.files:  # what stands in files beside the change must not be told either
        for line in file.removed:
            matter.masking.learn(line)
    kept, left_out = in_order(guided.weighed(matter, found))
    findings = [_shortened(finding) for finding in struck(kept, matter.masking.strike)]
    return Reviewed(
        what=what,
        state=matter.state,
        verdict=_verdict(matter.state, findings),
        findings=findings,
        left_out=left_out,
        ran=ran,
        matter=matter,
        late=late,
    )


def _shortened(finding: Finding) -> Finding:
    snippet = clean(finding.snippet.strip())
    return replace(
        finding,
        file=clean(finding.file),
        message=clean(finding.message)[:600],
        suggestion=clean(finding.suggestion)[:300],
        snippet=snippet if len(snippet) <= 160 else f"{snippet[:159]}…",
    )


def _verdict(state: State, findings: list[Finding]) -> str:
    severities = {finding.severity for finding in findings}
    if state is State.FAILS:
        return "does not apply"
    if severities & {Severity.CRITICAL, Severity.HIGH}:
        return "needs changes"
    return "worth a look" if Severity.MEDIUM in severities else "looks fine"
