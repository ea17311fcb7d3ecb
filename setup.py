"""What setuptools cannot be told in pyproject.toml: the code of the gRPC messages is made from their .proto files by the build."""

from pathlib import Path
from typing import ClassVar

from setuptools import Command, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

SOURCE = Path(__file__).parent / "src"


def make_messages() -> None:
    from importlib.resources import files

    from grpc_tools import protoc

    protos = sorted((SOURCE / "remit" / "agents" / "proto").rglob("*.proto"))
    include = files("grpc_tools") / "_proto"
    outputs = [f"--{kind}_out={SOURCE}" for kind in ("python", "pyi", "grpc_python")]
    if protoc.main(["protoc", f"-I{SOURCE}", f"-I{include}", *outputs, *map(str, protos)]) != 0:
        raise SystemExit("protoc could not make the code of the gRPC messages; what is wrong stands above.")


class Messages(Command):
    description = "make the code of the gRPC messages from their .proto files"
    user_options: ClassVar[list[tuple[str, str, str]]] = []

    def initialize_options(self) -> None: ...

    def finalize_options(self) -> None: ...

    def run(self) -> None:
        make_messages()


class BuildWithMessages(build_py):
    def run(self) -> None:
        make_messages()
        super().run()


class SourceWithMessages(sdist):
    def run(self) -> None:
        make_messages()
        super().run()


setup(cmdclass={"build_py": BuildWithMessages, "messages": Messages, "sdist": SourceWithMessages})
