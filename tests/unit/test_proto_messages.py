"""The code of the gRPC messages is made by the build from their .proto file, and is as that is now (issue 7 item 1)."""

import subprocess
import sys
import tomllib
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


def test_the_messages_are_those_of_the_proto_file(tmp_path: Path) -> None:
    """What is told here is mended by `make set-up`."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    from remit.agents.proto.v1 import tasks_pb2

    made = tmp_path / "set"
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"-I{SOURCE}",
        f"--descriptor_set_out={made}",
        "remit/agents/proto/v1/tasks.proto",
    ]
    subprocess.run(command, check=True, cwd=SOURCE, timeout=60)
    here = FileDescriptorProto()
    tasks_pb2.DESCRIPTOR.CopyToProto(here)
    [there] = FileDescriptorSet.FromString(made.read_bytes()).file
    for one in (here, there):
        one.ClearField("syntax")  # said by one of them and understood by the other
        for message in one.message_type:
            for field in message.field:
                field.ClearField("json_name")
    assert here == there


def test_the_messages_go_along_with_the_package_and_grpc_does_not() -> None:
    project = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())
    assert {"agents/proto/v1/*.proto", "agents/proto/v1/*.pyi"} <= set(project["tool"]["setuptools"]["package-data"]["remit"])
    assert any(one.startswith("grpcio-tools==") for one in project["build-system"]["requires"])
    assert not [one for one in project["project"]["dependencies"] if "grpc" in one or "protobuf" in one]


def test_nothing_of_grpc_is_loaded_where_no_grpc_is_used() -> None:
    code = "import sys, remit.app, remit.runtime.tool.delegate_tool; print([n for n in sys.modules if n.startswith(('grpc', 'google'))])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.strip() == "[]"
