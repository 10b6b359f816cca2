"""Makes the service and the Python modules of the ``.proto`` files: ``python -m api.proto.generate``.

The sources lie here, under the path of their package. The modules go to ``querator/v1``, which a user's program may
import too. ``service.proto`` is written from the table of calls: a method is named by `method_name`.
"""

from __future__ import annotations

import re
import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

from querator import wire

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).resolve().parent
SERVICE = FOLDER / "querator/v1/service.proto"
SOURCES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("querator/v1/*.proto"))

_MESSAGE = re.compile(r"^message (\w+) ", re.MULTILINE)
_CONSUME = ("ConsumeRequest", "ConsumeAnswer")
_HEAD = """\
// The calls as a service. Written by `make proto` from the table of calls in querator/wire.py; do not edit.
//
// A method is the call's name with each part in capitals: `queue.produce` is `QueueProduce`, `storage/items.list` is
// `StorageItemsList`.
syntax = "proto3";

package querator.v1;
"""


def make_service() -> str:
    """The text of ``service.proto``."""
    homes = {
        message: name
        for name in SOURCES
        if name != SERVICE.relative_to(FOLDER).as_posix()
        for message in _MESSAGE.findall((FOLDER / name).read_text(encoding="utf-8"))
    }
    shapes = [(wire.method_name(name), *(part.__name__ for part in shape)) for name, shape in wire.SHAPES.items()]
    imports = sorted({homes[message] for _, *messages in [*shapes, ("Consume", *_CONSUME)] for message in messages})
    lines = [f'import "{name}";' for name in imports]
    methods = [f"  rpc {method}({request}) returns ({answer});" for method, request, answer in shapes]
    consume = [
        "  // Items as they get ready, completed on the same stream; see consume.proto.",
        "  rpc Consume(stream {}) returns (stream {});".format(*_CONSUME),
    ]
    return "\n".join([_HEAD, *lines, "", "service Queue {", *methods, *consume, "}", ""])


def generate(*options: str) -> None:
    """Run the compiler on all sources."""
    well_known = files("grpc_tools") / "_proto"
    code = protoc.main(["protoc", f"--proto_path={FOLDER}", f"--proto_path={well_known}", *options, *SOURCES])
    if code != 0:
        raise RuntimeError(f"protoc failed with exit code {code}")


if __name__ == "__main__":
    SERVICE.write_text(make_service(), encoding="utf-8")
    generate(f"--python_out={ROOT}", f"--pyi_out={ROOT}")
    sys.exit(0)
