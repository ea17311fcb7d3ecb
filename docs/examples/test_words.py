"""A test of the tutorial's agents, as tests/test_words.py of its folder: the real `words.folder`, with a scripted child."""

from pathlib import Path

from remit import Remit, StopReason
from remit.testing import Scripted, answer, fail, hang, load_agents

AGENTS = load_agents(Path(__file__).parents[1] / ".remit" / "agents")


async def test_unreadable_file_is_named_in_the_report(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).touch()
    count = Scripted("words.count", answer(7), fail("no such page"))
    async with Remit.open(tmp_path, agents=[AGENTS["words.folder"], count]) as remit:
        done = await remit.delegate("words.folder")
    assert done.summary == "Counted 2 files. They hold 7 words in all."
    assert "no such page" in (tmp_path / "words.md").read_text()
    assert sorted(call["path"] for call in count.calls) == ["a.txt", "b.txt"]


async def test_hanging_child_does_not_block_its_caller(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    async with Remit.open(tmp_path, agents=[AGENTS["words.folder"], Scripted("words.count", hang())]) as remit:
        done = await remit.delegate("words.folder", timeout=0.5)
    assert done.stop_reason is StopReason.DEADLINE
