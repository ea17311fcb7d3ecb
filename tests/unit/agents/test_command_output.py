"""What a command prints: pieces worth reading, and its end."""

import asyncio

from remit.agents.command.output import KEPT_BYTES, PIECE_CHARACTERS, Output


async def read(*parts: bytes) -> tuple[Output, list[str]]:
    told: list[str] = []
    output = Output(told.append)
    reader = asyncio.StreamReader()
    reading = asyncio.create_task(output.read(reader))
    for part in parts:
        reader.feed_data(part)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    reader.feed_eof()
    await reading
    return output, told


async def test_all_of_it_is_told_and_kept_whatever_the_bytes() -> None:
    output, told = await read("ä".encode()[:1], "ä".encode()[1:], b"\xff\x00", b"end")
    assert "".join(told) == output.text() == "ä\ufffd\x00end"


async def test_many_small_writes_are_few_pieces() -> None:
    output, told = await read(*[b"x\n"] * 5000)
    assert output.text() == "x\n" * 5000
    assert len(told) < 100


async def test_a_large_write_is_cut_into_pieces() -> None:
    _, told = await read(b"x" * (3 * PIECE_CHARACTERS + 1))
    assert [len(piece) for piece in told] == [PIECE_CHARACTERS] * 3 + [1]


async def test_of_too_much_the_end_is_kept() -> None:
    output, _ = await read(*[b"x" * (1 << 20)] * 20, b"the end")
    assert output.is_cut
    assert output.count == 20 * (1 << 20) + 7
    assert len(output.text()) == KEPT_BYTES
    assert output.text().endswith("xthe end")
