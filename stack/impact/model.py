"""What a change will do, as plain values: what the table shows, and what the command turns into JSON, Markdown or HTML.

Numbers of Pods are those that the Deployments ask for. Times are in seconds. Nothing here decides anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Happening(StrEnum):
    """What happens to the Pods of a part of the stack."""

    CREATED = "created"
    DELETED = "deleted"
    RESTARTS = "restarts"
    GOES_BACK = "goes back"
    """A roll-out that did not end is taken back: Pods of the wanted template stay, the others make room for them."""
    CONTINUES = "continues"
    """This change asks for no other Pods than the one before it, which Kubernetes has not brought to an end yet."""
    SCALES_UP = "scales up"
    SCALES_DOWN = "scales down"
    STAYS = "stays"
    UNKNOWN = "unknown"


class Method(StrEnum):
    """In which order Pods leave and come."""

    START = "start"
    """Nothing leaves."""
    LEAVE = "leave"
    """Nothing comes."""
    ROLLING = "rolling"
    RECREATE = "recreate"
    """All Pods of the Deployment leave, then the new ones start."""
    ONE_BY_ONE = "one by one"
    """nodePlacement entries of a role one after the other, each as with `recreate`."""
    ALL_DOWN = "all down first"
    """The topology changes: all model servers leave, then all new ones start."""
    REPLACE = "replace"
    """The Deployment is deleted and made anew."""


class Start(StrEnum):
    """What a new model server finds in its compile cache."""

    WARM = "warm"
    COLD = "cold"
    UNKNOWN = "unknown"
    NOTHING_COMPILED = "nothing compiled"
    """The recipe's engine compiles nothing ahead of serving that would be kept."""


@dataclass(frozen=True, kw_only=True)
class KeyChange:
    """A config key that brings a change about.

    Attributes:
        key: as the stack file has it.
        before, after: its values, shortened and never a secret; None where it had none or has none any more.
        is_known: whether the value before is known; False for one that was too large to keep.
    """

    key: str
    before: str | None
    after: str | None
    is_known: bool = True

    def __str__(self) -> str:
        before = "not set" if self.before is None else self.before
        after = "not set" if self.after is None else self.after
        return f"{self.key}: {before if self.is_known else 'too long to be kept'} -> {after}"


@dataclass(frozen=True, kw_only=True)
class CompileCache:
    """Whether new model servers can use what earlier ones compiled (*Scaling and Upgrades*, Version compatibility).

    Attributes:
        start: what they find.
        why: in words, without a full stop; empty where there is nothing to say.
    """

    start: Start
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Outage:
    """A time in which a part of the stack serves nothing, though it did before and will afterwards.

    Attributes:
        at_most_seconds: longest drain and longest start-up that are allowed for.
        about_seconds: the longest drain and the start-up time of the Pods that run now; None where that says nothing,
            because none is Ready or because the new ones have to compile first.
        start: whether the new Pods find their compile cache.
        why: what takes all of it down, in words, without a full stop.
    """

    at_most_seconds: int
    about_seconds: int | None
    start: Start
    why: str


@dataclass(frozen=True, kw_only=True)
class WorkloadImpact:
    """What happens to one Deployment.

    Attributes:
        name: of the Deployment.
        part: `prefill`, `decode`, `aggregated` or `epp`.
        entry: index in nodePlacement, None for others.
        happens: what happens to its Pods.
        method: in which order they are exchanged; None when nothing is.
        before, after: Pods asked for; before is None when that is not known.
        new: Pods that will be made. kept: Pods that stay. leaving: Pods that go, in exchange or for good.
        is_template_changed: whether the update writes another Pod template; None when that is not known.
        keys: why, key by key.
        paths: where the templates differ, where keys do not tell it.
        reason: why it is not known what happens, or what there is besides the keys; None when there is nothing to say.
        extra_pods: most Pods at a time for which devices are needed beyond those that its Pods hold now.
        already: Pods that are of the wanted template now, of which more may be there than are kept.
        ready, ready_kept, placed: Pods that serve now, those of them that are of the wanted template, and Pods that
            have a node, and so devices.
        drain_seconds, start_seconds: longest time that one Pod may take to leave, and to become Ready.
        about_start_seconds: how long the quickest of its Pods took from its devices to Ready; None where none tells.
        waits_for: names of Deployments that have to be exchanged before it.
        is_scaled: whether something else than this change says how many Pods it has.
    """

    name: str
    part: str
    entry: int | None
    happens: Happening
    method: Method | None
    before: int | None
    after: int
    new: int
    kept: int
    leaving: int
    is_template_changed: bool | None
    keys: tuple[KeyChange, ...] = ()
    paths: tuple[str, ...] = ()
    reason: str | None = None
    extra_pods: int = 0
    already: int = 0
    ready: int = 0
    ready_kept: int = 0
    placed: int = 0
    drain_seconds: int = 0
    start_seconds: int = 0
    about_start_seconds: int | None = None
    waits_for: tuple[str, ...] = ()
    is_scaled: bool = False


@dataclass(frozen=True, kw_only=True)
class FreeDevices:
    """Devices of a class that nothing holds, on the nodes that a part's Pods may use.

    Attributes:
        device_class: name of the DeviceClass, or of the extended resource.
        count: how many are free.
        per_pod: how many one of its Pods needs.
    """

    device_class: str
    count: int
    per_pod: int


@dataclass(frozen=True, kw_only=True)
class PartImpact:
    """What happens to one part of the stack: a role with all its Deployments, or the endpoint picker.

    Attributes:
        part: `prefill`, `decode`, `aggregated` or `epp`.
        happens, method: as in `WorkloadImpact`; of several Deployments the most serious.
        before, after, new, kept, leaving, keys, paths, reason: as in `WorkloadImpact`, of all its Deployments.
        max_surge, max_unavailable: of a rolling update, as whole Pods; None for any other method.
        extra_pods: most Pods at a time for which devices are needed beyond those that its Pods hold now: what the spare
            devices have to be enough for. With method `all down first` all Pods count, since all devices are given back
            before (`freed`).
        accelerators, nics: devices of these Pods together; None where a claim template of the operator decides.
        capacity_percent: least share of the wanted Pods that serves while the change goes on, rounded down; the wanted
            ones are the fewer of before and after. None where nothing was there before or where it is not known.
        outage: None if something serves all the time.
        at_most_seconds: longest time that the exchange may take.
        cache: of its new Pods; None when none is made or it is no model server.
        notes: what else there is to know, each without a full stop.
        freed: uids of Pods that are gone, with their devices, before the first new Pod asks for some. Where Pods are
            exchanged one for one, their new ones take these devices, and none counts as freed.
        is_restart_certain: whether the API server was asked; otherwise only the keys tell it.
        spare: what whoever looked at the spare devices found, in words; None if nobody looked.
        fits: how many of `extra_pods` find devices if nothing else takes them; None if nobody looked, or not known.
        free: what is free by class, where somebody looked.
        drain_seconds, start_seconds: longest time that one of its Pods may take to leave, and to become Ready.
        about_start_seconds: how long Pods that run now took to become Ready; None where that says nothing of new ones,
            because none is Ready or because the new ones have to compile first.
        accelerators_per_pod, nics_per_pod: devices of one Pod; None where a claim template of the operator decides.
        workloads: its Deployments: one, or one for each nodePlacement entry.
    """

    part: str
    happens: Happening
    method: Method | None
    before: int | None
    after: int
    new: int
    kept: int
    leaving: int
    extra_pods: int
    accelerators: int | None
    nics: int | None
    capacity_percent: int | None
    outage: Outage | None
    at_most_seconds: int
    max_surge: int | None = None
    max_unavailable: int | None = None
    cache: CompileCache | None = None
    keys: tuple[KeyChange, ...] = ()
    paths: tuple[str, ...] = ()
    reason: str | None = None
    notes: tuple[str, ...] = ()
    freed: tuple[str, ...] = ()
    is_restart_certain: bool = True
    spare: str | None = None
    fits: int | None = None
    free: tuple[FreeDevices, ...] = ()
    drain_seconds: int = 0
    start_seconds: int = 0
    about_start_seconds: int | None = None
    accelerators_per_pod: int | None = 0
    nics_per_pod: int | None = 0
    workloads: tuple[WorkloadImpact, ...] = ()

    @property
    def restarts(self) -> bool:
        """Whether Pods that run are exchanged for new ones by this change."""
        return self.happens in {Happening.RESTARTS, Happening.GOES_BACK} and self.new > 0 and self.leaving > 0

    @property
    def is_going_back(self) -> bool:
        """Whether a roll-out that did not end is taken back, which is never refused for want of devices."""
        return self.happens is Happening.GOES_BACK


@dataclass(frozen=True, kw_only=True)
class Impact:
    """What a change will do to the stack.

    Attributes:
        release: name of the release.
        parts: those that have Pods before or afterwards: roles in the order prefill, decode, aggregated, then the EPP.
        is_first_install: whether nothing of the stack runs yet.
        topology: why all model servers have to leave before new ones start, key by key; empty when they need not.
        outage: the longest of its parts'; None when there is none. Between endpoint pickers it is one only where new
            requests are refused meanwhile.
        accelerator: word for one accelerator of the recipe: `NPU` or `GPU`.
        unknown: what could not be found out, each without a full stop.
    """

    release: str
    parts: tuple[PartImpact, ...]
    is_first_install: bool = False
    topology: tuple[KeyChange, ...] = ()
    outage: Outage | None = None
    accelerator: str = "accelerator"
    unknown: tuple[str, ...] = field(default=())

    @property
    def changes_nothing(self) -> bool:
        """Whether every Pod stays, and that is known."""
        return not self.unknown and all(part.happens is Happening.STAYS for part in self.parts)

    @property
    def is_known(self) -> bool:
        """Whether it could be found out what happens to every Pod."""
        return not self.unknown and all(part.happens is not Happening.UNKNOWN for part in self.parts)

    @property
    def restarts(self) -> bool:
        """Whether any Pod that runs is exchanged for a new one."""
        return any(part.restarts for part in self.parts)

    @property
    def starting(self) -> frozenset[str]:
        """Names of the Deployments that start Pods, or whose Pods wait for devices, as far as that is known."""
        return frozenset(
            workload.name for part in self.parts for workload in part.workloads if workload.new or workload.extra_pods
        )

    @property
    def freed(self) -> tuple[str, ...]:
        """Uids of all Pods that are gone, with their devices, before a new Pod asks for some."""
        return tuple(uid for part in self.parts for uid in part.freed)
