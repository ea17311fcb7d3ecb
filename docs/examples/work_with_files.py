"""The worker reads, writes, lists, searches and deletes files of the project, and nothing outside of it."""

import asyncio

from remit import Remit


async def main() -> None:
    async with Remit.open(".") as remit:
        read = await remit.delegate("worker.read_file", path="README.md")
        print(read.data["encoding"], repr(read.data["content"]))

        wrote = await remit.delegate("worker.write_file", path="docs/guide.md", content="# Guide\nthree words here\n", create_parents=True)
        print(wrote.summary)

        listed = await remit.delegate("worker.list_files", pattern="*.md")
        print([entry["path"] for entry in listed.data["entries"]])

        found = await remit.delegate("worker.search_files", pattern="three")
        print([(one["path"], one["line"], one["column"]) for one in found.data["matches"]])

        outside = await remit.delegate("worker.read_file", path="../secrets.txt")
        print(outside.status, outside.errors[0].code)

        print((await remit.delegate("worker.delete_file", path="docs", recursive=True)).summary)


if __name__ == "__main__":
    asyncio.run(main())
