"""`coder.analyze_code` (S5.2): where imports lead, cycles, what tests touch, and the picture of it."""

import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import pytest

from remit.agents.builtin.coder.analysis.graph import Groups, components, cycles, grouped, reachable
from remit.agents.builtin.coder.analysis.picture import draw
from remit.agents.builtin.coder.analysis.running import Analysis, Asked
from remit.agents.builtin.coder.analysis.rusty import expanded
from remit.agents.builtin.coder.analysis.wording import code, prose
from remit.pictures.layout import lay_out

TREES: dict[str, tuple[dict[str, str], set[tuple[str, str]]]] = {
    "python, src layout": (
        {
            "src/pkg/__init__.py": "from pkg.core import run\n",
            "src/pkg/core.py": "import os\nfrom . import tools\nfrom .deep.inner import x\nfrom pkg.tools import y\n",
            "src/pkg/tools.py": "import pkg.deep.inner\nfrom pkg.missing import nothing\n",
            "src/pkg/deep/__init__.py": "",
            "src/pkg/deep/inner.py": "from ..tools import y\n",
            "tests/test_core.py": "from pkg import core\nimport helper\n",
            "tests/helper.py": "",
        },
        {
            ("src/pkg/__init__.py", "src/pkg/core.py"),
            ("src/pkg/core.py", "src/pkg/tools.py"),
            ("src/pkg/core.py", "src/pkg/deep/inner.py"),
            ("src/pkg/tools.py", "src/pkg/deep/inner.py"),
            ("src/pkg/deep/inner.py", "src/pkg/tools.py"),
            ("tests/test_core.py", "src/pkg/core.py"),
            ("tests/test_core.py", "tests/helper.py"),
        },
    ),
    "python, namespace package": (
        {"a/one.py": "from a import two\nfrom a.b.three import z\n", "a/two.py": "", "a/b/three.py": ""},
        {("a/one.py", "a/two.py"), ("a/one.py", "a/b/three.py")},
    ),
    "python, names that stand several times": (
        {
            "site/yaml/__init__.py": "",
            "site/big/__init__.py": "",
            "site/big/_vendor/yaml/__init__.py": "",
            "site/big/use.py": "import yaml\nimport re\n",
            "site/big/_vendor/use.py": "import yaml\n",
            "site/odd/util/re.py": "",
            "site/odd/util/near.py": "import re\n",
        },
        {
            ("site/big/use.py", "site/yaml/__init__.py"),
            ("site/big/_vendor/use.py", "site/big/_vendor/yaml/__init__.py"),
            ("site/odd/util/near.py", "site/odd/util/re.py"),
        },
    ),
    "python, names of the language beside a module of a package": (
        {
            "pkg/__init__.py": "",
            "pkg/types.py": "import random\n",
            "pkg/random.py": "import types\nimport numpy\n",
            "pkg/numpy.py": "from . import types\n",
        },
        {("pkg/numpy.py", "pkg/types.py")},
    ),
    "javascript and typescript": (
        {
            "tsconfig.json": '{ // comment\n "compilerOptions": {"baseUrl": ".", "paths": {"@/*": ["src/*"],}}}',
            "src/a.ts": "import './b';\nimport x from './c.js';\nimport y from '@/d';\n"
            "import z from '../e';\nimport 'react';\nimport p from '@me/lib';\n",
            "src/b.tsx": "",
            "src/c.ts": "",
            "src/d/index.ts": "export * from './d2';\n",
            "src/d/d2.ts": "",
            "e.mjs": "",
            "packages/lib/package.json": '{"name": "@me/lib", "main": "dist/index.js"}',
            "packages/lib/src/index.ts": "",
        },
        {
            ("src/a.ts", "src/b.tsx"),
            ("src/a.ts", "src/c.ts"),
            ("src/a.ts", "src/d/index.ts"),
            ("src/a.ts", "e.mjs"),
            ("src/a.ts", "packages/lib/src/index.ts"),
            ("src/d/index.ts", "src/d/d2.ts"),
        },
    ),
    "go": (
        {
            "go.mod": "module example.com/app\n\ngo 1.22\n",
            "main.go": 'package main\nimport (\n "fmt"\n "example.com/app/internal/words"\n)\nfunc main() {}\n',
            "internal/words/words.go": 'package words\nimport "example.com/app/internal/base"\n',
            "internal/words/more.go": "package words\n",
            "internal/base/base.go": "package base\n",
        },
        {("/", "internal/words/"), ("internal/words/", "internal/base/")},
    ),
    "rust workspace": (
        {
            "Cargo.toml": '[workspace]\nmembers = ["core", "app"]\n',
            "core/Cargo.toml": '[package]\nname = "my-core"\n',
            "core/src/lib.rs": "mod words;\npub mod deep;\nuse crate::words::Count;\n",
            "core/src/words.rs": "use super::deep::{inner::X, self};\n",
            "core/src/deep/mod.rs": "mod inner;\n",
            "core/src/deep/inner.rs": "use std::fs;\n",
            "app/Cargo.toml": '[package]\nname = "app"\n',
            "app/src/main.rs": "use my_core::words::Count;\nfn main() {}\n",
        },
        {
            ("core/src/lib.rs", "core/src/words.rs"),
            ("core/src/words.rs", "core/src/deep/inner.rs"),
            ("core/src/words.rs", "core/src/deep/mod.rs"),
            ("app/src/main.rs", "core/src/words.rs"),
        },
    ),
    "java": (
        {
            "src/main/java/com/acme/App.java": "package com.acme;\nimport com.acme.words.Count;\n"
            "import static com.acme.words.Tools.help;\nimport com.acme.base.*;\nimport java.util.List;\nclass App {}\n",
            "src/main/java/com/acme/words/Count.java": "package com.acme.words;\nclass Count {}\n",
            "src/main/java/com/acme/words/Tools.java": "package com.acme.words;\nclass Tools {}\n",
            "src/main/java/com/acme/base/One.java": "package com.acme.base;\nclass One {}\n",
        },
        {
            ("src/main/java/com/acme/App.java", "src/main/java/com/acme/words/Count.java"),
            ("src/main/java/com/acme/App.java", "src/main/java/com/acme/words/Tools.java"),
            ("src/main/java/com/acme/App.java", "src/main/java/com/acme/base/One.java"),
        },
    ),
    "c": (
        {
            "src/main.c": '#include <stdio.h>\n#include "words.h"\n#include <lib/base.h>\n#include "sub/deep.h"\n'
            "int main(void) { return 0; }\n",
            "src/words.h": "",
            "src/stdio.h": "",
            "include/lib/base.h": "",
            "src/sub/deep.h": '#include "../words.h"\n',
        },
        {
            ("src/main.c", "src/words.h"),
            ("src/main.c", "include/lib/base.h"),
            ("src/main.c", "src/sub/deep.h"),
            ("src/sub/deep.h", "src/words.h"),
        },
    ),
}  # fmt: skip


def grow(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize("name", TREES)
def test_imports_lead_to_files_of_the_project(name: str, tmp_path: Path) -> None:
    files, expected = TREES[name]
    findings, _ = Analysis(Asked(workspace=grow(tmp_path, files))).run()
    assert {(source, target) for source, targets in findings.edges.hard.items() for target in targets} == expected


def test_a_part_of_a_package_knows_the_package_it_is_part_of(tmp_path: Path) -> None:
    grow(
        tmp_path,
        {"pkg/__init__.py": "", "pkg/sub/__init__.py": "", "pkg/sub/a.py": "from pkg.sub import b\n", "pkg/sub/b.py": "import pkg.other\n"},
    )
    findings, _ = Analysis(Asked(workspace=tmp_path, below="pkg/sub")).run()
    assert findings.edges.hard == {"pkg/sub/a.py": Counter({"pkg/sub/b.py": 1})}
    assert not findings.edges.outside


def test_rust_lists_of_names_are_taken_apart() -> None:
    assert expanded("a::{b, c::{d, e as f}, self}") == ["a::b", "a::c::d", "a::c::e as f", "a"]
    assert expanded("a::*") == ["a"]
    assert expanded("{{{,}") == []


def test_cycles_are_found_with_the_shortest_way_round() -> None:
    edges = {"a": {"b": 1}, "b": {"c": 1, "a": 1}, "c": {"a": 1}, "d": {"a": 1}, "e": {"f": 1}, "f": {"e": 2}}
    found = cycles(edges)
    assert [knot.members for knot in found] == [("a", "b", "c"), ("e", "f")]
    assert found[0].ring == ("a", "b")


def test_a_chain_of_a_hundred_thousand_needs_no_recursion() -> None:
    edges = {f"{n:06}": {f"{n + 1:06}": 1} for n in range(100_000)}
    assert components(edges) == []
    assert len(reachable(["000000"], edges)) == 100_001


def test_many_files_are_drawn_as_folders() -> None:
    nodes = [f"top/{a}/{b}/{c}.py" for a in "xyz" for b in range(10) for c in range(10)]
    groups = grouped(nodes, {nodes[0]: {nodes[-1]: 3}}, at_most=20)
    assert len(groups.sizes) <= 20
    assert sum(groups.sizes.values()) == 300
    assert sum(weight for targets in groups.edges.values() for weight in targets.values()) == 3


def test_a_folder_with_more_parts_than_there_is_room_for_shows_its_largest() -> None:
    nodes = [f"top/{a:03}/{b}.py" for a in range(100) for b in range(1 + a % 7)]
    sizes = grouped(nodes, {}, at_most=20).sizes
    assert len(sizes) == 20
    assert sizes["top/"] == max(sizes.values())
    assert sizes["top/006/"] == 7


def test_no_box_lies_upon_another() -> None:
    names = [f"n{n}" for n in range(40)]
    edges = [(names[a], names[b]) for a in range(40) for b in range(40) if (a * 7 + b * 3) % 11 == 0 and a != b]
    layout = lay_out({name: (60.0 + len(name), 34.0) for name in names}, edges)
    boxes = list(layout.boxes.values())
    for number, one in enumerate(boxes):
        for other in boxes[number + 1 :]:
            apart = (
                one.x + one.width <= other.x
                or other.x + other.width <= one.x
                or one.y + one.height <= other.y
                or other.y + other.height <= one.y
            )
            assert apart
    assert set(layout.ways) == set(edges)


def test_the_picture_is_valid_and_shows_cycles_in_another_colour() -> None:
    groups = Groups(
        sizes=Counter({"a/": 2, "b/": 1, "c/": 1, "<script>&\x00\ud800\n]]>": 1}),
        edges={"a/": Counter({"b/": 5}), "b/": Counter({"a/": 1, "c/": 1})},
    )
    picture = draw(groups, 'A "title" <b>')
    drawn = ET.fromstring(picture)
    kinds = Counter(path.get("class") for path in drawn.iter("{http://www.w3.org/2000/svg}path"))
    assert (kinds["c"], kinds["e"]) == (2, 1)
    assert "<script>" not in picture


def test_an_empty_picture_is_a_picture() -> None:
    ET.fromstring(draw(Groups(), ""))


def test_names_of_others_cannot_write_our_markdown() -> None:
    assert code("a`b|c\nd") == "`aˋb\\|c\ufffdd`"
    assert prose("<img src=x> [a](b) *c*\n# d") == "\\<img src=x\\> \\[a\\](b) \\*c\\* \\# d"


def test_what_tests_touch_is_told_from_what_they_only_reach(tmp_path: Path) -> None:
    body = "def f(x):\n    return x\n"
    grow(
        tmp_path,
        {
            "pkg/__init__.py": "from pkg.shown import f\n",
            "pkg/shown.py": "from pkg.behind import f\n" + body,
            "pkg/behind.py": body,
            "pkg/named.py": body,
            "pkg/alone.py": body + "def g(x):\n    return 1 if x else 2\n",
            "pkg/nothing.py": "X = 1\n",
            "tests/test_it.py": "from pkg import f\ndef test_f():\n    assert f(1)\n",
            "tests/test_named.py": "def test_named():\n    pass\n",
        },
    )
    tests = Analysis(Asked(workspace=tmp_path)).run()[0].tests
    assert [member.path for member in tests.untouched] == ["pkg/alone.py"]
    assert [member.path for member in tests.only_indirect] == ["pkg/behind.py"]
    assert (tests.tests, tests.test_files, tests.direct) == (2, 2, 2)
