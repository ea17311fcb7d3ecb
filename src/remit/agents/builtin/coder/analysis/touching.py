"""Which code tests touch: imported by a test or named after it, reached only through others, or not at all. No input or output.

What a test imports from a package's index (`__init__.py`, `index.ts`, `mod.rs`) is looked for one step further; a header stands for the
source beside it; a test in the folder of a Go package or a Java package is that package's; Rust's tests stand in the file itself.
"""

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from remit.agents.builtin.coder.analysis.graph import reachable
from remit.agents.builtin.coder.analysis.languages import BY_NAME
from remit.agents.builtin.coder.analysis.resolving import Edges, node_of
from remit.agents.builtin.coder.analysis.survey import Member

_DECLARED = (".pyi", ".d.ts")
"""Nothing in them runs, so nothing can be tested."""
_AFFIX = re.compile(r"^tests?[_-]|[_.-]?(unit)?(tests?|spec|it)$|^Test(?=[A-Z])|(Tests?|IT|TestCase)$")


@dataclass(slots=True)
class Touched:
    test_files: int = 0
    tests: int = 0
    test_code: int = 0
    code: int = 0
    direct: int = 0
    indirect: int = 0
    untouched: list[Member] = field(default_factory=list)
    """Files with functions that no test reaches, those with most decisions first."""
    only_indirect: list[Member] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Lines of tests for each line of code."""
        return self.test_code / self.code if self.code else 0.0


def touched(members: Iterable[Member], edges: Edges) -> Touched:
    members = list(members)
    found = Touched()
    tests = [member for member in members if member.is_test]
    direct = _direct(members, tests, edges)
    reached = reachable([*direct, *(node_of(test) for test in tests)], edges.hard, edges.lazy)
    for member in members:
        if member.is_test:
            found.test_files += member.tests > 0
            found.test_code += member.code
        else:
            found.code += member.code
        found.tests += member.tests
        if not member.is_test and member.functions and not member.path.endswith(_DECLARED):
            _judge(found, member, direct, reached)
    by_weight = lambda member: (-member.complexity, -member.code, member.path)  # noqa: E731 - one key for two lists
    found.untouched.sort(key=by_weight)
    found.only_indirect.sort(key=by_weight)
    return found


def _judge(found: Touched, member: Member, direct: set[str], reached: set[str]) -> None:
    node = node_of(member)
    if node in direct or member.path in direct or member.tests:
        found.direct += 1
    elif node in reached:
        found.indirect += 1
        found.only_indirect.append(member)
    else:
        found.untouched.append(member)


def _direct(members: list[Member], tests: list[Member], edges: Edges) -> set[str]:
    direct: set[str] = set()
    indexes = {m.path for m in members if posixpath.basename(m.path) in BY_NAME[m.language].index_names}
    for test in tests:
        for graph in (edges.hard, edges.lazy):
            for target in graph.get(node_of(test), ()):
                direct.add(target)
                if target in indexes:
                    direct.update(edges.hard.get(target, ()))
    direct |= {node_of(test) for test in tests if test.language == "Go"}
    direct |= _namesakes(members, tests)
    stems = {posixpath.splitext(path)[0] for path in direct if path.endswith((".h", ".hh", ".hpp"))}
    return direct | {m.path for m in members if BY_NAME[m.language].family == "c" and posixpath.splitext(m.path)[0] in stems}


def _namesakes(members: list[Member], tests: list[Member]) -> set[str]:
    """`test_words.py` is the test of `words.py` where only one file has that name, or one lies beside it."""
    by_stem: dict[tuple[str, str], list[str]] = defaultdict(list)
    for member in members:
        if not member.is_test:
            by_stem[BY_NAME[member.language].family, _stem(member.path)].append(member.path)
    found = set()
    for test in tests:
        bare = _AFFIX.sub("", _AFFIX.sub("", _stem(test.path)))
        choices = by_stem.get((BY_NAME[test.language].family, bare), []) if bare else []
        near = [path for path in choices if posixpath.dirname(path) == posixpath.dirname(test.path)]
        if len(choices) == 1 or near:
            found.update(near or choices)
    return found


def _stem(path: str) -> str:
    return posixpath.basename(path).partition(".")[0]
