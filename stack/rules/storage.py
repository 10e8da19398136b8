"""Rules about volumes: who can mount them, where, and settings that have no effect for the chosen kind.

The access mode rules are those of *Scaling and Upgrades*, "Other situations to watch"; claims from outside are not
judged, since their modes are not seen here. A claim whose modes include a shared one counts as shared.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final, cast

from pydantic import BaseModel

from stack.errors import MISSING, Problem
from stack.rules.rule import Finding, Rule, Setting, error, once, rule, warning
from stack.rules.strategy import surge_of
from stack.scalars import amount
from stack.serve import CONFIG_DIR

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stack.config.storage import CompileCacheConfig, ModelVolumeConfig

_CACHE: Final = "storage.compileCache"
_MODEL: Final = "storage.model"
_ONE_NODE: Final = "Use ReadWriteMany, or kind: existingClaim with a claim you know"
_SMALLEST: Final = Decimal(2**20)
_SYSTEM_PATHS: Final = frozenset({"/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr"})
_KERNEL_PATHS: Final = ("/proc", "/sys")
_BUILT_IN_PATHS: Final[Mapping[str, str]] = {
    "/dev/shm": "shared memory",  # noqa: S108
    "/tmp": "scratch space",  # noqa: S108
    CONFIG_DIR: "the serve configuration",
}
FIELDS_OF_KIND: Final[Mapping[str, frozenset[str]]] = {
    "pvc": frozenset({"size", "access_modes", "storage_class", "adopt"}),
    "existingClaim": frozenset({"existing_claim"}),
    "emptyDir": frozenset({"size_limit"}),
}


def can_be_written_by_all(setting: Setting) -> Iterator[Finding]:
    """Compile cache against the Pods of a role (V6, V7, V8)."""
    cache = setting.config.storage.compile_cache
    if cache.kind != "pvc" or _is_shared(cache):
        return
    key, modes = f"{_CACHE}.accessModes", ", ".join(cache.access_modes)
    is_single_pod = cache.access_modes == ("ReadWriteOncePod",)
    if setting.is_placed:
        for role in setting.roles:
            entries = [entry for entry in setting.config.modelserver.node_placement if entry.role == role]
            nodes = sorted({entry.node for entry in entries})
            if len(nodes) > 1:
                yield error(
                    key, modes, f"only one node can mount it, and {role} Pods are on {len(nodes)} nodes", fix=_ONE_NODE
                )
            elif is_single_pod and len(entries) > 1:
                yield error(
                    key, modes, f"only one Pod can mount it, and there are {len(entries)} {role} Pods", fix=_ONE_NODE
                )
        return
    for role in setting.roles:
        replicas = setting.most_pods[role]
        if replicas > 1:
            who = "Pod" if is_single_pod else "node"
            yield error(
                key,
                modes,
                f"only one {who} can mount it, and {replicas} {role} Pods share one cache",
                fix=f"{_ONE_NODE}, or at most one replica a role",
            )
        elif is_single_pod and surge_of(setting, replicas) > 0:
            yield error(
                key,
                modes,
                f"only one Pod can mount it, and a rolling update starts the new {role} Pod before the old one leaves",
                fix="Set modelserver.strategy.rollingUpdate to maxSurge: 0, maxUnavailable: 1, or type: Recreate",
            )
        elif surge_of(setting, replicas) > 0:
            yield warning(
                key,
                modes,
                f"a rolling update starts the new {role} Pod first, and on another node it cannot mount the cache",
                fix="Set modelserver.strategy.rollingUpdate to maxSurge: 0, maxUnavailable: 1, or use ReadWriteMany",
            )


def can_be_read_by_all(setting: Setting) -> Iterator[Finding]:
    """Model volume that the stack makes against all Pods (V9)."""
    model = setting.config.storage.model
    total = sum(setting.most_pods.values())
    if model.kind != "pvc" or _is_shared(model) or not total:
        return
    key, modes = f"{_MODEL}.accessModes", ", ".join(model.access_modes)
    is_single_pod = model.access_modes == ("ReadWriteOncePod",)
    surge = any(surge_of(setting, setting.most_pods[role]) for role in setting.roles)
    if total > 1:
        yield error(
            key,
            modes,
            f"only one {'Pod' if is_single_pod else 'node'} can mount it, and all {total} Pods read the model from it",
            fix="Use ReadWriteMany, or kind: existingClaim with a claim that every node can mount",
        )
    elif surge and is_single_pod:
        yield error(
            key,
            modes,
            "only one Pod can mount it, and a rolling update starts the new Pod before the old one leaves",
            fix="Set modelserver.strategy.rollingUpdate to maxSurge: 0, maxUnavailable: 1, or type: Recreate",
        )
    elif surge:
        yield warning(
            key,
            modes,
            "a rolling update starts the new Pod first, and on another node it cannot mount the model",
            fix="Set modelserver.strategy.rollingUpdate to maxSurge: 0, maxUnavailable: 1, or use ReadWriteMany",
        )


def can_be_written_at_all(setting: Setting) -> Iterator[Finding]:
    """ReadOnlyMany alone on a claim that starts empty."""
    for key, volume in ((_CACHE, setting.config.storage.compile_cache), (_MODEL, setting.config.storage.model)):
        if volume.kind == "pvc" and volume.access_modes == ("ReadOnlyMany",):
            yield warning(
                f"{key}.accessModes",
                "ReadOnlyMany",
                "the claim starts empty and nothing could fill it",
                fix="Add ReadWriteMany, or use kind: existingClaim",
            )


def names_its_claims(setting: Setting) -> Iterator[Finding]:
    """Kind existingClaim without the claim's name."""
    cache, model = setting.config.storage.compile_cache, setting.config.storage.model
    if cache.kind == "existingClaim":
        for role in setting.roles:
            if cache.existing_claim.of(role) is None:
                yield _missing(f"{_CACHE}.existingClaim.{role}", f"kind is existingClaim, and there are {role} Pods")
    if model.kind == "existingClaim" and model.existing_claim is None:
        yield _missing(
            f"{_MODEL}.existingClaim",
            "kind is existingClaim, the default, since weights usually lie in a store of yours",
            "Write the name of your claim, or choose kind: pvc or emptyDir",
        )


def _missing(key: str, why: str, fix: str = "Write the name of your claim, or choose another kind") -> Finding:
    return Finding(problem=Problem(key=key, value=MISSING, why=why, fix=fix), is_error=True)


def has_effect(setting: Setting) -> Iterator[Finding]:
    """Keys that mean nothing for the chosen kind."""
    for key, volume in ((_CACHE, setting.config.storage.compile_cache), (_MODEL, setting.config.storage.model)):
        for kind, fields in FIELDS_OF_KIND.items():
            for name in sorted(fields & volume.model_fields_set):
                if kind != volume.kind and getattr(volume, name) is not None:
                    yield warning(
                        f"{key}.{_alias(volume, name)}",
                        _text(getattr(volume, name)),
                        f"has an effect with kind {kind} only, and kind is {volume.kind}",
                        fix=f"Remove it, or set kind: {kind}",
                    )


def _alias(model: BaseModel, name: str) -> str:
    return type(model).model_fields[name].alias or name


def _text(value: object) -> object:
    if isinstance(value, tuple):
        return ", ".join(map(str, cast("tuple[object, ...]", value)))
    return "given" if isinstance(value, BaseModel) else value


def can_find_the_model(setting: Setting) -> Iterator[Finding]:
    """A folder, or read-only, on a volume that starts empty."""
    model = setting.config.storage.model
    if model.kind == "emptyDir":
        if model.path is not None:
            yield error(
                f"{_MODEL}.path",
                model.path,
                "the volume is an emptyDir and holds nothing at start",
                fix="Remove the path, so that the model is loaded into it, or use kind: existingClaim",
            )
        if model.read_only:
            yield error(
                f"{_MODEL}.readOnly",
                value=True,
                why="the volume is an emptyDir, and nothing could be loaded into it",
                fix="Set readOnly: false, or use kind: existingClaim",
            )
        yield warning(
            f"{_MODEL}.kind",
            "emptyDir",
            "every Pod loads the whole model at every start",
            fix="Use kind: existingClaim or pvc for anything but a try",
        )
    if model.kind == "pvc" and model.read_only:
        yield warning(
            f"{_MODEL}.readOnly",
            value=True,
            why="the claim is made empty by the stack, and no Pod could fill it",
            fix="Set readOnly: false until the model is in it, or use kind: existingClaim",
        )


def keeps_what_is_compiled(setting: Setting) -> Iterator[Finding]:
    """Compile cache in an emptyDir while the engine compiles ahead."""
    if setting.config.storage.compile_cache.kind == "emptyDir" and setting.recipe.engine.compiler is not None:
        yield warning(
            f"{_CACHE}.kind",
            "emptyDir",
            "every Pod compiles the model at every start",
            fix="Use kind: pvc or existingClaim for anything but a try",
        )


def has_real_sizes(setting: Setting) -> Iterator[Finding]:
    """Sizes without a unit, which are bytes."""
    storage = setting.config.storage
    sizes = {
        f"{_CACHE}.size": storage.compile_cache.size,
        f"{_CACHE}.sizeLimit": storage.compile_cache.size_limit,
        f"{_MODEL}.size": storage.model.size,
        f"{_MODEL}.sizeLimit": storage.model.size_limit,
        "storage.modelOffload.size": storage.model_offload.size,
        "storage.shm.sizeLimit": storage.shm.size_limit,
        "storage.tmp.sizeLimit": storage.tmp.size_limit,
    }
    for key, size in sizes.items():
        if size is not None and amount(size) < _SMALLEST:
            yield warning(key, size, f"is {amount(size):f} bytes", fix="Write a unit, such as 10Gi")


def mounts_each_path_once(setting: Setting) -> Iterator[Finding]:
    """Mount paths that meet or hold one another, the stack's own, or the image's system folders."""
    storage = setting.config.storage
    taken = dict(_BUILT_IN_PATHS)
    mounts = [(_CACHE, storage.compile_cache.mount_path), (_MODEL, storage.model.mount_path)]
    if storage.model_offload.enabled:
        mounts.append(("storage.modelOffload", storage.model_offload.mount_path))
    for key, path in mounts:
        problem = _trouble_at(path, taken)
        if problem is None:
            taken[path] = key
        else:
            why, fix = problem
            yield error(f"{key}.mountPath", path, why, fix=fix)


def _trouble_at(path: str, taken: Mapping[str, str]) -> tuple[str, str] | None:
    """Why nothing can be mounted there and what to do; None if something can."""
    if path in _SYSTEM_PATHS:
        return "hides files that the image needs to start", "Choose another path, such as /models"
    for kernel in _KERNEL_PATHS:
        if _lies_in(path, kernel):
            return f"lies in {kernel}, where container runtimes mount nothing", "Choose another path, such as /models"
    own = "Choose a path of its own"
    for other, what in taken.items():
        if path == other:
            return f"is the path of {what} already", own
        if _lies_in(path, other):
            return f"lies in {other}, the path of {what}, so one volume would hold the other's folder", own
        if _lies_in(other, path):
            return f"holds {other}, the path of {what}, so one volume would hold the other's folder", own
    return None


def _lies_in(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/")


def has_memory_for_shm(setting: Setting) -> Iterator[Finding]:
    """Shared memory larger than the memory limit it counts against."""
    shm = setting.config.storage.shm.size_limit
    if shm is None:
        return
    for role in setting.roles:
        modelserver = setting.config.modelserver
        resources = modelserver.pod_overrides.of(role).resources or modelserver.resources or setting.recipe.resources
        limit = resources.limits.get("memory")
        if limit is not None and amount(shm) >= amount(limit):
            yield warning(
                "storage.shm.sizeLimit",
                shm,
                f"counts against the memory limit of {limit} of the {role} container and fills it",
                fix="Lower it, or raise the memory limit",
            )


def _is_shared(volume: CompileCacheConfig | ModelVolumeConfig) -> bool:
    return bool({"ReadWriteMany", "ReadOnlyMany"} & set(volume.access_modes))


RULES: tuple[Rule, ...] = (
    rule(once(can_be_written_by_all), "storage", "modelserver"),
    rule(can_be_read_by_all, "storage", "modelserver"),
    rule(can_be_written_at_all, "storage"),
    rule(names_its_claims, "storage", "modelserver"),
    rule(has_effect, "storage"),
    rule(can_find_the_model, "storage"),
    rule(keeps_what_is_compiled, "storage", "recipe"),
    rule(has_real_sizes, "storage"),
    rule(mounts_each_path_once, "storage"),
    rule(once(has_memory_for_shm), "storage", "modelserver", "recipe"),
)
