"""The code of the gRPC messages is generated from their .proto file and up to date."""

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


def test_messages_match_the_proto_file(tmp_path: Path) -> None:
    """If this fails, run `make set-up`."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    from remit import tasks_pb2

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
        one.ClearField("syntax")  # explicit in one, the default in the other
        for message in one.message_type:
            for field in message.field:
                field.ClearField("json_name")
    assert here == there
