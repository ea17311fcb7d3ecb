"""A change reviewed before it goes in: does it apply, and what is wrong with it?"""

import asyncio
from pathlib import Path

from remit import Remit

BEFORE = "def backup(name):\n    return name\n"
CHANGE = """\
--- a/backup.py
+++ b/backup.py
@@ -1,2 +1,5 @@
+import os
+
 def backup(name):
+    os.system(f"tar czf /tmp/{name}.tgz {name}")
     return name
"""


async def main() -> None:
    async with Remit.open(".") as remit:
        done = await remit.delegate("coder.review_code", diff=CHANGE, guidelines="Use no shell.")
    print(f"{done.data['applies']}; {done.data['verdict']}")
    for finding in done.data["findings"]:
        print(f"{finding['file']}:{finding['line']} {finding['severity']}: {finding['message']} {finding['suggestion']}")
    print(done.artifacts[0].type, Path(done.artifacts[0].path).name)


if __name__ == "__main__":
    Path("backup.py").write_text(BEFORE)
    asyncio.run(main())
