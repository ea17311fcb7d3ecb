"""A board kept from the command line: tasks recorded, drawn, divided, given up and archived. No agent runs."""

import os
import shlex
import subprocess
import sys

SESSION = """
remit task "Read the new format. Old files must still be read." --language python --accept "make test"
remit task "Write the new format" --depends 1 --priority high
remit task "Tell users:\\n1. write the notes\\n2. publish them" --depends 2
remit task --divide 3
remit board
remit task --abandon 4, 5 --reason "The notes are written by marketing"
remit todo
remit board --status ready
"""

for line in SESSION.strip().splitlines():
    print(f"$ {line}", flush=True)
    remit = [sys.executable, "-m", "remit", *(word.replace("\\n", "\n") for word in shlex.split(line)[1:])]
    subprocess.run(remit, check=True, env={**os.environ, "COLUMNS": "88"})
    print(flush=True)
