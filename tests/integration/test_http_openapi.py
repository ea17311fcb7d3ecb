"""The OpenAPI document describes what the REST API does: schemathesis checks it with valid and invalid data."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from http_harness import Harness, count, fails, http_harness

ROOT = Path(__file__).parents[2]
CONFIG = """
[checks.positive_data_acceptance]
# A valid document may still name an unknown agent, or parameters that the agent does not accept.
expected-statuses = ["2xx", "3xx", "400", "401", "403", "404", "409", "5xx"]
"""


async def run_schemathesis(harness: Harness, folder: Path, schema: str, *options: str) -> str:
    """The output of the command line of schemathesis, run as a process."""
    config = folder / "schemathesis.toml"
    config.write_text(CONFIG)
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run", schema, "--url", harness.url]
    command += ["--header", f"Authorization: Bearer {harness.token()}", "--generation-deterministic"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, "--no-color", "--warnings", "off", *options, cwd=folder, stdout=pipe, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(100):
            output = (await process.communicate())[0].decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, output
    return output


def with_known_agents(document: dict[str, Any]) -> dict[str, Any]:
    """The same document with requests that an agent accepts, so that stateful checks have tasks to work on."""
    request = document["components"]["schemas"]["TaskRequest"]
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"], "additionalProperties": False}
    request["properties"] |= {"target": {"enum": ["text", None]}, "operation": {"enum": ["count"]}, "parameters": parameters}
    request["required"] = ["operation", "parameters"]
    request.pop("examples")
    return document


async def test_schemathesis_finds_no_difference_from_the_document(tmp_path: Path) -> None:
    async with http_harness(tmp_path, agents=(count, fails)) as harness:
        client = await harness.client()
        document = tmp_path / "openapi.json"
        document.write_text(json.dumps(with_known_agents((await client.get("/openapi.json")).json())))
        output = await run_schemathesis(harness, tmp_path, str(document), "--phases", "coverage,fuzzing,stateful", "--max-examples", "4")
        assert "8 selected / 8 total" in output
        assert (await client.get("/v1/tasks?state=COMPLETED&limit=1")).json()["tasks"], output
        assert (await client.get("/healthz")).status_code == 200


def test_document_lists_exactly_the_routes() -> None:
    from starlette.routing import Route

    from remit.server.http.api import SPECIFICATION, openapi, routes

    document = openapi()
    described = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    routed = {
        (route.path, method)
        for route in routes(None)  # type: ignore[arg-type]
        if isinstance(route, Route) and route.path != SPECIFICATION
        for method in (route.methods or ()) - {"HEAD"}
    }
    assert described == routed
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert all(operation["description"] and "default" in operation["responses"] for operation in operations)
    references = {part.rpartition("/")[2] for part in json.dumps(document).split('"') if part.startswith("#/components/schemas/")}
    assert references <= set(document["components"]["schemas"])


def test_generated_clients_may_omit_every_default_and_get_one_type_per_status() -> None:
    from remit.server.http.api import openapi

    document = openapi()
    request = document["components"]["schemas"]["TaskRequest"]
    assert '"default": null' not in json.dumps(document)
    assert [one["required"] for one in request["anyOf"]] == [["target"], ["operation"]]
    assert not request.get("required")
    responses = [responses for methods in document["paths"].values() for one in methods.values() for responses in one["responses"].items()]
    assert [status for status, response in responses if len(response.get("content", {})) > 1] == []


def test_reference_lists_every_operation_field_and_code() -> None:
    from remit.server.http.api import OPERATIONS
    from remit.server.http.models import TaskRequest
    from remit.server.http.rest_messages import CODES

    text = (ROOT / "docs" / "reference" / "http.md").read_text()
    for operation in OPERATIONS:
        assert f"| `{operation.method} {operation.path}` | {operation.description.partition('. ')[0].rstrip('.')} |" in text
    assert [name for name in TaskRequest.model_fields if f"| `{name}` |" not in text] == []
    assert [code for code, status in CODES.items() if f"| `{code}` | {status} |" not in text] == []


async def test_curl_commands_of_the_guide_work(tmp_path: Path) -> None:
    import shutil

    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    guide = (ROOT / "docs" / "how-to" / "call-remit-by-http.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```$", guide, flags=re.MULTILINE | re.DOTALL)[1:]
    async with http_harness(tmp_path, builtin_agents=["worker"]) as harness:
        assert (tmp_path / ".remit" / "run" / "serve.token").exists()
        script = "".join(blocks).replace("http://127.0.0.1:7411", harness.url).replace("curl ", "curl --fail-with-body -m 30 ")
        process = await asyncio.create_subprocess_exec("sh", "-ec", script, cwd=tmp_path, stdout=asyncio.subprocess.PIPE)
        output = (await process.communicate())[0].decode()
        assert process.returncode == 0, output
    assert output.count('"taskState":"COMPLETED"') >= 3
    assert "event: complete" in output
