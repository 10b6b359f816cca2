"""``python -m bench`` is ``querator bench``."""

from __future__ import annotations

from bench.command import bench

if __name__ == "__main__":
    bench(prog_name="querator bench")
