"""An API caller reads only the files that its own delegations left in `.remit/scratch`."""

from pathlib import Path
from typing import Any

from remit import Context, Remit, Return, agent
from support.server import Call, Principal, Service

ALICE, EVE = (Call(principal=Principal(name=name), api="http") for name in ("token:alice", "token:eve"))
WORDS = "quarterly figures"


@agent("reporter")
async def reporter(ctx: Context) -> str:
    (ctx.scratch / "report.md").write_text(f"{WORDS}\n")
    return "written"


@agent("reader")
async def reader(ctx: Context, path: str) -> Any:
    """Reads files in the tree of its caller."""
    return (await ctx.delegate("worker.read_file", path=path)).data


async def asked(remit: Remit, call: Call, target: str, **parameters: Any) -> Return:
    agent_name, _, operation = target.partition(".")
    request = {"target": agent_name, "parameters": parameters, **({"operation": operation} if operation else {})}
    return await (await Service(remit).begin(call, request)).result()


async def test_scratch_files_of_another_token_are_refused(tmp_path: Path) -> None:
    (tmp_path / "shelf").symlink_to(".remit/scratch")
    async with Remit.open(tmp_path, agents=[reporter, reader]) as remit:
        sessions = [
            (await asked(remit, ALICE, "reporter")).session_id,
            (await remit.delegate("reporter")).session_id,
        ]
        folders = [*(f".remit/scratch/{session}" for session in sessions), *(f"shelf/{session}" for session in sessions), "shelf"]
        for folder in [*folders, ".remit/scratch", ".remit"]:
            attempts = [
                await asked(remit, EVE, "worker.read_file", path=f"{folder}/report.md"),
                await asked(remit, EVE, "worker.list_files", path=folder, include_ignored=True),
                await asked(remit, EVE, "worker.search_files", path=folder, pattern="figures", include_ignored=True),
                await asked(remit, EVE, "reader", path=f"{folder}/report.md"),
            ]
            assert WORDS not in str([one.data for one in attempts]), folder
            assert [one.errors[0].code for one in attempts[:3]] == ["POLICY_DENIED"] * 3, folder
        everywhere = await asked(remit, EVE, "worker.search_files", path=".", pattern="figures", include_ignored=True)
        assert everywhere.data["matches"] == []
        for mine in (ALICE, None):
            read = (
                remit.delegate("worker.read_file", path=f"{folders[0]}/report.md")
                if mine is None
                else asked(remit, mine, "worker.read_file", path=f"{folders[0]}/report.md")
            )
            assert WORDS in (await read).data["content"]
        assert (await asked(remit, ALICE, "reader", path=f"{folders[0]}/report.md")).data["content"] == f"{WORDS}\n"


async def test_diff_of_another_token_cannot_be_reviewed_as_an_artifact(tmp_path: Path) -> None:
    @agent("differ")
    async def differ(ctx: Context) -> str:
        (ctx.scratch / "changes.diff").write_text("--- /dev/null\n+++ b/a.py\n@@ -0,0 +1 @@\n+eval(input())\n")
        return "written"

    @agent("namer")
    async def namer(ctx: Context, path: str) -> dict[str, Any]:
        return {"status": "completed", "summary": "Here it is.", "artifacts": [{"type": "data", "path": path}], "errors": []}

    async with Remit.open(tmp_path, agents=[differ, namer]) as remit:
        theirs = (await asked(remit, ALICE, "differ")).session_id
        mine = (await asked(remit, EVE, "namer", path=f".remit/scratch/{theirs}/changes.diff")).session_id
        reviews = [await asked(remit, EVE, "coder.review_code", session=session) for session in (theirs, mine)]
    assert ["may read" in reviews[0].errors[0].message, "no recorded diff" in reviews[1].errors[0].message] == [True, True]
