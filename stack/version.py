"""Versions of API servers as numbers to compare with."""

from __future__ import annotations

import re

UNKNOWN = (0, 0)


def minor_version(text: str | None) -> tuple[int, int]:
    """Major and minor, as in `v1.34.2-eks-1`; `UNKNOWN` if it is no version."""
    found = re.match(r"v?([0-9]+)\.([0-9]+)", text or "")
    return (int(found[1]), int(found[2])) if found is not None else UNKNOWN
