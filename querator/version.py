"""The version of Querator: the one place that says it."""

from __future__ import annotations

VERSION = "0.1.0"
