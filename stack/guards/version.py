"""The API server's version as a number to compare with."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stack.facts import Surroundings

UNKNOWN = (0, 0)


def server_version(surroundings: Surroundings) -> tuple[int, int]:
    """Major and minor, as in `v1.34.2-eks-1`; `UNKNOWN` if they are not known."""
    found = re.match(r"v?([0-9]+)\.([0-9]+)", surroundings.server_version or "")
    return (int(found[1]), int(found[2])) if found is not None else UNKNOWN
