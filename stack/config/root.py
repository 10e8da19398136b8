"""The whole configuration: joins the blocks and turns everything that is wrong into letters, all at once.

What arrives is what the Pulumi engine made of the stack file, one entry a block, decoded from JSON. Relations between
keys of different maps are not looked at here; see `stack.rules`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from pydantic import Field, ValidationError

from stack.config.autoscaling import AutoscalingConfig
from stack.config.cluster import ClusterConfig
from stack.config.devices import DevicesConfig
from stack.config.disruption import DisruptionConfig
from stack.config.drain import DrainConfig
from stack.config.gateway import GatewayConfig
from stack.config.guards import GuardsConfig
from stack.config.modelserver import ModelServerConfig
from stack.config.monitoring import MonitoringConfig
from stack.config.problems import explain
from stack.config.rollout import RolloutConfig
from stack.config.router import RouterConfig
from stack.config.routing import RoutingConfig
from stack.config.secrets import find_secrets, hidden
from stack.config.shape import Path, near_key
from stack.config.storage import StorageConfig
from stack.config.tracing import TracingConfig
from stack.errors import HIDDEN, MISSING, UNKNOWN, ConfigError, Problem
from stack.scalars import DnsLabel, DnsSubdomain, NonEmpty, Release, Role, ServiceName, Strict

DEFAULT_RECIPE = "minimax-m2.7-rbln"


class StackConfig(Strict):
    """One serving stack."""

    release: Release = Field(
        description="Name of the stack's objects, at most 32 characters. Another name is another stack."
    )
    namespace: DnsLabel = Field(
        description="Namespace of everything the stack makes. It must exist; it is never made or deleted."
    )
    context: NonEmpty = Field(
        description="kubeconfig context, under `kubernetes:context`. Pinned, so that no stack meets a wrong cluster."
    )
    cluster: ClusterConfig = Field(description="The cluster the stack belongs to.")
    recipe: DnsSubdomain = Field(default=DEFAULT_RECIPE, description="Recipe: model, engine and their settings.")
    modelserver: ModelServerConfig = Field(default_factory=ModelServerConfig, description="Model servers.")
    devices: DevicesConfig = Field(default_factory=DevicesConfig, description="Devices of the model servers.")
    storage: StorageConfig = Field(default_factory=StorageConfig, description="Volumes of the model servers.")
    routing: RoutingConfig = Field(default_factory=RoutingConfig, description="Routing proxy of decode Pods.")
    gateway: GatewayConfig = Field(default_factory=GatewayConfig, description="Gateway and route.")
    router: RouterConfig = Field(default_factory=RouterConfig, description="Endpoint picker and pool.")
    drain: DrainConfig = Field(default_factory=DrainConfig, description="How model servers leave.")
    rollout: RolloutConfig = Field(default_factory=RolloutConfig, description="How changes go on.")
    autoscaling: AutoscalingConfig = Field(
        default_factory=AutoscalingConfig, description="Who decides how many Pods each role has."
    )
    disruption_budget: DisruptionConfig = Field(
        default_factory=DisruptionConfig, description="How many model servers of a role may be evicted at once."
    )
    guards: GuardsConfig = Field(default_factory=GuardsConfig, description="What stops a preview or an update.")
    monitoring: MonitoringConfig = Field(default_factory=MonitoringConfig, description="Scrape objects.")
    tracing: TracingConfig = Field(default_factory=TracingConfig, description="Traces.")
    image_pull_secrets: tuple[DnsSubdomain, ...] = Field(
        default=(), description="Names of image pull Secrets in the namespace."
    )
    epp_service_name: ServiceName | None = Field(
        default=None, description="Name of the endpoint picker's Service. Default: `<release>-epp`."
    )

    def bounds(self, role: Role) -> tuple[int, int]:
        """Fewest and most Pods of a role: floor and ceiling of its scaler, else twice what is configured."""
        configured = self.modelserver.pods()[role]
        scaling = self.autoscaling.of(role)
        if scaling.provider == "none" or self.modelserver.node_placement:
            return configured, configured
        floor = configured if scaling.min_replicas is None else scaling.min_replicas
        return floor, floor if scaling.max_replicas is None else scaling.max_replicas


CONTEXT_KEY: Final = "kubernetes:context"
_DEPTH: Final = 40
_LARGEST: Final = 2**63
_STAND_INS: Final[Mapping[str, object]] = {
    "release": "stand-in",
    "namespace": "stand-in",
    "context": "stand-in",
    "cluster": {"identifier": "stand-in"},
}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What could be read.

    Attributes:
        config: the configuration, with defaults or stand-ins for the blocks in `broken`.
        problems: everything that is wrong with single blocks.
        broken: names of the top-level fields that could not be read; rules about them would only speak of stand-ins.
    """

    config: StackConfig
    problems: tuple[Problem, ...]
    broken: frozenset[str]


def load_config(blocks: Mapping[str, object], *, context: str | None) -> StackConfig:
    """Read the configuration.

    Args:
        blocks: what the engine gave for each `serving-stack:<block>`, without the prefix, decoded from JSON. A block
            that is written without value may arrive as None or as an empty text.
        context: value of `kubernetes:context`.

    Raises:
        ConfigError: with every problem that can be told from single blocks.
    """
    reading = read_config(blocks, context=context)
    if reading.problems:
        raise ConfigError(reading.problems)
    return reading.config


def read_config(blocks: Mapping[str, object], *, context: str | None) -> Reading:
    """Read what can be read; never raises. See `Reading`."""
    raw, letters = _plain(blocks)
    if "context" in raw:
        del raw["context"]
        letters.append((("context",), _MISPLACED_CONTEXT))
    if context is not None:
        raw["context"] = context
    unreadable = {path[0] for path, _ in letters}
    raw |= {key: value for key, value in _STAND_INS.items() if key in unreadable and key not in raw}

    secrets, secret_paths = find_secrets(raw)
    whole, found = _validate(raw)
    letters += [(path, letter) for path, letter in found if not _lies_in(path, secret_paths)]
    if whole is not None and not letters:
        return Reading(config=whole, problems=tuple(secrets), broken=frozenset())
    broken = frozenset(_FIELDS.get(str(path[0]), str(path[0])) for path, _ in letters)
    sound = {key: value for key, value in raw.items() if key in _FIELDS and _FIELDS[key] not in broken}
    try:
        config = _read(_STAND_INS | sound)
    except ValidationError:  # a secret in a shape of its own: its letter is there, no second one is written
        broken |= {_FIELDS[str(path[0])] for path in secret_paths if path[0] in _FIELDS}
        config = _read(_STAND_INS | {key: value for key, value in sound.items() if _FIELDS[key] not in broken})
    problems = (*secrets, *(letter for _, letter in letters))
    return Reading(config=config, problems=tuple(map(_with_context_key, problems)), broken=broken)


_FIELDS: Final[Mapping[str, str]] = {field.alias or name: name for name, field in StackConfig.model_fields.items()}
_MISPLACED_CONTEXT: Final = Problem(
    key="serving-stack:context",
    value=UNKNOWN,
    why="the context is a key of the Kubernetes provider, not of this program",
    fix=f"Write it as {CONTEXT_KEY}",
)


def _read(raw: Mapping[str, object]) -> StackConfig:
    return StackConfig.model_validate_json(json.dumps(raw), by_alias=True, by_name=False)


def _validate(raw: Mapping[str, object]) -> tuple[StackConfig | None, list[tuple[Path, Problem]]]:
    try:
        return _read(raw), []
    except ValidationError as found:
        errors = [e for e in found.errors(include_url=False) if e["type"] != "default_factory_not_called"]
        letters = [explain(error, raw, StackConfig) for error in errors]
        return None, [letter for letter in letters if not _follows_from_a_typo(letter, letters)]


def _follows_from_a_typo(letter: tuple[Path, Problem], letters: list[tuple[Path, Problem]]) -> bool:
    """Whether a key is missing only because it is there under a near name, for which there is a letter already."""
    path, problem = letter
    return problem.value == MISSING and any(
        other.value == UNKNOWN and place[:-1] == path[:-1] and near_key(str(place[-1]), [str(path[-1])]) is not None
        for place, other in letters
    )


def _lies_in(path: Path, places: list[Path]) -> bool:
    return any(path[: len(place)] == place or place[: len(path)] == path for place in places)


def _with_context_key(problem: Problem) -> Problem:
    return replace(problem, key=CONTEXT_KEY) if problem.key == "context" else problem


def _plain(blocks: Mapping[str, object]) -> tuple[dict[str, object], list[tuple[Path, Problem]]]:
    """Sort out blocks that are no JSON at all (half characters, endless numbers), which no validator could read."""
    plain: dict[str, object] = {}
    letters: list[tuple[Path, Problem]] = []
    for key, value in blocks.items():
        found = _not_json(value, (key,))
        if found is None:
            plain[key] = value
        else:
            path, why = found
            problem = Problem(key=hidden(path), value=HIDDEN, why=why, fix="Write it anew")
            letters.append((path, problem))
    return plain, letters


def _not_json(value: object, path: Path) -> tuple[Path, str] | None:  # noqa: PLR0911  # one return for each kind
    match value:
        case str():
            bad = not _is_text(value)
            return (path, "holds characters that are no text") if bad or not _is_text(str(path[-1])) else None
        case float() if not math.isfinite(value):
            return path, "is no finite number"
        case int() if abs(value) >= _LARGEST:
            return path, "is larger than any number used here"
        case None | bool() | int() | float():
            return None
        case Mapping() | list() | tuple() if len(path) > _DEPTH:
            return path, "is nested deeper than any configuration"
        case Mapping():
            inner = cast("Mapping[object, object]", value)
            bad_keys = [key for key in inner if not isinstance(key, str) or not _is_text(key)]
            if bad_keys:
                return path, "has a key that is no text"
            found = (_not_json(item, (*path, str(key))) for key, item in inner.items())
            return next((problem for problem in found if problem), None)
        case list() | tuple():
            entries = cast("Sequence[object]", value)
            found = (_not_json(item, (*path, index)) for index, item in enumerate(entries))
            return next((problem for problem in found if problem), None)
        case _:
            return path, "is nothing that YAML can say"


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in text
