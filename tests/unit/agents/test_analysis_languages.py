"""`coder.analyze_code` (S5.2): what is read out of one file, language by language. Small golden tables."""

import re

import pytest

from remit.agents.builtin.coder.analysis.languages import BY_NAME, language_of_script
from remit.agents.builtin.coder.analysis.reading import Facts, plain_facts, read_facts

PYTHON = '''"""Words and what they mean. More."""
import os, sys as system
from . import near
from ..above.deep import one as uno, two
from typing import *

if TYPE_CHECKING:
    from slow import thing

# TODO: tidy up
class Book(Base):
    """A book."""

    def read(self, pages):
        import later
        for page in pages:
            if page and page.open:
                return page
            elif page is None:
                while True:
                    pass
        return [x for x in pages if x]

async def outer():
    def inner():
        return 1 if a else 2
    return inner  # FIXME(me) say why

text = "TODO: not a comment"

if __name__ == "__main__":
    import doctest
    outer()
'''

JAVASCRIPT = """#!/usr/bin/env node
// Counts words in files, line by line.
import fs from 'fs';
import { a } from './a';
export { b } from "../b/index.js";
const c = require('./c');

export class Counter {
  count(text) {
    if (text) { return 1; } else if (!text) { return 2; } else { return 3; }
  }
}

const arrow = (x) => x ?? (x && x.y) ? 1 : 2;

module.exports.handler = function (event) {
  switch (event) { case 1: return 1; case 2: return 2; default: return 3; }
};

async function lazy() { const m = await import('./lazy'); try { m(); } catch (e) { } }
it('counts', () => { expect(1).toBe(1); });
"""

TYPESCRIPT = """import type { T } from './types';
import { x } from '@/x';
interface Shape { area(): number }
type Pair<A> = [A, A];
enum Colour { Red }
namespace Inner { export function deep(): void {} }
abstract class Base<T> { private go = (n: number): number => n > 1 ? n : 1; abstract stop(): void; run(): void {} }
export const f = async <T,>(a: T): Promise<T> => a;
"""

GO = """// Package main counts.
package main

import (
\t"fmt"
\tother "example.com/app/internal/words"
)

type Counter struct{ n int }
type Reader interface{ Read() }
type Name = string
type Kind int

func (c *Counter) Add(n int) {
\tif n > 0 && n < 9 {
\t\tc.n += n
\t} else if n == 0 {
\t\treturn
\t}
\tswitch n {
\tcase 1:
\tcase 2:
\tdefault:
\t}
}

func main() {
\tfor i := range 3 {
\t\tfmt.Println(i)
\t}
}
"""

RUST = """//! Counts words in a crate.
use std::fs;
use crate::words::{Count, deep::{A, B as C}};
mod words;

pub struct Counter { n: u32 }
enum Kind { A, B }
trait Walk { fn step(&self); }

impl Counter {
    pub fn add(&mut self, k: Kind) -> u32 {
        match k { Kind::A => 1, Kind::B if self.n > 1 || true => 2, _ => 3 }
    }
}

fn main() { loop { if true { break } else if false { } } }

#[cfg(test)]
mod tests {
    #[test]
    fn it_counts() { for _ in 0..2 {} }
}
"""

JAVA = """package com.acme.words;

import java.util.List;
import com.acme.base.*;
import static com.acme.util.Tools.help;

/** Counts the words of a text. */
public class Counter {
    enum Kind { A }
    interface Walk { void step(); }
    record Point(int x) { }
    public Counter() { }
    int count(List<String> words) {
        for (String w : words) {
            if (w != null && w.isEmpty()) { continue; }
            try { help(); } catch (Exception e) { return w == null ? 1 : 2; }
        }
        switch (words.size()) { case 1: return 1; default: return 0; }
    }
    public static void main(String[] args) { }
    @Test void counts() { }
}
"""

C = """/* Counts words of a stream, one by one. */
#include <stdio.h>
#include "words.h"
struct word { int n; };
typedef struct { int x; } point;
enum kind { A, B };
#define TWICE(x) ((x) * 2)
static char *find(const char *s) {
    while (*s && *s != ' ') { s++; }
    return s ? (char *)s : 0;
}
int main(void) {
    switch (1) { case 1: case 2: break; default: break; }
    if (1) { } else if (2) { } else { do { } while (0); }
    return 0;
}
"""

CPP = """#include "words.hpp"
namespace words {
class Counter : public Base {
 public:
  int count() const { for (auto x : xs) { if (x || !x) return 1; } return 0; }
};
template <typename T> T &pick(T &a) { try { return a; } catch (...) { throw; } }
}
int words::Counter::total(int n) { return n ? 1 : 2; }
TEST(Counter, counts) { }
"""


def facts(text: str, language: str, path: str = "file") -> Facts:
    return read_facts(text.encode(), language, path)


def table(found: Facts) -> list[tuple[object, ...]]:
    return [
        (s["kind"], f"{s['parent']}.{s['name']}" if s["parent"] else s["name"], s["line"], s.get("complexity"), s.get("nesting"))
        for s in found.symbols
    ]


def imports(found: Facts) -> list[tuple[str, tuple[str, ...], bool]]:
    return [(module, tuple(names), lazy) for module, names, _, lazy in found.gist["imports"]]


def test_python_symbols_complexity_and_nesting() -> None:
    found = facts(PYTHON, "Python")
    assert table(found) == [
        ("class", "Book", 11, None, None),
        ("method", "Book.read", 14, 8, 3),
        ("function", "outer", 24, 1, 0),
        ("function", "outer.inner", 25, 2, 0),
    ]
    assert found.symbols[1]["endLine"] == 22


def test_python_imports_and_which_of_them_run_with_the_module() -> None:
    assert imports(facts(PYTHON, "Python")) == [
        ("os", (), False),
        ("sys", (), False),
        (".", ("near",), False),
        ("..above.deep", ("one", "two"), False),
        ("typing", ("*",), False),
        ("slow", ("thing",), True),
        ("later", (), True),
        ("doctest", (), True),
    ]


def test_python_lines_open_tasks_and_entry_point() -> None:
    gist = facts(PYTHON, "Python").gist
    assert gist["lines"] == 33
    assert (gist["comments"], gist["blank"]) == (3, 6)
    assert gist["todos"] == [[10, "TODO", "TODO: tidy up"], [27, "FIXME", "FIXME(me) say why"]]
    assert gist["entry"] == [[31, 'if __name__ == "__main__"']]
    assert gist["about"] == "Words and what they mean."


def test_javascript() -> None:
    found = facts(JAVASCRIPT, "JavaScript", "count.test.js")
    assert table(found) == [
        ("class", "Counter", 8, None, None),
        ("method", "Counter.count", 9, 3, 1),
        ("function", "arrow", 14, 4, 0),
        ("function", "module.exports.handler", 16, 3, 1),
        ("function", "lazy", 20, 2, 1),
    ]
    assert imports(found) == [
        ("fs", (), False),
        ("./a", (), False),
        ("../b/index.js", (), False),
        ("./c", (), False),
        ("./lazy", (), True),
    ]
    assert found.gist["tests"] == 1
    assert found.gist["about"] == "Counts words in files, line by line."
    assert found.gist["entry"] == [[1, "#!/usr/bin/env node"]]


@pytest.mark.parametrize("language", ["TypeScript", "TSX"])
def test_typescript(language: str) -> None:
    found = facts(TYPESCRIPT, language)
    assert [row[:2] for row in table(found)] == [
        ("interface", "Shape"),
        ("type", "Pair"),
        ("enum", "Colour"),
        ("module", "Inner"),
        ("function", "Inner.deep"),
        ("class", "Base"),
        ("method", "Base.go"),
        ("method", "Base.run"),
        ("function", "f"),
    ]
    assert imports(found) == [("./types", (), True), ("@/x", (), False)]


def test_go() -> None:
    found = facts(GO, "Go")
    assert table(found) == [
        ("struct", "Counter", 9, None, None),
        ("interface", "Reader", 10, None, None),
        ("type", "Name", 11, None, None),
        ("type", "Kind", 12, None, None),
        ("method", "Counter.Add", 14, 6, 1),
        ("function", "main", 27, 2, 1),
    ]
    assert imports(found) == [("fmt", (), False), ("example.com/app/internal/words", (), False)]
    assert found.gist["package"] == "main"
    assert found.gist["entry"] == [[27, "function main"]]


def test_rust() -> None:
    found = facts(RUST, "Rust")
    assert table(found) == [
        ("struct", "Counter", 6, None, None),
        ("enum", "Kind", 7, None, None),
        ("trait", "Walk", 8, None, None),
        ("method", "Counter.add", 11, 4, 1),
        ("function", "main", 16, 3, 2),
        ("module", "tests", 19, None, None),
        ("function", "tests.it_counts", 21, 2, 1),
    ]
    assert imports(found)[:3] == [
        ("std::fs", (), False),
        ("crate::words::{Count, deep::{A, B as C}}", (), False),
        ("mod words", (), True),
    ]
    assert found.gist["tests"] == 1
    assert found.gist["about"] == "Counts words in a crate."


def test_java() -> None:
    found = facts(JAVA, "Java", "src/test/java/CounterTest.java")
    assert table(found) == [
        ("class", "Counter", 8, None, None),
        ("enum", "Counter.Kind", 9, None, None),
        ("interface", "Counter.Walk", 10, None, None),
        ("method", "Counter.Walk.step", 10, 1, 0),
        ("class", "Counter.Point", 11, None, None),
        ("method", "Counter.Counter", 12, 1, 0),
        ("method", "Counter.count", 13, 7, 2),
        ("method", "Counter.main", 20, 1, 0),
        ("method", "Counter.counts", 21, 1, 0),
    ]
    assert imports(found) == [
        ("java.util.List", (), False),
        ("com.acme.base", ("*",), False),
        ("com.acme.util.Tools.help", (), False),
    ]
    assert found.gist["package"] == "com.acme.words"
    assert found.gist["tests"] == 1
    assert found.gist["entry"] == [[20, "function main"]]


def test_c() -> None:
    found = facts(C, "C")
    assert table(found) == [
        ("struct", "word", 4, None, None),
        ("type", "point", 5, None, None),
        ("enum", "kind", 6, None, None),
        ("macro", "TWICE", 7, None, None),
        ("function", "find", 8, 4, 1),
        ("function", "main", 12, 6, 2),
    ]
    assert imports(found) == [("<stdio.h>", (), False), ('"words.h', (), False)]
    assert found.gist["about"] == "Counts words of a stream, one by one."


def test_cpp() -> None:
    found = facts(CPP, "C++", "tests/words.cc")
    assert [row[:2] + row[3:4] for row in table(found)] == [
        ("module", "words", None),
        ("class", "words.Counter", None),
        ("method", "words.Counter.count", 4),
        ("function", "words.pick", 2),
        ("method", "words::Counter.total", 2),
        ("function", "TEST", 1),
    ]
    assert found.gist["tests"] == 1


@pytest.mark.parametrize("name", sorted(BY_NAME))
@pytest.mark.parametrize(
    "source", [b"", b"\n", b"\xff\xfe\x80" * 50, b"(" * 3_000, b"{[(" * 1_000, b"a" * 500_000, b'"' * 999, b"\r\n\t" * 50]
)
def test_no_bytes_make_it_fail(name: str, source: bytes) -> None:
    gist = read_facts(source, name, "x").gist
    assert gist["lines"] == gist["code"] + gist["comments"] + gist["blank"]


def test_a_function_that_nests_thousands_deep_is_measured() -> None:
    depth = 2_000
    source = "void f() {" + "if (a) {" * depth + "}" * depth + "}"
    function = facts(source, "C").symbols[0]
    assert (function["complexity"], function["nesting"]) == (depth + 1, depth)


def test_lines_of_files_that_are_not_parsed_are_counted() -> None:
    assert plain_facts(b"a\n\n  \nb", "Ruby").gist == {"language": "Ruby", "lines": 4, "code": 2, "comments": 0, "blank": 2}


@pytest.mark.parametrize(
    ("line", "name"),
    [(b"#!/usr/bin/env python3", "Python"), (b"#!/usr/bin/python3.11 -u", "Python"), (b"#!/usr/bin/env node", "JavaScript"),
     (b"#!/bin/sh", ""), (b"x", "")],
)  # fmt: skip
def test_a_script_without_extension_is_known_by_its_first_line(line: bytes, name: str) -> None:
    assert language_of_script(line) == name


def test_every_language_of_the_issue_is_in_the_table() -> None:
    """Issue 4, item 5."""
    assert {"Python", "JavaScript", "TypeScript", "Go", "Rust", "Java", "C", "C++"} <= set(BY_NAME)
    extensions = [extension for language in BY_NAME.values() for extension in language.extensions]
    assert len(extensions) == len(set(extensions))
    assert all(re.fullmatch(r"\.[a-z+]+", extension) for extension in extensions)


def test_whose_a_file_is_does_not_say_what_it_is() -> None:
    header = "# This file is part of Words, which may be found at\n# https://words.example\n#\n# Copyright the authors.\n\n"
    assert read_facts(header.encode() + b"import os\n", "Python", "a.py").gist["about"] == ""
    assert read_facts(header.encode() + b'"""Counts words of a stream."""\n', "Python", "a.py").gist["about"] == "Counts words of a stream."
    free = b"/* This program is free software; you can redistribute it. */\n\n// Counts words of a stream.\nint main(void) { return 0; }\n"
    assert read_facts(free, "C", "a.c").gist["about"] == "Counts words of a stream."


def test_a_package_that_can_be_run_is_an_entry_point_without_a_guard_too() -> None:
    assert read_facts(b"from .cli import main\nmain()\n", "Python", "src/pkg/__main__.py").gist["entry"] == [[1, "run by python -m"]]


@pytest.mark.parametrize(
    ("language", "source"),
    [
        ("Python", "def f(n):\n  match n:\n    case 1: return 1\n    case 2 | 3: return 2\n    case _: return 3\n"),
        ("JavaScript", "function f(n) { switch (n) { case 1: return 1; case 2: return 2; default: return 3 } }"),
        ("Go", "package a\nfunc f(n int) int { switch n { case 1: return 1\n case 2, 3: return 2\n default: return 3 } }"),
        ("Rust", "fn f(n: u8) -> u8 { match n { 1 => 1, 2 | 3 => 2, _ => 3 } }"),
        ("Java", "class A { int f(int n) { switch (n) { case 1: return 1; case 2: return 2; default: return 3; } } }"),
        ("C", "int f(int n) { switch (n) { case 1: return 1; case 2: return 2; default: return 3; } }"),
        ("C++", "int f(int n) { switch (n) { case 1: return 1; case 2: return 2; default: return 3; } }"),
    ],
)
def test_what_is_left_when_no_case_fits_is_no_decision(language: str, source: str) -> None:
    """The same function has the same complexity in every language."""
    assert [one["complexity"] for one in read_facts(source.encode(), language, "a").symbols if one["name"] == "f"] == [3]
