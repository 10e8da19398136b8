"""Arguments and image of the routing proxy, the sidecar of every decode Pod of a P/D stack.

It listens on one port per data-parallel rank, has the prefill Pod named by the EPP compute the prompt, and then passes
the request to its own Pod's rank. Ports and restart order of the container are decided elsewhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stack.epp.refusal import Refusal, UnsupportedError, split_flag, unknown_flags
from stack.epp.releases import ProxyRelease, find_proxy

PROXY_CONTAINER: Final = "routing-proxy"


@dataclass(frozen=True, kw_only=True)
class ProxyDecisions:
    """Everything about the routing proxy that is decided before it is rendered.

    Ranks are data-parallel ranks of the model server in the same Pod: rank i is reached at `port` + i and served at
    `model_server_port` + i. `guarded_pool` (namespace, name) has it talk to members of that pool only, which needs a
    ServiceAccount that may read the pool and its Pods.
    """

    version: str = "v0.10.0"
    port: int = 8000
    model_server_port: int = 8200
    data_parallel_size: int = 1
    kv_connector: str = "nixlv2"
    is_secure: bool = False
    is_traced: bool = False
    samples_prefillers: bool = False
    guarded_pool: tuple[str, str] | None = None
    extra_args: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ProxyRendering:
    """What the routing proxy's container is made of. `ports` are those it listens on, one per rank."""

    args: tuple[str, ...]
    ports: tuple[int, ...]
    image_repository: str
    image_tag: str


def proxy_refusals(decisions: ProxyDecisions) -> tuple[Refusal, ...]:
    """Everything in the decisions that the chosen release cannot do; nothing if it can be rendered."""
    release = find_proxy(decisions.version)
    if isinstance(release, Refusal):
        return (release,)
    return tuple(_refusals(decisions, release))


def render_proxy(decisions: ProxyDecisions) -> ProxyRendering:
    """Write the decisions down for the chosen release.

    Raises:
        UnsupportedError: with every refusal of `proxy_refusals`, if there is one.
    """
    release = find_proxy(decisions.version)
    if isinstance(release, Refusal):
        raise UnsupportedError([release])
    if refusals := tuple(_refusals(decisions, release)):
        raise UnsupportedError(refusals)
    return ProxyRendering(
        args=(*_own_args(decisions, release), *decisions.extra_args),
        ports=tuple(range(decisions.port, decisions.port + decisions.data_parallel_size)),
        image_repository=release.image_repository,
        image_tag=release.version,
    )


def _refusals(decisions: ProxyDecisions, release: ProxyRelease) -> Iterator[Refusal]:
    title = f"routing proxy {release.version}"
    if decisions.kv_connector not in release.kv_connectors:
        yield Refusal(
            field="kv_connector",
            value=decisions.kv_connector,
            why=f"{title} does not speak it",
            fix=f"Use one of {', '.join(release.kv_connectors)}",
        )
    ranks = decisions.data_parallel_size
    if abs(decisions.port - decisions.model_server_port) < ranks:
        yield Refusal(
            field="model_server_port",
            value=str(decisions.model_server_port),
            why=f"the {ranks} ports from it overlap the {ranks} ports of the proxy from {decisions.port}",
            fix=f"Leave at least {ranks} between the two",
        )
    yield from unknown_flags(decisions.extra_args, release.flags, field="extra_args", release=title)
    own = {split_flag(argument) for argument in _own_args(decisions, release)} | {"model-server-port", "vllm-port"}
    for argument in decisions.extra_args:
        if split_flag(argument) in own & release.flags:
            yield Refusal(
                field="extra_args",
                value=argument,
                why="is an argument that follows from the rest of the configuration",
                fix="Take it out and set what it follows from",
            )


def _own_args(decisions: ProxyDecisions, release: ProxyRelease) -> Iterator[str]:
    yield f"--port={decisions.port}"
    yield f"--{release.model_server_port_flag}={decisions.model_server_port}"
    yield f"--data-parallel-size={decisions.data_parallel_size}"
    yield f"--kv-connector={decisions.kv_connector}"
    yield f"--secure-proxy={'true' if decisions.is_secure else 'false'}"  # on by default, with a certificate of its own
    yield "--zap-encoder=json"
    if decisions.is_traced:
        yield "--tracing=true"
    if decisions.samples_prefillers:
        yield "--enable-prefiller-sampling=true"
    if decisions.guarded_pool:
        namespace, name = decisions.guarded_pool
        yield "--enable-ssrf-protection=true"
        yield f"--inference-pool={namespace}/{name}"  # a bare name would mean namespace `default`
