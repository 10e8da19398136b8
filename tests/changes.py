"""Changes of a stack file as an operator would make them one after another, drawn by a seed.

Every configuration is one that the program accepts and that fits on the inventory `small`: what is drawn is the order,
not nonsense. A storage class or an access mode that differs from the live claim's is among it; a size only ever grows,
since the API server refuses less.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Kind = Literal["pvc", "existingClaim", "emptyDir"]
Entry = tuple[str, str]
"""Role and node of one nodePlacement entry."""

RELEASE = "rel"
NODES = ("npu-0", "npu-1")
MOST_ENTRIES = 4
STORAGE_CLASSES = (None, "kwok-volume", "kwok-volume-late")
ACCESS_MODES = (("ReadWriteMany",), ("ReadWriteMany", "ReadWriteOnce"), ("ReadWriteMany", "ReadOnlyMany"))
BASE: Mapping[str, Any] = {
    "recipe": "qwen3-0.6b",
    # What is safe must be so without the guard that would refuse another class or mode.
    "guards": {"volumes": "warn"},
    "devices": {
        "claimTemplate": {
            "requests": [
                {"name": "npu", "deviceClassName": "npu.rebellions.ai", "count": 1},
                {"name": "nic", "deviceClassName": "dranet", "count": 1},
            ],
            "constraints": [{"requests": ["npu", "nic"], "matchAttribute": "resource.kubernetes.io/numaNode"}],
        }
    },
}


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A volume of the stack file.

    Attributes:
        gibibytes: size with kind `pvc`.
        names_ours: whether kind `existingClaim` names the claim that the stack made for this before, if it did.
    """

    kind: Kind = "pvc"
    gibibytes: int = 10
    storage_class: str | None = None
    access_modes: tuple[str, ...] = ACCESS_MODES[0]
    names_ours: bool = False

    def block(self, existing: Any) -> dict[str, Any]:
        """What stands in the stack file, with the claim or claims for kind `existingClaim`."""
        match self.kind:
            case "pvc":
                block = {"kind": "pvc", "size": f"{self.gibibytes}Gi", "accessModes": list(self.access_modes)}
                return block | ({"storageClass": self.storage_class} if self.storage_class else {})
            case "existingClaim":
                return {"kind": "existingClaim", "existingClaim": existing}
            case "emptyDir":
                return {"kind": "emptyDir"}


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Everything in a stack file that the changes are about.

    Attributes:
        replicas: Pods by role in replicas mode.
        entries: nodePlacement; when it has entries the mode is that.
        made: claims that the stack made so far.
    """

    replicas: tuple[tuple[str, int], ...] = (("prefill", 2), ("decode", 2))
    entries: tuple[Entry, ...] = ()
    model: str | None = None
    tag: str | None = None
    cache: Volume = field(default_factory=Volume)
    store: Volume = field(default_factory=Volume)
    made: frozenset[str] = frozenset()

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles with Pods."""
        if self.entries:
            return tuple(dict.fromkeys(role for role, _ in self.entries))
        return tuple(role for role, pods in self.replicas if pods)

    @property
    def is_aggregated(self) -> bool:
        return "aggregated" in self.roles

    @property
    def cache_claims(self) -> dict[str, str]:
        """The claim with the compile cache of each role; none for kind `emptyDir`."""
        return {role: self._claim(self.cache, f"compile-cache-{role}") for role in self.roles if self._has(self.cache)}

    @property
    def store_claim(self) -> str | None:
        """The claim with the weights."""
        return self._claim(self.store, "model-cache") if self._has(self.store) else None

    def _has(self, volume: Volume) -> bool:
        return volume.kind != "emptyDir"

    def _claim(self, volume: Volume, part: str) -> str:
        ours = f"{RELEASE}-{part}"
        is_ours = volume.kind == "pvc" or (volume.names_ours and ours in self.made)
        return ours if is_ours else f"their-{part}"

    @property
    def claims_to_make(self) -> frozenset[str]:
        """Claims that the stack makes for this."""
        caches = self.cache_claims.values() if self.cache.kind == "pvc" else ()
        return frozenset([*caches, *([f"{RELEASE}-model-cache"] if self.store.kind == "pvc" else [])])

    @property
    def claims_of_the_operator(self) -> tuple[str, ...]:
        """Claims that must be there, made by the operator."""
        named = {*self.cache_claims.values(), *([self.store_claim] if self.store_claim else [])}
        return tuple(sorted(named - self.claims_to_make - self.made))

    def blocks(self) -> dict[str, Any]:
        """The blocks of the stack file."""
        modelserver: dict[str, Any] = (
            {"nodePlacement": [{"role": role, "node": node} for role, node in self.entries]}
            if self.entries
            else {"replicas": dict(self.replicas)}
        )
        if self.model:
            modelserver["model"] = self.model
        if self.tag:
            modelserver["image"] = {"tag": self.tag}
        storage = {"compileCache": self.cache.block(self.cache_claims), "model": self.store.block(self.store_claim)}
        return {**BASE, "modelserver": modelserver, "storage": storage}


@dataclass(frozen=True, kw_only=True)
class Step:
    """One configuration in a sequence, and how it came to be.

    Attributes:
        change: what the operator did, one of `CHANGES`, or the installation.
        after_destroy: whether the stack was destroyed before, so that this one is installed anew.
    """

    change: str
    situation: Situation
    after_destroy: bool = False


INSTALLATION = "the installation"


# --- what an operator does --------------------------------------------------------------------------------------------


def _scale(random: Random, now: Situation) -> Situation | None:
    if now.entries:
        return None
    role = random.choice(now.roles)
    return replace(
        now, replicas=tuple((each, (1 if pods > 1 else 2) if each == role else pods) for each, pods in now.replicas)
    )


def _empty_a_role(random: Random, now: Situation) -> Situation | None:
    """One role to 0; the other may grow at once."""
    if now.entries or len(now.roles) < 2:
        return None
    gone = random.choice(now.roles)
    return replace(
        now, replicas=tuple((role, 0 if role == gone else random.choice((pods, 3))) for role, pods in now.replicas)
    )


def _fill_a_role(random: Random, now: Situation) -> Situation | None:
    if now.entries or now.is_aggregated or all(pods for _, pods in now.replicas):
        return None
    return replace(now, replicas=tuple((role, min(pods, 2) or random.choice((1, 2))) for role, pods in now.replicas))


def _place(random: Random, now: Situation) -> Situation | None:
    """From replicas to nodePlacement."""
    if now.entries:
        return None
    roles = ("aggregated",) if now.is_aggregated else ("prefill", "decode")
    return replace(now, entries=tuple((role, node) for node in random.sample(NODES, 2) for role in roles))


def _replicate(random: Random, now: Situation) -> Situation | None:
    """From nodePlacement to replicas."""
    if not now.entries:
        return None
    roles = ("aggregated",) if now.is_aggregated else ("prefill", "decode")
    return replace(now, entries=(), replicas=tuple((role, random.choice((1, 2))) for role in roles))


def _reorder(random: Random, now: Situation) -> Situation | None:
    if len(set(now.entries)) < 2:
        return None
    entries = list(now.entries)
    while tuple(entries) == now.entries:
        random.shuffle(entries)
    return replace(now, entries=tuple(entries))


def _append(random: Random, now: Situation) -> Situation | None:
    if not now.entries or len(now.entries) == MOST_ENTRIES:
        return None
    return replace(now, entries=(*now.entries, (random.choice(now.roles), random.choice(NODES))))


def _drop(_: Random, now: Situation) -> Situation | None:
    return replace(now, entries=now.entries[:-1]) if len(now.entries) > 1 else None


def _aggregate(random: Random, now: Situation) -> Situation | None:
    if now.is_aggregated:
        return None
    if now.entries:
        return replace(now, entries=tuple(("aggregated", node) for _, node in now.entries))
    return replace(now, replicas=(("aggregated", random.choice((1, 2))),))


def _disaggregate(random: Random, now: Situation) -> Situation | None:
    if not now.is_aggregated:
        return None
    return replace(now, entries=(), replicas=tuple((role, random.choice((1, 2))) for role in ("prefill", "decode")))


def _serve_another_model(_: Random, now: Situation) -> Situation:
    return replace(now, model=None if now.model else "Qwen/Qwen3-1.7B")


def _change_the_image(random: Random, now: Situation) -> Situation:
    return replace(now, tag=random.choice([tag for tag in (None, "0.12.1", "0.12.2") if tag != now.tag]))


def _keep_the_cache_elsewhere(random: Random, now: Situation) -> Situation:
    return replace(now, cache=_of_another_kind(random, now.cache))


def _keep_the_model_elsewhere(random: Random, now: Situation) -> Situation:
    return replace(now, store=_of_another_kind(random, now.store))


def _of_another_kind(random: Random, volume: Volume) -> Volume:
    kind = random.choice([kind for kind in get_args(Kind) if kind != volume.kind])
    return replace(volume, kind=kind, names_ours=random.random() < 0.5)


def _grow(random: Random, now: Situation) -> Situation | None:
    return _change_a_made_one(random, now, lambda volume: replace(volume, gibibytes=volume.gibibytes + 10))


def _change_the_class(random: Random, now: Situation) -> Situation | None:
    def change(volume: Volume) -> Volume:
        others = [name for name in STORAGE_CLASSES if name != volume.storage_class]
        return replace(volume, storage_class=random.choice(others))

    return _change_a_made_one(random, now, change)


def _change_the_modes(random: Random, now: Situation) -> Situation | None:
    def change(volume: Volume) -> Volume:
        others = [modes for modes in ACCESS_MODES if modes != volume.access_modes]
        return replace(volume, access_modes=random.choice(others))

    return _change_a_made_one(random, now, change)


def _change_a_made_one(random: Random, now: Situation, change: Callable[[Volume], Volume]) -> Situation | None:
    made = [name for name, volume in (("cache", now.cache), ("store", now.store)) if volume.kind == "pvc"]
    match random.choice(made) if made else None:
        case "cache":
            return replace(now, cache=change(now.cache))
        case "store":
            return replace(now, store=change(now.store))
        case _:
            return None


CHANGES: Mapping[str, Callable[[Random, Situation], Situation | None]] = {
    "more or fewer Pods": _scale,
    "a role to 0": _empty_a_role,
    "a role back from 0": _fill_a_role,
    "replicas to nodePlacement": _place,
    "nodePlacement to replicas": _replicate,
    "entries reordered": _reorder,
    "an entry appended": _append,
    "an entry dropped": _drop,
    "aggregated": _aggregate,
    "prefill and decode apart": _disaggregate,
    "another model": _serve_another_model,
    "another image": _change_the_image,
    "compile cache of another kind": _keep_the_cache_elsewhere,
    "model volume of another kind": _keep_the_model_elsewhere,
    "a larger claim": _grow,
    "another storage class": _change_the_class,
    "other access modes": _change_the_modes,
}
"""What an operator does, by name; None where the situation does not allow it."""
SELDOM_POSSIBLE = frozenset(
    {
        "a role back from 0",
        "nodePlacement to replicas",
        "entries reordered",
        "an entry appended",
        "an entry dropped",
        "prefill and decode apart",
    }
)
"""Changes that need another one before them, and so are drawn more often once they are possible."""


def draw_sequence(seed: int) -> tuple[Step, ...]:
    """An installation and three or four changes, before one of which the stack may be destroyed.

    A seed always gives the same.
    """
    random = Random(seed)  # noqa: S311  # no secret, a sequence that can be drawn again
    situation = Situation(
        replicas=(("prefill", random.choice((1, 2))), ("decode", random.choice((1, 2)))),
        entries=random.choice(((), (), (("prefill", NODES[0]), ("decode", NODES[0]), ("decode", NODES[1])))),
        cache=Volume(storage_class=random.choice(STORAGE_CLASSES[:2])),
        store=Volume(storage_class=random.choice(STORAGE_CLASSES[:2])),
    )
    steps = [Step(change=INSTALLATION, situation=situation)]
    length = random.choice((3, 4))
    destroyed_before = random.choice((*range(1, length + 1), *[None] * length))
    for index in range(1, length + 1):
        now = replace(steps[-1].situation, made=steps[-1].situation.made | steps[-1].situation.claims_to_make)
        name, then = _draw_change(random, now, besides=steps[-1].change)
        steps.append(Step(change=name, situation=then, after_destroy=index == destroyed_before))
    return tuple(steps)


def _draw_change(random: Random, now: Situation, *, besides: str) -> tuple[str, Situation]:
    names = [name for name in CHANGES if name != besides]
    weights = [4 if name in SELDOM_POSSIBLE else 1 for name in names]
    while True:
        [name] = random.choices(names, weights)
        then = CHANGES[name](random, now)
        if then is not None:
            return name, then


SEEDS = range(100, 120)
"""Of the campaign."""
IN_EVERY_RUN = (102, 103, 105, 106, 118)
"""Of them, five with which every change is made, and a stack is destroyed and installed again."""
