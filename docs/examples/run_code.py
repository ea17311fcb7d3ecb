"""Have somebody else's program count words, and see what it cannot do."""

import asyncio

from remit import Remit

COUNT = """
import collections, json
words = collections.Counter(open("README.md").read().split())
json.dump(words, open("words.json", "w"))
print(words.total(), "words")
"""
STEAL = "print(open('/etc/shadow').read())"


async def main() -> None:
    async with Remit.open(".") as remit:
        counted = await remit.delegate("coder.execute_code", parameters={"code": COUNT, "files": ["README.md"]})
        print(f"{counted.status}: {counted.data['stdout'].strip()}, {[file['name'] for file in counted.data['files']]}")
        stolen = await remit.delegate("coder.execute_code", parameters={"code": STEAL})
        print(f"{stolen.status}: exit code {stolen.data['exitCode']}, nothing printed: {stolen.data['stdout'] == ''}")


asyncio.run(main())
