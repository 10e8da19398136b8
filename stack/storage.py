"""PersistentVolumeClaims that outlive the stack, and the volumes of a role Pod.

A compiled cache costs minutes to hours of compiling and a model store hours of loading, so the program never deletes or
replaces a claim: it is retained at destroy, when its role goes to 0 and at mode switches, and found again by name
(*Scaling and Upgrades*, "What remains").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stack import labels, names
from stack.errors import Problem, show
from stack.planned import ObjectPlan, VolumePlan
from stack.scalars import canonical
from stack.serve import CONFIG_DIR

if TYPE_CHECKING:
    from stack.config.root import StackConfig
    from stack.facts import ClusterFacts
    from stack.recipes.model import Recipe
    from stack.scalars import Role

WRITTEN_BY_CONTROLLERS = (
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/selected-node",
)
IGNORED = (
    # The four paths that make the provider replace a claim; the guards, not the engine, find a difference in them.
    "spec.storageClassName",
    "spec.accessModes",
    "spec.selector",
    "spec.volumeName",
    "spec.volumeMode",
    "metadata.finalizers",
    # One by one: ignoring the annotations as a whole would hide our own.
    *(f'metadata.annotations["{annotation}"]' for annotation in WRITTEN_BY_CONTROLLERS),
)


@dataclass(frozen=True, kw_only=True)
class MountPlan:
    """One volume of the Pod and where the model server mounts it."""

    volume: dict[str, Any]
    path: str
    is_read_only: bool = False

    @property
    def mount(self) -> dict[str, Any]:
        """The container's `volumeMounts` entry."""
        mount: dict[str, Any] = {"name": self.volume["name"], "mountPath": self.path}
        return mount | {"readOnly": True} if self.is_read_only else mount


def plan_volumes(config: StackConfig, roles: tuple[Role, ...], facts: ClusterFacts) -> tuple[VolumePlan, ...]:
    """The claims this program makes: a compile cache for each role with Pods, and the model store when it is `pvc`."""
    volumes: list[VolumePlan] = []
    cache, model = config.storage.compile_cache, config.storage.model
    if cache.kind == "pvc":
        volumes += [
            _claim(
                config,
                names.compile_cache(config.release, role),
                facts,
                component=role,
                size=cache.size,
                access_modes=list(cache.access_modes),
                storage_class=cache.storage_class,
            )
            for role in roles
        ]
    if model.kind == "pvc":
        volumes.append(
            _claim(
                config,
                names.model_cache(config.release),
                facts,
                component="model",
                size=model.size,
                access_modes=list(model.access_modes),
                storage_class=model.storage_class,
            )
        )
    return tuple(volumes)


def _claim(
    config: StackConfig,
    name: str,
    facts: ClusterFacts,
    *,
    component: str,
    size: str,
    access_modes: list[str],
    storage_class: str | None,
) -> VolumePlan:
    spec: dict[str, Any] = {
        "accessModes": access_modes,
        "resources": {"requests": {"storage": canonical(size)}},
    }
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    return VolumePlan(
        object=ObjectPlan(
            # The namespace is part of its identity: another namespace is another claim, never a replaced one.
            logical_name=f"{config.namespace}-{name}",
            manifest={
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": labels.object_meta(
                    name,
                    release=config.release,
                    namespace=config.namespace,
                    component=component,
                    # A bound claim of a WaitForFirstConsumer class would be waited for in vain when it is taken over.
                    annotations=labels.SKIP_AWAIT,
                ),
                "spec": spec,
            },
        ),
        import_id=f"{config.namespace}/{name}" if name in (facts.claims or ()) else None,
        ignored=IGNORED,
    )


def refuse_claims(config: StackConfig, volumes: tuple[VolumePlan, ...], facts: ClusterFacts) -> tuple[Problem, ...]:
    """Claims in the cluster that can't be taken over: one that goes, and one that nobody said is to be adopted."""
    problems: list[Problem] = []
    for volume in volumes:
        name = volume.object.name
        live = (facts.claims or {}).get(name)
        if live is None:
            continue
        kubectl = f"kubectl -n {config.namespace}"
        if live.is_terminating:
            problems.append(
                Problem(
                    key=block_of(config, volume),
                    value=show(name),
                    why="this claim is being deleted, and what it holds goes with it",
                    fix=f"Stop the Pods that still use it (`{kubectl} describe pvc {name}` names them), wait until "
                    f"`{kubectl} get pvc {name}` finds it no more, then run it again",
                )
            )
        elif live.instance != config.release and not _adopts(config, volume):
            label = f"{labels.INSTANCE}={config.release}"
            found = "no such label" if live.instance is None else f"`{live.instance}` there"
            overwrite = "" if live.instance is None else " --overwrite"
            problems.append(
                Problem(
                    key=block_of(config, volume),
                    value=show(name),
                    why=f"a claim of this name exists without the label {label} of this release (it has {found}), so "
                    "it may be somebody else's",
                    fix=f"To take it over with what it holds, set {block_of(config, volume)}.adopt: true, or label it: "
                    f"`{kubectl} label pvc {name} {label}{overwrite}`. Otherwise choose another release or namespace",
                )
            )
    return tuple(problems)


def warn_of_claims(config: StackConfig, volumes: tuple[VolumePlan, ...], facts: ClusterFacts) -> tuple[Problem, ...]:
    """What a preview can't show when the claims are not known, and claims that another release may miss."""
    if not volumes:
        return ()
    if facts.claims is not None:
        return tuple(
            Problem(
                key=f"{block_of(config, volume)}.adopt",
                value=show(volume.object.name),
                why=f"this claim has the label of release `{live.instance}` and is taken over from it",
                fix=f"See that nothing deploys `{live.instance}` with this claim any more: it would be refused there, "
                "or be taken back with adopt there too",
            )
            for volume in volumes
            if (live := facts.claims.get(volume.object.name)) is not None
            and live.instance not in {None, config.release}
        )
    return (
        Problem(
            key="storage",
            value="",
            why=f"the volumes of namespace {config.namespace} could not be looked up, so a preview may show `create` "
            "for one that is there and is taken over",
            fix="Give access to the cluster and the right to list PersistentVolumeClaims there",
        ),
    )


def block_of(config: StackConfig, volume: VolumePlan) -> str:
    """The block of the stack file that says what this claim is to be."""
    return "storage.model" if _is_model(config, volume) else "storage.compileCache"


def _adopts(config: StackConfig, volume: VolumePlan) -> bool:
    storage = config.storage
    return storage.model.adopt if _is_model(config, volume) else storage.compile_cache.adopt


def _is_model(config: StackConfig, volume: VolumePlan) -> bool:
    return volume.object.name == names.model_cache(config.release)


def plan_mounts(config: StackConfig, recipe: Recipe, role: Role, serve_config_map: str) -> tuple[MountPlan, ...]:
    """Every volume of a role Pod. The root filesystem is read-only, so what is written to is a volume."""
    storage = config.storage
    mounts = [
        MountPlan(volume=_cache_volume(config, role), path=storage.compile_cache.mount_path),
        MountPlan(volume=_model_volume(config), path=storage.model.mount_path, is_read_only=storage.model.read_only),
        MountPlan(
            volume={
                "name": "shm",
                "emptyDir": {"medium": "Memory", "sizeLimit": canonical(storage.shm.size_limit or recipe.shm_size)},
            },
            path="/dev/shm",  # noqa: S108  # the ranks of one engine share memory there
        ),
        MountPlan(
            volume={"name": "tmp", "emptyDir": {"sizeLimit": canonical(storage.tmp.size_limit)}},
            path="/tmp",  # noqa: S108  # the Pod's own
        ),
        MountPlan(
            volume={"name": "serve-config", "configMap": {"name": serve_config_map}}, path=CONFIG_DIR, is_read_only=True
        ),
    ]
    offload = storage.model_offload
    if offload.enabled:
        spec: dict[str, Any] = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": canonical(offload.size)}},
        }
        if offload.storage_class is not None:
            spec["storageClassName"] = offload.storage_class
        mounts.append(
            MountPlan(
                volume={"name": "offload", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}},
                path=offload.mount_path,
            )
        )
    return tuple(mounts)


def _cache_volume(config: StackConfig, role: Role) -> dict[str, Any]:
    cache = config.storage.compile_cache
    match cache.kind:
        case "emptyDir":
            return {"name": "compile-cache", "emptyDir": _limit(cache.size_limit)}
        case "existingClaim":
            claim = cache.existing_claim.of(role)
        case _:
            claim = names.compile_cache(config.release, role)
    return {"name": "compile-cache", "persistentVolumeClaim": {"claimName": claim}}


def _model_volume(config: StackConfig) -> dict[str, Any]:
    model = config.storage.model
    match model.kind:
        case "emptyDir":
            return {"name": "model", "emptyDir": _limit(model.size_limit)}
        case "existingClaim":
            claim = model.existing_claim
        case _:
            claim = names.model_cache(config.release)
    source: dict[str, Any] = {"claimName": claim}
    return {"name": "model", "persistentVolumeClaim": source | {"readOnly": True} if model.read_only else source}


def _limit(size: str | None) -> dict[str, Any]:
    return {"sizeLimit": canonical(size)} if size else {}
