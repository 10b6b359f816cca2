"""``python -m querator.cli`` is ``querator``."""

from __future__ import annotations

import sys

from querator.cli import main

if __name__ == "__main__":
    sys.exit(main())
