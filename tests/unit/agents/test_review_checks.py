"""What a review finds and what it leaves alone: each check on the lines that a change adds. Secrets here are put together, none is real."""

from pathlib import Path

import pytest
from reviewed_change import added, diff_of, reviewed, write

from remit.agents.builtin.coder.review import report
from remit.agents.builtin.coder.review.secrets import Masking, secrets_in

TOKEN = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0" * 2
KEY = "AK" + "IA" + "Q7RST2UVWX4YZ5AB"

RISKY = [
    ("m.py", "import subprocess as s\n\n\ndef f(c):\n    s.run(\n        c,\n        shell=True,\n    )\n", "shell", "high"),
    ("m.py", "import os\n\nos.system('ls')\n", "shell", "low"),
    ("m.py", "def f(x):\n    return eval(x)\n", "eval", "high"),
    ("m.py", "from pickle import loads\n\nvalue = loads(b'')\n", "pickle", "medium"),
    ("m.py", "import yaml\n\nvalue = yaml.load('a')\n", "yaml-load", "high"),
    ("m.py", "import requests\n\nrequests.get('u', verify=False, timeout=1)\n", "no-verify", "high"),
    ("m.py", "import tempfile\n\nname = tempfile.mktemp()\n", "mktemp", "medium"),
    ("m.py", "def f(c, n):\n    c.execute(f\"SELECT a FROM t WHERE n = '{n}'\")\n", "sql", "high"),
    ("m.py", "def f():\n    try:\n        g()\n    except Exception:\n        pass\n\n\ndef g():\n    pass\n", "swallowed", "medium"),
    ("m.py", "def f(x=[]):\n    return x\n", "mutable-default", "medium"),
    ("m.py", "import random\n\ntoken = random.choice('ab')\n", "weak-random", "medium"),
    ("m.py", "def f(u):\n    assert u.is_admin\n", "assert", "medium"),
    ("m.py", "breakpoint()\n", "breakpoint", "high"),
    ("m.js", "const f = (x) => eval(x);\n", "eval", "high"),
    ("m.tsx", "const a = <div dangerouslySetInnerHTML={{__html: x}} />;\n", "inner-html", "medium"),
    ("m.js", "require('child_process').exec(`rm ${name}`);\n", "shell", "high"),
    ("a.test.js", "it.only('x', () => {});\n", "only", "high"),
    ("m.go", 'package m\n\nfunc f(a string) { exec.Command("sh", "-c", a) }\n', "shell", "high"),
    ("m.go", "package m\n\nvar c = tls.Config{InsecureSkipVerify: true}\n", "no-verify", "high"),
    ("m.rs", "fn f() { unsafe { g() } }\n", "unsafe", "medium"),
    ("M.java", "class M { void f(String a) { Runtime.getRuntime().exec(a); } }\n", "shell", "high"),
    ("m.c", "void f(char *a, char *b) { strcpy(a, b); }\n", "unbounded-copy", "high"),
    ("i.sh", "curl -sSL https://example.org/i | sudo bash\n", "download-and-run", "high"),
    ("i.sh", "chmod 777 x\n", "open-to-all", "medium"),
    (".github/workflows/a.yml", "run: echo ${{ github.event.issue.title }}\n", "workflow-injection", "high"),
    ("x.md", "<<<<<<< HEAD\na\n=======\nb\n>>>>>>> other\n", "conflict-marker", "critical"),
    ("x.json", '{"a": 1,}\n', "syntax", "high"),
    ("x.toml", "a = \n", "syntax", "high"),
    ("x.yaml", "a: [1\n", "syntax", "high"),
    ("m.py", "def f(:\n", "syntax", "high"),
    ("m.py", "def f(:\n    return os.system(x)\n", "shell", "high"),
    ("m.py", "def f(x):\n    return eval(x\n", "eval", "high"),
    ("m.py", "def f(:\n    db.execute(f\"SELECT a FROM t WHERE n = '{n}'\")\n", "sql", "high"),
    (".env", "A=1\n", "secret-file", "high"),
    ("m.py", f"KEY = '{KEY}'\n", "secret", "critical"),
    ("m.py", f"x = '{TOKEN}'\n", "secret", "critical"),
    ("m.py", "db_password = 'tr0ub4dor&3xyz'\n", "secret", "high"),
    ("m.py", "url = 'postgres://me:s3cr3tPa55@db.internal/x'\n", "secret", "high"),
    ("m.pem", "-----BEGIN RSA PRIVATE " + "KEY-----\n", "secret", "critical"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "rule", "severity"), RISKY, ids=[f"{name}-{rule}" for name, _, rule, _ in RISKY])
def test_it_is_found(tmp_path: Path, name: str, text: str, rule: str, severity: str) -> None:
    assert added(tmp_path, name, text).get(rule) == severity


HARMLESS = [
    ("m.py", '"""Never use eval(x) or os.system(x)."""\n\nWORDS = "subprocess.run(x, shell=True)"\n'),
    ("m.js", '// eval(x) is not used here\nconst words = "eval(x)";\n'),
    ("m.c", '/* strcpy(a, b) */\nconst char *w = "gets(x)";\n'),
    ("m.py", "import ast\n\nvalue = ast.literal_eval('1')\n"),
    ("m.py", "import yaml\n\nvalue = yaml.load('a', Loader=yaml.SafeLoader)\n"),
    ("m.py", "import hashlib\n\nvalue = hashlib.md5(b'', usedforsecurity=False)\n"),
    ("m.py", "def f(c, n):\n    c.execute('SELECT a FROM t WHERE n = ?', (n,))\n"),
    (
        "m.py",
        "import os\n\npassword = os.environ['DB_PASSWORD']\ntoken = os.getenv('T')\nTOKEN_LIMIT = 4096\n",
    ),
    ("m.py", 'api_key = "your-api-key-here"\nsecret = "<put it here>"\npassword = "changeme123"\n'),
    ("m.rs", "fn f() {\n    // SAFETY: g has no preconditions\n    unsafe { g() }\n}\n"),
    ("README.md", "Run `eval(x)`; TODO: write more. AKIAIOSFODNN7EXAMPLE is an example.\n"),
    ("package-lock.json", '{"integrity": "sha512-' + "a1B2" * 20 + '=="}\n'),
    ("m.py", "assert isinstance(1, int)\n"),
    ("m.py", "COLUMNS = 'a, b'\n\n\ndef f(db):\n    return db.execute(f'SELECT {COLUMNS} FROM t')\n"),
]


@pytest.mark.parametrize(("name", "text"), HARMLESS)
def test_what_is_harmless_is_left_alone(tmp_path: Path, name: str, text: str) -> None:
    found = added(tmp_path, name, text)
    assert {rule: how for rule, how in found.items() if rule not in ("lock-alone", "missing-tests")} == {}


def test_only_lines_that_the_change_adds_are_spoken_of(tmp_path: Path) -> None:
    old = "import os\n\n\ndef f(x):\n    return eval(x)\n\n\ndef g(x):\n    return x\n"
    text = diff_of(tmp_path, {"m.py": old}, {"m.py": old.replace("    return x\n", "    y = eval(x)\n    return y\n")})
    lines = {finding.line for finding in reviewed(tmp_path, text).findings if finding.line}
    assert lines == {9}


def test_ruff_is_asked_with_the_projects_own_settings(tmp_path: Path) -> None:
    write(tmp_path, {"ruff.toml": 'lint.select = ["T20"]\n'})
    text = "import os\nprint(1)\n"
    assert "T201" in added(tmp_path, "pkg/m.py", text) or "print" in added(tmp_path, "pkg/m.py", text)
    assert "F401" not in added(tmp_path, "pkg/m.py", text)
    (tmp_path / "ruff.toml").unlink()
    other = tmp_path / "other"
    other.mkdir()
    assert "F401" in added(other, "pkg/n.py", text)


def test_settings_that_ruff_cannot_use_are_told_and_the_review_goes_on(tmp_path: Path) -> None:
    write(tmp_path, {"ruff.toml": "this is not TOML"})
    diff = "--- /dev/null\n+++ b/m.py\n@@ -0,0 +1 @@\n+import os\n"
    one = reviewed(tmp_path, diff)
    assert "F401" in {finding.rule for finding in one.findings}
    assert any("could not be used" in words for words in one.not_checked)


def test_a_missing_tool_is_told_and_the_review_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.agents.builtin.coder.review.linting.find_tool", lambda name: None)
    one = reviewed(tmp_path, "--- /dev/null\n+++ b/m.py\n@@ -0,0 +1,2 @@\n+import os\n+eval(os)\n")
    assert "eval" in {finding.rule for finding in one.findings}
    assert any("ruff: it is not installed" in words for words in one.not_checked)


def test_secrets_are_masked_wherever_they_turn_up(tmp_path: Path) -> None:
    text = f"def f(x='{TOKEN}', y=[]): eval('{TOKEN}' + x)  # TODO {TOKEN}\n"
    one = reviewed(tmp_path, f"--- /dev/null\n+++ b/m.py\n@@ -0,0 +1 @@\n+{text}")
    assert len(one.findings) >= 3
    assert TOKEN not in report.written(one) + report.summary(one) + str(one.to_data())
    assert "ghp_…(44 characters)" in report.written(one)


def test_a_secret_that_stands_where_a_hunk_fails_is_masked_too(tmp_path: Path) -> None:
    write(tmp_path, {"m.py": f"a = '{TOKEN}'\n"})
    one = reviewed(tmp_path, "--- a/m.py\n+++ b/m.py\n@@ -1 +1 @@\n-a = 'x'\n+a = 'y'\n")
    assert one.verdict == "does not apply"
    assert TOKEN not in report.written(one)


def test_two_secrets_of_which_one_holds_the_other_are_both_masked() -> None:
    masking = Masking()
    masking.learn(f"x = '{TOKEN}'")
    masking.learn(f"y_token = '{TOKEN}XYZ123'")
    assert TOKEN[5:30] not in masking.strike(f"{TOKEN}XYZ123 and {TOKEN}")


def test_an_ordinary_line_holds_no_secret() -> None:
    for line in (
        "token = tokens[0]",
        "secret_name = 'aws/prod/db'",
        "password: str = field(default='')",
        "if token == expected_token1:",
        "key = sorted(x)",
    ):
        assert list(secrets_in(line)) == [], line


# ---- seen from afar


def test_a_name_that_is_gone_but_still_imported_is_told(tmp_path: Path) -> None:
    before = {
        "pkg/a.py": "def one():\n    return 1\n\n\ndef two(x):\n    return x\n",
        "pkg/b.py": "from pkg.a import one, two\n\nprint(one(), two(1))\n",
    }
    after = {**before, "pkg/a.py": "def two(x, y):\n    return x + y\n"}
    found = [finding.message for finding in reviewed(tmp_path, diff_of(tmp_path, before, after)).findings if finding.rule == "callers-left"]
    assert any(message.startswith("one is gone, but it is still used at pkg/b.py:1") for message in found)
    assert any(message.startswith("two now needs y, but it is still used at pkg/b.py:1") for message in found)


STORE = """class Store:
    def get_path(self, scope{more}):
        return scope

    def read(self):
        return self.get_path({given})


class Other:
    def read(self):
        return self.get_path(1)


def load(name{more}):
    return name


print(load({given}))
"""


@pytest.mark.parametrize(
    ("more", "given", "lines"),
    [
        (", mode", "scope", [6, 18]),
        (", *, mode", "scope", [6, 18]),
        (", mode", "scope, 1", []),
        (", mode", "scope, mode=1", []),
        (", mode", "*scope", []),
        (", mode", "**scope", []),
        (", mode=1", "scope", []),
        ("", "scope, 1", [6, 18]),
        (", *, mode=1", "scope, other=1", [6, 18]),
    ],
)
def test_a_call_in_the_same_file_that_no_longer_fits_is_told(tmp_path: Path, more: str, given: str, lines: list[int]) -> None:
    before = STORE.format(more="" if more else ", mode=1", given="scope")
    change = diff_of(tmp_path, {"a.py": before}, {"a.py": STORE.format(more=more, given=given)})
    found = [finding for finding in reviewed(tmp_path, change).findings if finding.rule == "callers-left"]
    assert sorted(finding.line or 0 for finding in found) == lines


def test_a_name_whose_callers_change_with_it_is_not_told(tmp_path: Path) -> None:
    before = {"pkg/a.py": "def one():\n    return 1\n", "pkg/b.py": "from pkg.a import one\n\nprint(one())\n"}
    after = {"pkg/a.py": "def uno():\n    return 1\n", "pkg/b.py": "from pkg.a import uno\n\nprint(uno())\n"}
    assert "callers-left" not in {finding.rule for finding in reviewed(tmp_path, diff_of(tmp_path, before, after)).findings}


def test_code_without_tests_is_told_unless_a_test_speaks_of_it(tmp_path: Path) -> None:
    code = "def reckon(x):\n    a = x\n    b = a\n    c = b\n    return c\n"
    assert added(tmp_path, "pkg/sums.py", code)["missing-tests"] == "low"
    assert added(tmp_path, "pkg/sums.py", code, "tests are required")["missing-tests"] == "high"
    write(tmp_path, {"tests/test_sums.py": "from pkg.sums import reckon\n"})
    assert "missing-tests" not in added(tmp_path, "pkg/sums.py", code)


def test_a_large_change_is_told_and_a_large_lock_file_is_not(tmp_path: Path) -> None:
    assert added(tmp_path, "a.py", "x = 1\n" * 500)["size"] == "low"
    assert added(tmp_path, "a.py", "x = 1\n" * 900)["size"] == "medium"
    assert "size" not in added(tmp_path, "poetry.lock", "x = 1\n" * 900)


def test_dependencies_modes_links_and_binaries_are_told(tmp_path: Path) -> None:
    found = added(tmp_path, "requirements.txt", "httpx==1.0\n")
    assert found == {"dependencies": "info"}
    link = "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc/passwd\n\\ No newline at end of file\n"
    mode = "diff --git a/x.sh b/x.sh\nold mode 100644\nnew mode 100755\n"
    binary = "diff --git a/x.png b/x.png\nindex 1..2 100644\nBinary files a/x.png and b/x.png differ\n"
    write(tmp_path, {"x.sh": "echo\n"})
    assert {finding.rule for finding in reviewed(tmp_path, link + mode + binary).findings} == {"link", "mode", "binary"}


# ---- guidelines


def test_guidelines_become_checks_and_the_rest_is_told_as_not_checked(tmp_path: Path) -> None:
    rules = """
    security-first, clean-code
    - max line length 60
    - functions under 4 lines
    - Every public function has a docstring
    - no print statements
    - at most 2 parameters
    - forbid: \\bfoo\\b
    - require: ^"{3} in *.py
    - Be kind to whoever reads this.
    """
    text = "def foo(a, b, c):\n    print(a)\n    x = hash(b)\n    y = hash(c)\n    return x, y  # " + "long " * 12 + "\n"
    lines = text.splitlines()
    diff = f"--- /dev/null\n+++ b/pkg/m.py\n@@ -0,0 +1,{len(lines)} @@\n" + "".join(f"+{line}\n" for line in lines)
    one = reviewed(tmp_path, diff, rules)
    found = {finding.rule: str(finding.severity) for finding in one.findings}
    expected = {"line-length", "function-lines", "docstring", "print", "parameters", "forbidden", "required"}
    assert expected <= set(found)
    assert found["print"] == "medium"
    assert one.matter.guidelines.unchecked == ["Be kind to whoever reads this."]
    assert "guideline: Be kind to whoever reads this." in report.written(one)


def test_guidelines_of_a_document_are_its_demands(tmp_path: Path) -> None:
    demands = "- Never use eval.\n- Lines must be under 100 characters\n- The office is in Ulm\n"
    write(tmp_path, {"CONTRIBUTING.md": f"# How\n\nWe are friendly.\n\n{demands}"})
    one = reviewed(tmp_path, "--- /dev/null\n+++ b/m.py\n@@ -0,0 +1 @@\n+x = 1\n", "CONTRIBUTING.md")
    assert one.matter.guidelines.checked == ["Never use eval.", "Lines must be under 100 characters"]
    assert one.matter.guidelines.line_length == 100


def test_a_regular_expression_that_never_ends_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.agents.builtin.coder.review.guided.REGEX_SECONDS", 1.0)
    one = reviewed(tmp_path, "--- /dev/null\n+++ b/m.txt\n@@ -0,0 +1 @@\n+" + "a" * 3000 + "!\n", "forbid: (a+)+$")
    assert any("matching took too long" in words for words in one.not_checked)


def test_a_test_that_uses_the_same_word_does_not_speak_of_a_new_file(tmp_path: Path) -> None:
    write(tmp_path, {"tests/test_ground.py": "def test_it():\n    area = 3\n    assert area\n"})
    code = "def area(x):\n    a = x\n    b = a\n    c = b\n    return c\n"
    assert "missing-tests" in added(tmp_path, "pkg/sums.py", code)
