"""What updates do to PersistentVolumeClaims, told from recorded registrations by the rules of engine and provider.

A model, small enough to be held against its sources: Pulumi CLI 3.274 (`pkg/resource/deploy`: `step_generator.go`,
`step.go`, `source_eval.go`; `sdk/go/common/resource/properties_path.go`), pulumi-kubernetes 4.25
(`provider/pkg/provider`: `diff.go`, `provider.go`, `util.go`) and the API server's validation of claims. Where it
simplifies it errs to the side of harm. The rules it knows:

* **Inheritance**: `retainOnDelete`, `protect`, `deletedWith` and the provider pass from parent to child unless the
  child sets them (`inheritFromParent`).
* **Why something is replaced**: its replacement trigger differs from the recorded one, both set; something in its
  `replaceWith`, or what it is `deletedWith`, is replaced; its provider is (a changed cluster identifier, or without one
  a changed context or kubeconfig); the provider's diff has a path that forces a new object, or one that
  `replaceOnChanges` holds, to which `*` adds a failed initialization; an earlier run deleted it and did not come to
  make it anew (`pendingReplacement`).
* **The diff** compares the live object, pruned to the recorded inputs, with the new inputs. `ignoreChanges` first sets
  each path to its recorded value (or absence), then takes what is left of it out of the diff.
* **Delete-before-replace** condemns at once whatever the state or this run has with the replaced one in `replaceWith`
  or `deletedWith`, and what depends on it by a property.
* **Import**: an ID that the state does not have reads the live object, all of it, as recorded inputs. A declared ID
  forbids every replacement: the update fails for as long as it is wanted.
* **Deletion** is judged by what the state recorded: retained, or going with something deleted, it is not sent. What was
  not registered is deleted last, and only by a run that comes to its end. A protected resource fails the run.
* **The cluster** garbage-collects what a deleted object owns, empties a deleted Namespace, gives a claim without class
  the default one, and refuses a changed class, mode, selector, volume, and a smaller size.

Left out: hooks and waits (they can only end a run early, which is a case of its own here), targeted runs, aliases, and
what deletion does beyond claims.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from google.protobuf.json_format import MessageToDict

from stack.scalars import amount

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.components.recorder import Recorded

CLAIM = "PersistentVolumeClaim"
PROVIDER = "pulumi:providers:kubernetes"
ALWAYS_FORCED = ("metadata.name", "metadata.namespace")
FORCES_NEW: Mapping[str, tuple[str, ...]] = {
    # `diff.go`, for the kinds that are registered here.
    CLAIM: ("spec.accessModes", "spec.selector", "spec.storageClassName", "spec.volumeName"),
    "ConfigMap": ("data", "binaryData"),
    "Deployment": ("spec.selector",),
    "Secret": ("type", "data", "stringData"),
    "Service": ("spec.clusterIP",),
    "RoleBinding": ("roleRef",),
    "ClusterRoleBinding": ("roleRef",),
}
IMMUTABLE_IN_A_CLAIM = ("accessModes", "selector", "storageClassName", "volumeName", "volumeMode")
DEFAULT_CLASS = "the-default"
WRITTEN_BY_CONTROLLERS = {
    "pv.kubernetes.io/bind-completed": "yes",
    "pv.kubernetes.io/bound-by-controller": "yes",
    "volume.kubernetes.io/storage-provisioner": "csi.example.com",
    "volume.beta.kubernetes.io/storage-provisioner": "csi.example.com",
    "volume.kubernetes.io/selected-node": "n1",
}
INITIALIZATION_FAILED = "#initerror"

Path = tuple[str | int, ...]
Identity = tuple[str, str, str]
"""Kind, namespace and name: what an object is in the cluster."""


@dataclass(frozen=True, kw_only=True)
class Harm:
    """What must not happen to a claim.

    Attributes:
        claim: its logical name.
        what: `deleted` in the cluster; `replaced`, which leaves it neither where it was nor made anew; `blocked`: every
            update fails until the configuration is put back.
        because: the rule, and what it was applied to.
    """

    claim: str
    what: Literal["deleted", "replaced", "blocked"]
    because: str


class RunFailedError(Exception):
    """The run ends here, with what it did so far in the state."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """One resource in the state, with the options of its last registration, inherited ones included.

    Attributes:
        live: the object as the provider saw it last.
        needs: what its properties were made from.
        has_failed: whether its last create or update did not end well.
        is_pending: whether a run deleted it and did not come to make it anew.
    """

    urn: str
    type: str
    name: str
    inputs: dict[str, Any]
    live: dict[str, Any]
    import_id: str
    provider: str
    is_retained: bool
    is_protected: bool
    deleted_with: str
    replace_with: frozenset[str]
    trigger: Any
    replace_on_changes: tuple[str, ...]
    ignored: tuple[str, ...]
    deletes_first: bool
    needs: frozenset[str]
    has_failed: bool = False
    is_pending: bool = False

    @property
    def kind(self) -> str:
        return self.type.rpartition(":")[2]

    @property
    def is_object(self) -> bool:
        return self.type.startswith("kubernetes:")

    @property
    def is_claim(self) -> bool:
        return self.is_object and self.kind == CLAIM

    @property
    def identity(self) -> Identity:
        meta = self.inputs["metadata"]
        return self.kind, meta.get("namespace", ""), meta["name"]

    @property
    def id(self) -> str:
        _, namespace, name = self.identity
        return f"{namespace}/{name}" if namespace else name


@dataclass
class Cluster:
    """The objects there are, and what this program's field manager owns of them."""

    objects: dict[Identity, dict[str, Any]] = field(default_factory=dict[Identity, dict[str, Any]])
    applied: dict[Identity, dict[str, Any]] = field(default_factory=dict[Identity, dict[str, Any]])

    def find_claim(self, import_id: str) -> dict[str, Any] | None:
        namespace, _, name = import_id.rpartition("/")
        return self.objects.get((CLAIM, namespace, name))

    def claims(self) -> dict[str, dict[str, Any]]:
        """Claims by name."""
        return {name: live for (kind, _, name), live in self.objects.items() if kind == CLAIM}

    def apply(self, held: Held) -> dict[str, Any]:
        """Create or update, as a forced server-side apply does; the object as it is then. Raises when it is refused."""
        known = self.objects.get(held.identity)
        if held.is_claim and known is not None:
            self._refuse_changes(held, known)
        live = copy.deepcopy(held.inputs) if known is None else merge(known, held.inputs)
        if held.is_claim:
            live = bound(live)
        self.objects[held.identity] = live
        self.applied[held.identity] = copy.deepcopy(held.inputs)
        return copy.deepcopy(live)

    def _refuse_changes(self, held: Held, live: dict[str, Any]) -> None:
        wanted, owned = held.inputs["spec"], self.applied.get(held.identity, {}).get("spec", {})
        for key in IMMUTABLE_IN_A_CLAIM:
            takes_away = key in owned and key not in wanted
            if takes_away or (key in wanted and wanted[key] != live["spec"].get(key)):
                raise RunFailedError(f"{held.name}: spec.{key} is immutable")
        if amount(size_of(held.inputs)) < amount(size_of(live)):
            raise RunFailedError(f"{held.name}: spec.resources.requests.storage can not be less than it is")

    def delete(self, identity: Identity) -> Iterator[Identity]:
        """Delete an object with what it owns, or a Namespace with what is in it; says what went."""
        if self.objects.pop(identity, None) is None:
            return
        self.applied.pop(identity, None)
        yield identity
        kind, _, name = identity
        for other, live in list(self.objects.items()):
            owners = live["metadata"].get("ownerReferences", ())
            is_owned = any((owner["kind"], owner["name"]) == (kind, name) for owner in owners)
            if is_owned or (kind == "Namespace" and other[1] == name):
                yield from self.delete(other)


def size_of(claim: Mapping[str, Any]) -> str:
    """What a claim asks for."""
    return claim["spec"]["resources"]["requests"]["storage"]


def bound(claim: dict[str, Any]) -> dict[str, Any]:
    """A claim with what the API server and the controllers add."""
    meta, spec = claim["metadata"], claim["spec"]
    added = {"storageClassName": DEFAULT_CLASS, "volumeMode": "Filesystem", "volumeName": f"pv-{meta['name']}"}
    return claim | {
        "metadata": meta
        | {"finalizers": ["kubernetes.io/pvc-protection"]}
        | {"annotations": WRITTEN_BY_CONTROLLERS | meta.get("annotations", {})},
        "spec": added | spec,
    }


@dataclass
class Run:
    """One update under way.

    Attributes:
        before: the state at its begin.
        replaced: what is replaced or, condemned by something replaced, about to be made anew.
        seen: what was registered.
        deleted: what was deleted from the state.
    """

    before: dict[str, Held]
    refreshes: bool
    replaced: set[str] = field(default_factory=set[str])
    seen: set[str] = field(default_factory=set[str])
    deleted: set[str] = field(default_factory=set[str])


@dataclass
class Engine:
    """The engine with its state and the provider, for one stack.

    Attributes:
        state: resources by URN, in the order of their registration.
        harms: everything that must not happen and did, in every run so far.
        steps: what the last run did to claims: `logical name: create|import|update|drop`.
    """

    cluster: Cluster = field(default_factory=Cluster)
    state: dict[str, Held] = field(default_factory=dict[str, Held])
    harms: list[Harm] = field(default_factory=list[Harm])
    steps: list[str] = field(default_factory=list[str])

    def up(
        self, registrations: Sequence[Recorded], *, refreshes: bool = True, stops_after: int | None = None
    ) -> str | None:
        """Update the stack; why it failed, None when it went through.

        Args:
            registrations: what the program registered, in order.
            refreshes: whether the state is refreshed before, as `options.refresh: always` has it.
            stops_after: number of registrations after which the run is ended from outside.
        """
        self.steps.clear()
        run = Run(before=dict(self.state), refreshes=refreshes)
        try:
            for recorded in registrations[:stops_after]:
                self._register(recorded, run)
            if stops_after is not None and stops_after < len(registrations):
                return "ended from outside"
            for held in reversed(list(run.before.values())):
                if held.urn not in run.seen:
                    self._delete(held, run)
        except RunFailedError as error:
            return str(error)
        return None

    def destroy(self) -> str | None:
        """Destroy the stack; why it failed, None when it went through."""
        self.steps.clear()
        run = Run(before=dict(self.state), refreshes=True)
        try:
            for held in reversed(list(self.state.values())):
                self._delete(held, run)
        except RunFailedError as error:
            return str(error)
        return None

    # -- one registration -------------------------------------------------------------------------------------------

    def _register(self, recorded: Recorded, run: Run) -> None:
        new = self._want(recorded)
        run.seen.add(new.urn)
        old = self.state.get(new.urn)
        if old is not None and run.refreshes:
            old = self._refresh(old)
        if new.import_id and (old is None or new.import_id != (old.import_id or old.id)):
            if old is not None:
                self._harm(old, "replaced", f"another ID is imported, {new.import_id}")
            old = self._import(new)
            self._step(new, "import")
        elif old is None or new.urn in run.replaced:
            self._step(new, "create")
            self.state[new.urn] = self._create(new)
            return
        new = replace(new, inputs=reset(new.inputs, old.inputs, new.ignored))
        difference = list(differing(old, new))
        if (why := self._why_replaced(old, new, difference, run)) is not None:
            self._replace(old, new, why, run)
            self.state[new.urn] = self._create(new)
        elif difference or old.has_failed:
            self._step(new, "update")
            self.state[new.urn] = replace(new, live=old.live, has_failed=True)  # until it went well
            self.state[new.urn] = self._create(new)
        else:
            self.state[new.urn] = replace(new, live=old.live)

    def _want(self, recorded: Recorded) -> Held:
        request = recorded.request
        parent = self.state.get(request.parent)
        return Held(
            urn=recorded.urn,
            type=recorded.type,
            name=recorded.name,
            inputs=copy.deepcopy(recorded.inputs),
            live={},
            import_id=request.importId,
            provider=request.provider or (parent.provider if parent else ""),
            is_retained=request.retainOnDelete
            if request.HasField("retainOnDelete")
            else parent is not None and parent.is_retained,
            is_protected=request.protect if request.HasField("protect") else parent is not None and parent.is_protected,
            deleted_with=request.deletedWith or (parent.deleted_with if parent else ""),
            replace_with=frozenset(request.replace_with),
            trigger=MessageToDict(request.replacement_trigger) if request.HasField("replacement_trigger") else None,
            replace_on_changes=tuple(request.replaceOnChanges),
            ignored=tuple(request.ignoreChanges),
            deletes_first=request.deleteBeforeReplace if request.deleteBeforeReplaceDefined else True,
            needs=frozenset(urn for needed in request.propertyDependencies.values() for urn in needed.urns),
        )

    def _refresh(self, old: Held) -> Held | None:
        """What a refresh makes of it: the live object, pruned to what was recorded; nothing when that is gone."""
        if not old.is_object or old.is_pending:
            return old
        live = self.cluster.objects.get(old.identity)
        if live is None:
            return None
        return replace(old, inputs=prune(live, old.inputs), live=copy.deepcopy(live), has_failed=False)

    def _import(self, new: Held) -> Held:
        live = self.cluster.find_claim(new.import_id)
        if live is None:
            raise RunFailedError(f"resource '{new.import_id}' does not exist")
        return replace(new, inputs=copy.deepcopy(live), live=copy.deepcopy(live), trigger=None)

    def _create(self, new: Held) -> Held:
        return replace(new, live=self.cluster.apply(new)) if new.is_object else new

    # -- replacement ------------------------------------------------------------------------------------------------

    def _why_replaced(self, old: Held, new: Held, difference: list[Path], run: Run) -> str | None:
        return next(self._reasons(old, new, difference, run), None)

    def _reasons(self, old: Held, new: Held, difference: list[Path], run: Run) -> Iterator[str]:
        if old.trigger is not None and new.trigger is not None and old.trigger != new.trigger:
            yield "its replacement trigger changed"
        for other in sorted({*new.replace_with, new.deleted_with} & run.replaced):
            yield f"{short(other)} is replaced, with which it is"
        if self._provider_is_another(old, new, run):
            yield "its provider is replaced"
        if new.type == PROVIDER and is_another_cluster(old.inputs, new.inputs):
            yield "it leads to another cluster"
        for path in difference:
            if is_forced(new, path):
                yield f"{dotted(path)} changed, which forces it"
            if any(contains(parse(each), path) for each in new.replace_on_changes):
                yield f"{dotted(path)} changed, which is in replaceOnChanges"
        if old.has_failed and any(contains(parse(each), (INITIALIZATION_FAILED,)) for each in new.replace_on_changes):
            yield "it failed before, and replaceOnChanges holds everything"
        if old.is_pending:
            yield "it was deleted and never made anew"

    def _provider_is_another(self, old: Held, new: Held, run: Run) -> bool:
        was, now = old.provider.rpartition("::")[0], new.provider.rpartition("::")[0]
        if was == now:
            return now in run.replaced
        if was not in run.before or now not in self.state:
            return True
        return is_another_cluster(run.before[was].inputs, self.state[now].inputs)

    def _replace(self, old: Held, new: Held, why: str, run: Run) -> None:
        if new.import_id:
            self._harm(new, "blocked", f"{why}, and what still specifies an ID may not be replaced")
            raise RunFailedError(f"{new.name}: previously-imported resources may not be replaced")
        if old.is_protected and new.is_protected:
            self._harm(new, "blocked", f"{why}, and it is protected")
            raise RunFailedError(f"{new.name} is protected")
        run.replaced.add(new.urn)
        if new.deletes_first:
            for held in list(self.state.values()):
                goes_along = new.urn in {held.deleted_with, *held.replace_with}
                hangs_on = held.is_claim and new.urn in held.needs
                if held.urn not in run.replaced and (goes_along or hangs_on):
                    self._make_way(held, f"{new.name} is replaced, with which it is", run)
        self._make_way(old, why, run)

    def _make_way(self, held: Held, why: str, run: Run) -> None:
        """Delete what is to be made anew. What is retained stays in the cluster, and the engine waits to create it."""
        self._harm(held, "replaced" if held.is_retained else "deleted", why)
        goes_by_itself = held.is_retained or held.is_pending or held.deleted_with in run.replaced
        run.replaced.add(held.urn)
        self.state[held.urn] = replace(held, is_pending=True)
        if held.is_object and not goes_by_itself:
            self._send_delete(held)

    # -- deletion ---------------------------------------------------------------------------------------------------

    def _delete(self, held: Held, run: Run) -> None:
        if held.is_protected:
            self._harm(held, "blocked", "it is to be deleted, and it is protected")
            raise RunFailedError(f"{held.name} cannot be deleted because it is protected")
        self._step(held, "drop")
        self.state.pop(held.urn, None)
        is_sent = held.is_object and not held.is_retained and held.deleted_with not in run.deleted
        run.deleted.add(held.urn)
        if is_sent and not held.is_pending:
            self._harm(held, "deleted", "it was dropped, and the state does not have it as retained")
            self._send_delete(held)

    def _send_delete(self, held: Held) -> None:
        for kind, _, name in self.cluster.delete(held.identity):
            if kind == CLAIM and (kind, name) != (held.kind, held.identity[2]):
                self.harms.append(Harm(claim=name, what="deleted", because=f"{held.name} went, which owns or holds it"))

    def _harm(self, held: Held, what: Literal["deleted", "replaced", "blocked"], because: str) -> None:
        if held.is_claim:
            self.harms.append(Harm(claim=held.name, what=what, because=because))

    def _step(self, held: Held, what: str) -> None:
        if held.is_claim:
            self.steps.append(f"{held.name}: {what}")


def short(urn: str) -> str:
    """Logical name of a URN."""
    return urn.rpartition("::")[2]


def is_another_cluster(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether the provider holds that its objects lie elsewhere now (`DiffConfig`)."""
    before, now = old.get("clusterIdentifier"), new.get("clusterIdentifier")
    if before and now:
        return before != now
    return any(old.get(key) != new.get(key) for key in ("context", "cluster", "kubeconfig"))


# --- property paths ---------------------------------------------------------------------------------------------------

PART = re.compile(r'\["(?P<quoted>[^"]+)"\]|\[(?P<index>\d+|\*)\]|\.?(?P<plain>[^.\[\]]+)')


def parse(path: str) -> Path:
    """`spec.a["b/c"][0]` in its parts."""
    parts: list[str | int] = []
    for part in PART.finditer(path):
        index = part["index"]
        parts.append(int(index) if index and index.isdecimal() else part["quoted"] or part["plain"] or "*")
    return tuple(parts)


def dotted(path: Path) -> str:
    """For a reader."""
    return ".".join(map(str, path))


def contains(outer: Path, inner: Path) -> bool:
    """Whether a path holds another: it is its beginning, `*` standing for any part."""
    return len(outer) <= len(inner) and all(a in ("*", b) for a, b in zip(outer, inner, strict=False))


def is_forced(new: Held, path: Path) -> bool:
    """Whether a change there makes the provider replace the object; also where more than a forced path is added."""
    return new.is_object and any(
        contains(forced, path) or contains(path, forced)
        for forced in map(parse, (*ALWAYS_FORCED, *FORCES_NEW.get(new.kind, ())))
    )


def reset(new: dict[str, Any], old: dict[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """New inputs with each ignored path as it was recorded, or absent as it was."""
    result = copy.deepcopy(new)
    for path in paths:
        *outer, last = parse(path)
        here, there = as_map(result), as_map(old)
        for part in outer:
            here = None if here is None else as_map(here.get(str(part)))
            there = None if there is None else as_map(there.get(str(part)))
        if here is None or there is None:
            continue
        if last in there:
            here[str(last)] = copy.deepcopy(there[str(last)])
        else:
            here.pop(str(last), None)
    return result


def prune(live: Any, inputs: Any) -> Any:
    """Of a live object only what the inputs have too."""
    live_map, wanted = as_map(live), as_map(inputs)
    if live_map is not None and wanted is not None:
        return {key: prune(live_map[key], wanted[key]) for key in wanted if key in live_map}
    live_list, listed = as_list(live), as_list(inputs)
    if live_list is not None and listed is not None:
        return [prune(one, other) for one, other in zip(live_list, listed, strict=False)]
    return copy.deepcopy(live)


def merge(live: Any, inputs: Any) -> Any:
    """A live object with the inputs over it."""
    known, wanted = as_map(live), as_map(inputs)
    if known is None or wanted is None:
        return copy.deepcopy(inputs)
    return known | {key: merge(known.get(key), value) for key, value in wanted.items()}


def differing(old: Held, new: Held) -> Iterator[Path]:
    """Paths of the provider's diff that `ignoreChanges` leaves."""
    known = prune(old.live, old.inputs) if old.is_object else old.inputs
    ignored = [parse(path) for path in new.ignored]
    for path in paths_between(known, new.inputs):
        if not any(contains(each, path) for each in ignored):
            yield path


def paths_between(old: Any, new: Any, path: Path = ()) -> Iterator[Path]:
    """Where two values differ; what is added or taken away as a whole is one path."""
    pairs = _pairs(old, new)
    if pairs is None:
        if old != new:
            yield path
        return
    for key, before, now in pairs:
        if before is None or now is None:
            yield (*path, key)
        else:
            yield from paths_between(before[0], now[0], (*path, key))


Boxed = tuple[Any] | None


def _pairs(old: Any, new: Any) -> list[tuple[str | int, Boxed, Boxed]] | None:
    """Keys or indices of two maps or two lists with both values, None for one that is not there; else None."""
    maps = as_map(old), as_map(new)
    if maps[0] is not None and maps[1] is not None:
        return [(key, _boxed(maps[0], key), _boxed(maps[1], key)) for key in {**maps[0], **maps[1]}]
    lists = as_list(old), as_list(new)
    if lists[0] is not None and lists[1] is not None:
        before, now = dict(enumerate(lists[0])), dict(enumerate(lists[1]))
        return [(index, _boxed(before, index), _boxed(now, index)) for index in sorted({*before, *now})]
    return None


def _boxed(values: Mapping[Any, Any], key: str | int) -> Boxed:
    return (values[key],) if key in values else None


def as_map(value: Any) -> dict[str, Any] | None:
    """A JSON object as such."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def as_list(value: Any) -> list[Any] | None:
    """A JSON array as such."""
    return cast("list[Any]", value) if isinstance(value, list) else None
