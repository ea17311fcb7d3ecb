"""A task from its first words to the archive: studied, planned, carried out, reviewed. One function stands in for a coding agent."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

FILES = {
    "ages.py": 'def age(text):\n    """Years, as a number."""\n    return int(text)\n',
    "README.md": "# Ages\n\nAn age is read by `age`, which fails for text that is no number.\n",
    ".remit/agents/implementer.py": """
from remit import Context, agent

WORK = {
    1: ("test_ages.py", "import ages\\n\\nassert ages.age('?') is None\\n"),
    2: ("ages.py", "def age(text):\\n    return int(text) if text.isdigit() else None\\n"),
    3: ("README.md", "# Ages\\n\\nAn age that is no number is None.\\n"),
}


@agent("implementer")
async def implementer(ctx: Context, task: str, phase: int, **more: object) -> dict[str, object]:
    path, text = WORK[phase]
    (ctx.root / path).write_text(text)
    return {"status": "completed", "summary": f"Wrote {path}. It is short.", "artifacts": [{"type": "implementation", "path": path}]}
""",
}
SESSION = """
remit task "Read unknown ages:\\n1. Test for None\\n2. Return None\\n3. Document it" --language python --accept "python test_ages.py"
remit research 1 "What fails?"
remit plan 1
remit implement 1
remit review 1
remit todo
git log --format=%s
"""


def run(line: str) -> str:
    command, *rest = (word.replace("\\n", "\n") for word in shlex.split(line))
    program = [sys.executable, "-m", "remit"] if command == "remit" else [command]
    surroundings = {**os.environ, "COLUMNS": "100", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ran = subprocess.run([*program, *rest], capture_output=True, text=True, check=False, env=surroundings)
    return ran.stdout or ran.stderr


for path, text in FILES.items():
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
for line in ("git init -q", "git config user.name Ann", "git config user.email ann@example.org", "git add .", "git commit -qm Begin"):
    run(line)
for line in SESSION.strip().splitlines():
    said = re.sub(r"sess_\d+_\w{6}|(?<=commit  )[0-9a-f]{7,}|\d{4}-?\d\d-?\d\d", "…", run(line))  # what differs from run to run
    print(f"$ {line}\n{said}")
