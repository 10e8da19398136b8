"""Free ports for a plane, and telling when one was taken after all.

Ports are drawn from below the range that the kernel hands to outgoing connections, so that only another server can
take one between the drawing and its use. That can still happen; whoever starts the server must look and draw again.
"""

from __future__ import annotations

import random
import socket
from typing import TYPE_CHECKING

from local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LOWEST, HIGHEST = 18000, 30000
TAKEN = ("address already in use", "Only one usage of each socket address")


def port_is_free(port: int, address: str = "127.0.0.1") -> bool:
    """Whether a server could listen on this port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Go's servers do: a closing one is no obstacle
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError:
            return False
        return True


def choose_ports(
    names: Iterable[str],
    *,
    is_free: Callable[[int], bool] = port_is_free,
    draw: Callable[[int, int], int] = random.randint,
) -> dict[str, int]:
    """Draw one free port for each name, all different.

    Raises:
        LocalError: if hardly any port of the range is free.
    """
    chosen: dict[str, int] = {}
    for name in names:
        for _ in range(1000):
            port = draw(LOWEST, HIGHEST)
            if port not in chosen.values() and is_free(port):
                chosen[name] = port
                break
        else:
            raise LocalError(
                f"No free port for {name} among 1000 tried between {LOWEST} and {HIGHEST}. "
                "Stop other local planes or servers (`ss -ltnp` shows who listens)."
            )
    return chosen


def port_was_taken(lines: Iterable[str]) -> bool:
    """Whether the last lines of a server say that somebody else had its port."""
    return any(sign in line for line in lines for sign in TAKEN)
