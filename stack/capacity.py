"""How many requests run at once: the one number that targets, limits, dashboards and alerts follow.

An engine runs at most `max-num-seqs` requests, each data-parallel rank for itself (vLLM, `SchedulerConfig`), so a Pod
has that times its ranks, and a role its Ready Pods times that. What vLLM takes where nothing is given depends on the
hardware and on the plugin (1 with vllm-rbln, 1024 on large GPUs, 256 elsewhere), so it is always rendered;
`stack.rules` refuses what would take it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeGuard

from stack.serve import in_force_args

if TYPE_CHECKING:
    from stack.scalars import Role
    from stack.serve import RoleServe

SLOTS_FLAG: Final = "max-num-seqs"


@dataclass(frozen=True, kw_only=True)
class RoleCapacity:
    """What one Pod of a role runs at once.

    Attributes:
        max_num_seqs: requests of one rank.
        ranks: data-parallel ranks of a Pod.
        endpoints: API servers of a Pod that requests are sent to.
        least_pods, most_pods: Pods of the role: what its scaler keeps between, or twice what is configured.
    """

    role: Role
    max_num_seqs: int
    ranks: int
    endpoints: int
    least_pods: int
    most_pods: int

    @property
    def slots(self) -> int:
        """Requests that one Pod runs at once."""
        return self.max_num_seqs * self.ranks

    @property
    def slots_per_endpoint(self) -> int:
        """Requests that are sent to one API server at once; ranks without a server of their own share one."""
        return self.slots // self.endpoints

    @property
    def least(self) -> int:
        """Requests that the role runs at once with its fewest Pods, when all are Ready."""
        return self.least_pods * self.slots

    @property
    def most(self) -> int:
        """Requests that the role runs at once with its most Pods."""
        return self.most_pods * self.slots


def plan_capacity(serve: RoleServe, *, bounds: tuple[int, int]) -> RoleCapacity:
    """What a role runs at once with its fewest and most Pods, from the arguments that its engine gets.

    Raises:
        ValueError: nothing says how many; no accepted configuration does that.
    """
    given = in_force_args(serve.served_args, serve.extra_args).get(SLOTS_FLAG)
    if not is_slots(given):
        raise ValueError(f"{SLOTS_FLAG} of {serve.role} Pods is {given!r}")
    return RoleCapacity(
        role=serve.role,
        max_num_seqs=given,
        ranks=serve.data,
        endpoints=len(serve.server_ports),
        least_pods=bounds[0],
        most_pods=bounds[1],
    )


def is_slots(value: object) -> TypeGuard[int]:
    """Whether a value of the flag is a number of requests."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
