"""Which rolling updates to Pods with other needs are refused, and which are not spoken of, by trying all their ways.

The world is small: Pods that hold any devices of a node are exchanged for Pods that need both devices of a NUMA node.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import merged
from tests.unit.guards.changing import BASE, weigh
from tests.unit.guards.test_guard_devices import LARGER, TOGETHER, held, warned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Held = tuple[frozenset[int], ...]


@dataclass(frozen=True)
class RollOut:
    """What every way that a rolling update can go has in common."""

    numa_nodes: int
    pods: int
    surge: int
    unavailable: int

    def ends(self, old: Held, how: Callable[[Iterable[bool]], bool], new: frozenset[int] = frozenset()) -> bool:
        """Whether all new Pods can be there in the end, in `any` way or in `all` ways.

        Old Pods go as soon as they may; then new ones come, each on a NUMA node of its own, and are Ready.
        """
        if len(new) == self.pods:
            return True
        going = min(len(old), len(old) + len(new) - (self.pods - self.unavailable))
        if going > 0:
            return how(self.ends(left, how, new) for left in combinations(old, len(old) - going))
        taken = {device // 2 for pod in old for device in pod} | new
        free = [numa for numa in range(self.numa_nodes) if numa not in taken]
        may_come = len(old) + len(new) < self.pods + self.surge
        return may_come and bool(free) and how(self.ends(old, how, new | {numa}) for numa in free)


@st.composite
def situations(draw: st.DrawFn) -> tuple[RollOut, Held]:
    numa_nodes, pods = draw(st.integers(2, 4)), draw(st.integers(2, 3))
    surge, unavailable = draw(st.sampled_from([(1, 0), (0, 1), (1, 1)]))
    order = draw(st.permutations(range(2 * numa_nodes)))
    each = draw(st.sampled_from([1, 2] if pods <= numa_nodes else [1]))
    return (
        RollOut(numa_nodes, pods, surge, unavailable),
        tuple(frozenset(order[place * each : (place + 1) * each]) for place in range(pods)),
    )


@given(situations())
@settings(max_examples=60, deadline=None)
def test_what_is_refused_ends_in_no_way_and_what_is_not_spoken_of_in_every_way(situation: tuple[RollOut, Held]) -> None:
    roll_out, old = situation
    numbers = {"maxSurge": roll_out.surge, "maxUnavailable": roll_out.unavailable}
    before = merged(
        BASE,
        {
            "modelserver": {
                "replicas": {"prefill": 0, "decode": 0, "aggregated": roll_out.pods},
                "strategy": {"rollingUpdate": numbers},
            }
        },
    )
    if len(old[0]) == 2:
        before = merged(before, LARGER)
    found = weigh(
        before,
        merged(LARGER, TOGETHER),
        published=2 * roll_out.numa_nodes,
        seen=lambda seen: held(seen, *([2] * roll_out.numa_nodes), by=[sorted(pod) for pod in old]),
    )
    if found.refusals:
        assert not roll_out.ends(old, any), "what is refused ends in no way"
    elif not warned(found):
        assert roll_out.ends(old, all), "of what ends in no way, or in some only, something is said"
