"""`coder.analyze_code`: any bytes as any language give facts, never an exception; any names make a valid picture and report."""

import json
import xml.etree.ElementTree as ET
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from remit.agents.builtin.coder.analysis.graph import Groups, components, cycles, grouped
from remit.agents.builtin.coder.analysis.languages import BY_NAME
from remit.agents.builtin.coder.analysis.picture import draw
from remit.agents.builtin.coder.analysis.reading import read_facts
from remit.agents.builtin.coder.analysis.rusty import expanded
from remit.agents.builtin.coder.analysis.survey import Survey
from remit.agents.builtin.coder.analysis.wording import code, printable, prose

PIECES = st.sampled_from(
    ["def f(", "class A:\n", "import ", "from . import ", "if ", "else ", "{", "}", "(", ")", "\n", "    ", "# TODO x\n", "/*", "*/",
     "//", '"', "'",      "use crate::{", "fn ", "mod a;", "#include <", "func ", "package ", "x", "=>", "&&",
     "\\", "`", "<", ">", "\t", "é", "\x00", "match ", "=", ";"]
)  # fmt: skip
SOURCES = st.one_of(st.binary(max_size=400), st.lists(PIECES, max_size=60).map(lambda parts: "".join(parts).encode()))
NAMES = st.text(max_size=20)


@given(SOURCES, st.sampled_from(sorted(BY_NAME)))
@settings(max_examples=300, deadline=None)
def test_any_bytes_as_any_language_give_facts(source: bytes, language: str) -> None:
    found = read_facts(source, language, "some/file")
    gist, symbols = found.packed()
    assert "\n" not in gist + symbols
    assert "\0" not in gist + symbols
    survey = Survey()
    survey.add("some/file", len(source), json.loads(gist))
    assert survey.members[0].lines == survey.members[0].code + found.gist["comments"] + found.gist["blank"]
    for symbol in found.symbols:
        assert 1 <= symbol["line"] <= symbol["endLine"]


@given(st.dictionaries(NAMES, st.lists(NAMES, max_size=4), max_size=14))
@settings(max_examples=60, deadline=None)
def test_any_names_make_a_valid_picture(graph: dict[str, list[str]]) -> None:
    edges = {source: Counter({t: 1 for t in targets if t != source}) for source, targets in graph.items()}
    nodes = {*graph, *(t for targets in graph.values() for t in targets)}
    ET.fromstring(draw(Groups(sizes=Counter(dict.fromkeys(nodes, 1)), edges=edges), "".join(nodes)))
    ET.fromstring(draw(grouped(nodes, edges, at_most=3), "few"))


@given(st.dictionaries(st.integers(0, 9), st.sets(st.integers(0, 9), max_size=4), max_size=10))
def test_members_of_a_cycle_reach_one_another_and_its_ring_is_one(graph: dict[int, set[int]]) -> None:
    edges = {str(a): {str(b): 1 for b in targets if b != a} for a, targets in graph.items()}
    for knot in cycles(edges):
        assert all(end in edges[start] for start, end in zip(knot.ring, (*knot.ring[1:], knot.ring[0]), strict=True))
    assert all(len(one) > 1 for one in components(edges))


@given(st.text(st.characters(), max_size=60) | st.sampled_from(["\ud800", "\udcff|", "`" * 3]))
def test_words_of_others_stay_words(text: str) -> None:
    printable(text).encode()
    span = code(text)
    assert span.count("`") == 2
    assert "\n" not in span + prose(text)
    expanded(text)
