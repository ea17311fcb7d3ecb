"""`coder.analyze_code`: any bytes in any language give facts; any names give a valid picture and report."""

import json
import xml.etree.ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from remit.board.graph_svg import BOX_WIDTH, Arrow, Box, Picture, draw_svg, wrap
from remit.builtin.coder.analysis.grammars import GRAMMARS
from remit.builtin.coder.analysis.imports import expand_use
from remit.builtin.coder.analysis.parsing import read_source
from remit.builtin.coder.analysis.report import code, prose
from remit.builtin.coder.analysis.survey import printable
from remit.core.cycles import cyclic_components, shortest_cycle

PIECES = st.sampled_from(
    [
        *[
            "def f(",
            "class A:\n",
            "import ",
            "from . import ",
            "if ",
            "else ",
            "    ",
            "# TODO x\n",
            "/*",
            "*/",
            "//",
            "match ",
            "end",
            "function ",
        ],
        *["use crate::{", "fn ", "mod a;", "#include <", "func ", "package ", "=>", "&&", "x", *"{}()\n\"'\\`<>\té\x00=;"],
    ]
)
SOURCES = st.one_of(
    st.binary(max_size=400),
    st.lists(PIECES, max_size=60).map(lambda parts: "".join(parts).encode()),
    st.sampled_from([b"", b"\n", b"\xff\xfe\x80" * 50, b"(" * 3_000, b"{[(" * 1_000, b"a" * 100_000, b'"' * 999, b"\r\n\t" * 50]),
)
NAMES = st.text(max_size=20)


@given(SOURCES, st.sampled_from([*sorted(GRAMMARS), "Ruby", "PHP", "Kotlin", "SQL", "text"]))
@settings(max_examples=300, deadline=None)
def test_any_bytes_in_any_language_give_facts(source: bytes, language: str) -> None:
    endings = {"Ruby": "rb", "PHP": "php", "Kotlin": "kt", "SQL": "sql"}
    facts = json.loads(json.dumps(read_source(source, language, f"some/file.{endings.get(language, 'x')}")))
    assert facts["lines"] == facts["code"] + facts["comments"] + facts["blank"]
    assert all(1 <= symbol["line"] <= symbol["endLine"] for symbol in facts.get("symbols", ()) if language in GRAMMARS)


@given(st.dictionaries(NAMES, st.lists(NAMES, max_size=4), max_size=14))
@settings(max_examples=60, deadline=None)
def test_any_names_give_a_valid_picture(graph: dict[str, list[str]]) -> None:
    nodes = sorted({*graph, *(target for targets in graph.values() for target in targets)})
    boxes = [Box(key=node, label=wrap(node, most=1), tooltip=node) for node in nodes]
    arrows = [Arrow(start, end, "plain", start) for start, targets in graph.items() for end in sorted(set(targets))]
    drawn = ET.fromstring(draw_svg(Picture(title="".join(nodes), subtitle="", boxes=boxes, arrows=arrows)))
    corners = [
        (float(rect.attrib["x"]), float(rect.attrib["y"])) for rect in drawn.iter("{http://www.w3.org/2000/svg}rect") if "x" in rect.attrib
    ]
    assert len(corners) == len(boxes)
    assert not any(abs(x - u) < BOX_WIDTH and abs(y - v) < 27 for n, (x, y) in enumerate(corners) for u, v in corners[:n]), "boxes overlap"


@given(st.dictionaries(st.integers(0, 9), st.sets(st.integers(0, 9), max_size=4), max_size=10))
def test_every_cyclic_component_has_a_way_round(graph: dict[int, set[int]]) -> None:
    for component in cyclic_components(graph):
        ring = shortest_cycle(min(component), graph, component)
        assert all(end in graph[start] for start, end in zip(ring, (*ring[1:], ring[0]), strict=True))


@given(st.text(st.characters(), max_size=60) | st.sampled_from(["\ud800", "\udcff|", "`" * 3]))
def test_text_of_the_repository_cannot_write_our_markdown(text: str) -> None:
    printable(text).encode()
    assert code(text).count("`") == 2
    assert "\n" not in code(text) + prose(text)
    expand_use(text)
