"""A repository analysed: what it is, where it starts, what is risky. Here a small one, made on the spot."""

import asyncio
from pathlib import Path

from remit import Remit

FILES = {
    "words/__init__.py": '"""Words, counted."""\n',
    "words/main.py": "from words.count import count\n\n\ndef main():\n    print(count('a'))\n\n\nif __name__ == '__main__':\n    main()\n",
    "words/count.py": "def count(text):\n    # TODO: other alphabets\n    return len(text.split()) if text else 0\n",
    "words/guess.py": "def guess(text):\n    return 'en' if 'the' in text or 'and' in text else 'de'\n",
    "tests/test_count.py": "from words.count import count\n\n\ndef test_count():\n    assert count('a b') == 2\n",
}


def write_files() -> None:
    for name, text in FILES.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)


async def main() -> None:
    async with Remit.open(".") as remit:
        done = await remit.delegate("coder.analyze_code", parameters={"path": ".", "patterns": ["**/*.py"]})
    print(done.status, "-", done.summary)
    print("starts at:", done.data["entryPoints"][0]["path"])
    print("untested:", [one["path"] for one in done.data["tests"]["untouchedFiles"]])
    print("artifacts:", sorted(Path(artifact.path).name for artifact in done.artifacts))


if __name__ == "__main__":
    write_files()
    asyncio.run(main())
