"""Makes the ``*_pb2.py`` beside the ``.proto`` files: ``python -m cluster.etcd_proto.generate``."""

from __future__ import annotations

import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path.relative_to(ROOT).as_posix() for path in Path(__file__).parent.glob("*.proto"))


def generate(*options: str) -> None:
    """Run the compiler from the root of the repository, so that generated modules import each other by full path."""
    code = protoc.main(["protoc", f"--proto_path={ROOT}", *options, *SOURCES])
    if code != 0:
        raise RuntimeError(f"protoc failed with exit code {code}")


if __name__ == "__main__":
    generate(f"--python_out={ROOT}", f"--pyi_out={ROOT}")
    sys.exit(0)
