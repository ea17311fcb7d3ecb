"""Findings of a review on the added lines. No secret here is real: they are assembled."""

from pathlib import Path

import pytest
from reviewed_change import diff_of, new_file, review_files, run_review, source, write

from remit.builtin.coder.review.change import Change, ChangedFile
from remit.builtin.coder.review.report import Review

TOKEN = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9" * 2
KEY = "AK" + "IA" + "Q7RST2UVWX4YZ5AB"

PLANTED = {
    "eval": "def f(text):\n    return eval(text)\n",
    "a shell command from text": "import subprocess as s\n\n\ndef f(n):\n    s.run(\n        f'ls {n}',\n        shell=True,\n    )\n",
    "SQL from text": "def f(db, name):\n    return db.execute(f\"SELECT id FROM users WHERE name = '{name}'\")\n",
    "a key in the code": f"KEY = '{KEY}'\n",
    "a password in the code": "db_password = 'tr0ub4dor&3xyz'\n",
    "an exception swallowed": "def f(g):\n    try:\n        g()\n    except:\n        pass\n",
    "a mutable default": "def f(x, seen=[]):\n    seen.append(x)\n    return seen\n",
    "an undefined name": "def f(x):\n    return x + offset\n",
    "a request without a timeout": "import requests\n\n\ndef f(url):\n    return requests.get(url).text\n",
    "yaml.load": "import yaml\n\n\ndef f(text):\n    return yaml.load(text, Loader=yaml.Loader)\n",
    "a weak hash": "import hashlib\n\n\ndef f(password):\n    return hashlib.md5(password).hexdigest()\n",
    "an assert that is always true": "def f(x):\n    assert (x, 'x is missing')\n",
    "a file that is not closed": "def f(path):\n    return open(path).read()\n",
    "a path from outside": "from pathlib import Path\n\n\ndef f(root, name):\n    return (Path(root) / name).read_text()\n",
}
"""Fourteen faults that people plant in reviews; at least the first twelve are found."""


def test_twelve_of_fourteen_planted_faults_are_found(tmp_path: Path) -> None:
    names = {f"pkg/m{number}.py": fault for number, fault in enumerate(PLANTED)}
    found = review_files(tmp_path, {name: PLANTED[fault] for name, fault in names.items()})
    missed = [fault for name, fault in names.items() if not found[name].keys() - {"F401", "S101"}]
    assert set(missed) <= {"a file that is not closed", "a path from outside"}


FOUND = [
    ("m.py", "import os\n\nos.system('ls')\n", "S605", "low"),
    ("m.py", "import os\n\n\ndef f(x):\n    os.system(x)\n", "S605", "high"),
    ("m.py", "from pickle import loads\n\nvalue = loads(b'')\n", "S301", "medium"),
    ("m.py", "import requests\n\nrequests.get('u', verify=False, timeout=1)\n", "S501", "high"),
    ("m.py", "import tempfile\n\nname = tempfile.mktemp()\n", "S306", "medium"),
    ("m.py", "import random\n\ntoken = random.choice('ab')\n", "S311", "low"),
    ("m.py", "import tarfile\n\n\ndef f(p):\n    with tarfile.open(p) as t:\n        t.extractall('x')\n", "S202", "medium"),
    ("m.py", "def f(u):\n    assert u.is_admin\n", "S101", "low"),
    ("m.py", "breakpoint()\n", "T100", "high"),
    ("m.py", "def f():\n    try:\n        g()\n    except Exception:\n        pass\n\n\ndef g():\n    pass\n", "BLE001", "medium"),
    ("m.py", "# ruff: noqa\n\n\ndef f(x):\n    return eval(x)\n", "S307", "high"),
    ("m.py", "def f(x):\n    return eval(x)  # noqa: S307\n", "S307", "high"),
    ("build.py", "import os\n", "F401", "low"),
    ("x.md", "<<<<<<< HEAD\na\n=======\nb\n>>>>>>> other\n", "conflict-marker", "critical"),
    ("x.json", '{"a": 1,}\n', "syntax", "high"),
    ("x.toml", "a = \n", "syntax", "high"),
    ("x.yaml", "a: [1\n", "syntax", "high"),
    ("m.py", "def f(:\n", "syntax", "high"),
    ("m.py", "def f(db, name):\n    return db.execute(f\"SELECT id FROM users WHERE name = '{name}'\")\n", "S608", "high"),
    ("m.py", "def f(x, seen=[]):\n    seen.append(x)\n    return seen\n", "B006", "medium"),
    ("m.py", "def f(x):\n    return x + offset\n", "F821", "medium"),
    ("m.py", "import requests\n\n\ndef f(url):\n    return requests.get(url).text\n", "S113", "low"),
    ("m.py", "import yaml\n\n\ndef f(text):\n    return yaml.load(text, Loader=yaml.Loader)\n", "S506", "high"),
    ("m.py", "import hashlib\n\n\ndef f(password):\n    return hashlib.md5(password).hexdigest()\n", "S324", "medium"),
    ("m.py", "def f(x):\n    assert (x, 'x is missing')\n", "F631", "medium"),
    ("m.go", "package m\n\nfunc f( {\n", "syntax", "low"),
    (".env", "A=1\n", "secret-file", "high"),
    ("m.js", f"const x = '{TOKEN}';\n", "secret", "critical"),
    ("tests/test_m.py", f"x = '{TOKEN}'\n", "secret", "high"),
    ("m.py", "url = 'postgres://me:s3cr3tPa55@db.internal/x'\n", "secret", "high"),
    ("m.py", "K = 'AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q'  # pragma: allowlist secret\n", "secret", "critical"),
    ("m.pem", "-----BEGIN RSA PRIVATE " + "KEY-----\n", "secret", "critical"),
]  # fmt: skip
HARMLESS = [
    ("m.py", '"""Never use eval(x) or os.system(x)."""\n\nWORDS = "subprocess.run(x, shell=True)"\n'),
    ("m.py", "import ast\n\nvalue = ast.literal_eval('1')\n"),
    ("m.py", "import yaml\n\nvalue = yaml.load('a', Loader=yaml.SafeLoader)\n"),
    ("m.py", "import hashlib\n\nvalue = hashlib.md5(b'', usedforsecurity=False)\n"),
    ("m.py", "def f(c, n):\n    c.execute('SELECT a FROM t WHERE n = ?', (n,))\n"),
    ("m.py", "import os\n\npassword = os.environ['DB_PASSWORD']\ntoken = os.getenv('T')\nTOKEN_LIMIT = 4096\nkey = sorted([1])\n"),
    ("m.py", "def f(tokens, expected_token1, *, token=None):\n    token = tokens[0]\n    return token == expected_token1\n"),
    ("m.js", '// eval(x) is not used here\nconst words = "eval(x)";\n'),
    ("README.md", "Run `eval(x)`; TODO: write more.\n"),
    ("package-lock.json", '{"integrity": "sha512-' + "a1B2" * 20 + '=="}\n'),
    ("tests/test_m.py", "def test_it():\n    assert 1 == 1\n    print('x')\n"),
    ("m.rs", "fn f() {\n    unsafe { g() }\n}\n"),
]  # fmt: skip


def test_each_fault_is_found_with_its_severity(tmp_path: Path) -> None:
    files = {f"n{number}/{name}": text for number, (name, text, _, _) in enumerate(FOUND)}
    found = review_files(tmp_path, files)
    wrong = {path: found[path] for path, (_, _, rule, severity) in zip(files, FOUND, strict=True) if found[path].get(rule) != severity}
    assert wrong == {}


def test_harmless_code_has_no_findings(tmp_path: Path) -> None:
    found = review_files(tmp_path, {f"n{number}/{name}": text for number, (name, text) in enumerate(HARMLESS)})
    assert {path: rules for path, rules in found.items() if rules} == {}


def test_only_added_lines_are_reported(tmp_path: Path) -> None:
    old = "import os\n\n\ndef f(x):\n    return eval(x)\n\n\ndef g(x):\n    return x\n"
    text = diff_of(tmp_path, {"m.py": old}, {"m.py": old.replace("    return x\n", "    y = eval(x)\n    return y\n")})
    findings = run_review(source(tmp_path).from_text(text, "a diff")).findings
    assert {(finding.rule, finding.line) for finding in findings} == {("S307", 9)}


def test_settings_of_the_project_are_ignored(tmp_path: Path) -> None:
    write(tmp_path, {"ruff.toml": 'lint.select = ["T20"]\nexclude = ["*.py"]\n', "pkg/pyproject.toml": "this is not TOML"})
    assert "F401" in review_files(tmp_path, {"pkg/m.py": "import os\n"})["pkg/m.py"]


def test_missing_tool_is_reported_and_the_review_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    review = run_review(source(tmp_path).from_text(new_file("m.py", f"eval('{TOKEN}')\n"), "a diff"))
    assert "secret" in {finding.rule for finding in review.findings}
    assert any("ruff: it is not installed" in words for words in review.not_checked)


def test_secrets_are_masked_everywhere(tmp_path: Path) -> None:
    text = f"def f(x='{TOKEN}', y=[]): eval('{TOKEN}' + x)  # TODO {TOKEN}\n"
    review = run_review(source(tmp_path).from_text(new_file("m.py", text), "a diff"))
    assert len(review.findings) >= 3
    assert TOKEN not in review.page() + review.summary() + str(review.to_data())
    assert "[redacted]" in review.page()


def test_secret_by_its_name_alone_is_masked(tmp_path: Path) -> None:
    review = run_review(source(tmp_path).from_text(new_file("m.py", "token = 'three-plain-words'\nprint('three-plain-words')\n"), "a diff"))
    assert {finding.rule for finding in review.findings} == {"S105", "T201"}
    assert "three-plain-words" not in review.page() + str(review.to_data())


def test_secret_in_the_context_of_a_failed_hunk_is_masked(tmp_path: Path) -> None:
    write(tmp_path, {"m.py": f"a = '{TOKEN}'\n"})
    review = run_review(source(tmp_path).from_text("--- a/m.py\n+++ b/m.py\n@@ -1 +1 @@\n-a = 'x'\n+a = 'y'\n", "a diff"))
    assert review.verdict == "does not apply"
    assert TOKEN not in review.page()


def test_links_are_reported_and_binaries_named(tmp_path: Path) -> None:
    link = "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc/passwd\n\\ No newline at end of file\n"
    binary = "diff --git a/x.png b/x.png\nindex 1..2 100644\nBinary files a/x.png and b/x.png differ\n"
    found = run_review(source(tmp_path).from_text(link + binary, "a diff")).findings
    assert {finding.rule for finding in found} == {"link"}
    assert [file.note for file in source(tmp_path).from_text(link + binary, "a diff").files] == ["it is a symbolic link", "it is binary"]


@pytest.mark.parametrize(("is_late", "verdict"), [(False, "looks fine"), (True, "worth a look")])
def test_review_without_findings_looks_fine_only_if_every_check_ran(is_late: bool, verdict: str) -> None:
    review = Review(change=Change(what="a diff", files=[ChangedFile(path="a.py")]), findings=(), is_late=is_late)
    assert (review.verdict, review.to_data()["verdict"]) == (verdict, verdict)
