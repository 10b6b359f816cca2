"""Makes the ``*_pb2.py`` beside the ``.proto`` files: ``python -m api.proto.generate``."""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path.relative_to(ROOT).as_posix() for path in Path(__file__).parent.glob("querator/v1/*.proto"))


def generate(*options: str) -> None:
    """Run the compiler from the root of the repository, so that generated modules import each other by full path."""
    well_known = files("grpc_tools") / "_proto"
    code = protoc.main(["protoc", f"--proto_path={ROOT}", f"--proto_path={well_known}", *options, *SOURCES])
    if code != 0:
        raise RuntimeError(f"protoc failed with exit code {code}")


if __name__ == "__main__":
    generate(f"--python_out={ROOT}", f"--pyi_out={ROOT}")
    sys.exit(0)
