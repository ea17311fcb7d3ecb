"""Third-party programs that tests run: `REMIT_TOOLS` names the folder that `make tools` fills, by default `.tools`."""

import os
from pathlib import Path

MODULES = Path(os.environ.get("REMIT_TOOLS") or Path(__file__).parents[2] / ".tools") / "node_modules"
PROGRAMS = MODULES / ".bin"
