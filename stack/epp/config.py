"""The EPP's own configuration files: which endpoints are scored by what, with and without the P/D split.

Renders the two files that every ConfigMap holds; files of the operator's own are carried through as they are, after a
look at what would stop the EPP. Plugins and parameters: `llm-d/llm-d-router` v0.10.0 `pkg/epp/framework/plugins`, the
profiles of the llm-d P/D guide (`guides/pd-disaggregation/router`), and the default file of the router chart.
"""

from collections.abc import Iterator
from typing import Any, Final, TypeAlias, cast

import yaml

from stack.epp.refusal import Refusal
from stack.epp.releases import EppRelease

DEFAULT_CONFIG: Final = "default-plugins.yaml"
PAYLOAD_AGNOSTIC_CONFIG: Final = "payload-agnostic.yaml"
CONFIG_KEYS: Final = (DEFAULT_CONFIG, PAYLOAD_AGNOSTIC_CONFIG)
KIND: Final = "EndpointPickerConfig"

Document: TypeAlias = dict[str, Any]


def render_default(
    release: EppRelease, *, is_disaggregated: bool, block_size: int, max_prefix_tokens: int, model_server_type: str
) -> str:
    """The file that reads the request: prefix matching in blocks of `block_size` tokens, up to `max_prefix_tokens`."""
    prefix = _plugin(
        "approx-prefix-cache-producer",
        # With autoTune the engine's own figures (block size, number of blocks) replace these once they were scraped.
        autoTune=True,
        blockSizeTokens=block_size,
        maxPrefixTokensToMatch=max_prefix_tokens,
    )
    metrics = [
        _plugin("metrics-data-source", scheme="http", path="/metrics", insecureSkipVerify=True),
        # vLLM's metric names are the extractor's default; any other engine has to be named.
        _plugin(
            "core-metrics-extractor", **({} if model_server_type == "vllm" else {"defaultEngine": model_server_type})
        ),
    ]
    if is_disaggregated:
        plugins = [
            # Every request is prefilled elsewhere: decode Pods are laid out for decoding only.
            _plugin("always-disagg-pd-decider"),
            _plugin("disagg-profile-handler", deciders={"prefill": "always-disagg-pd-decider"}),
            _plugin("prefill-filter"),
            _plugin("decode-filter"),
            prefix,
            _plugin("inflight-load-producer"),
            _plugin("prefix-cache-affinity-filter"),
            _plugin("token-load-scorer"),
            _plugin("active-request-scorer"),
            _plugin("max-score-picker"),
            *metrics,
        ]
        # A prompt goes where its prefix lies, unless that Pod has much more to prefill; a stream goes to the Pod with
        # the fewest, since decoding is bound by the number of streams.
        profiles = {
            "prefill": _refs("prefill-filter", "prefix-cache-affinity-filter", "token-load-scorer", "max-score-picker"),
            "decode": _refs("decode-filter", "active-request-scorer", "max-score-picker"),
        }
    else:
        plugins = [
            _plugin("single-profile-handler"),
            prefix,
            _plugin("queue-scorer"),
            _plugin("kv-cache-utilization-scorer"),
            _plugin("prefix-cache-scorer"),
            _plugin("max-score-picker"),
            *metrics,
        ]
        profiles = {
            "default": [
                {"pluginRef": "queue-scorer", "weight": 2},
                {"pluginRef": "kv-cache-utilization-scorer", "weight": 2},
                {"pluginRef": "prefix-cache-scorer", "weight": 3},
                {"pluginRef": "max-score-picker"},
            ]
        }
    return _document(release, plugins, profiles)


def render_payload_agnostic(release: EppRelease, *, is_disaggregated: bool) -> str:
    """The file for requests that the EPP cannot read: only the load of the endpoints counts.

    With the P/D split only decode Pods are chosen, and they prefill such a request themselves: sending it to a prefill
    Pod alone would never give an answer. The chart's file also keeps a session on its Pod; that plugin is experimental
    since v0.10.0, which would then start only with every experimental plugin allowed.
    """
    scorer = "active-request-scorer" if release.has_active_request_scorer else "running-requests-size-scorer"
    chain = [*(["decode-filter"] if is_disaggregated else []), scorer, "queue-scorer", "max-score-picker"]
    plugins = [_plugin("passthrough-parser"), _plugin("single-profile-handler"), *map(_plugin, chain)]
    parsers: Document = (
        {"requestHandler": {"parsers": _refs("passthrough-parser")}}
        if release.parsers_key == "requestHandler"
        else {"parser": {"pluginRef": "passthrough-parser"}}
    )
    return _document(release, plugins, {"default": _refs(*chain)}, **parsers)


def config_refusals(release: EppRelease, key: str, text: str, *, allows_experimental: bool) -> Iterator[Refusal]:
    """What in a file of the operator's own would stop this release at its start.

    Plugin types are not checked against a list: images may carry plugins of their own.
    """

    def refuse(value: str, why: str, fix: str) -> Refusal:
        return Refusal(field="custom_config", value=value, why=f"{key} {why}", fix=fix)

    try:
        raw: object = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date of no calendar
        yield refuse(key, f"is not YAML ({' '.join(str(error).split())})", "Correct it")
        return
    if not isinstance(raw, dict):
        yield refuse(key, "is no mapping", f"Write a document of kind {KIND}")
        return
    document = cast("Document", raw)
    api_version = document.get("apiVersion")
    if document.get("kind") != KIND:
        yield refuse(str(document.get("kind")), f"has a kind that {release.title} does not read", f"Write kind: {KIND}")
    if api_version not in release.api_versions:
        yield refuse(
            str(api_version),
            f"has an apiVersion that {release.title} does not read",
            f"Write apiVersion: {release.api_versions[0]}",
        )
    used = {str(entry.get("type")) for entry in _entries(document.get("plugins"))}
    if not allows_experimental:
        for name in sorted(used & release.alpha_plugins):
            yield refuse(
                name,
                f"uses a plugin that is experimental in {release.title}, which then does not start",
                "Add --allow-experimental-plugins=true to the EPP's extra arguments, or take the plugin out",
            )


def _entries(value: object) -> list[Document]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Document", item) for item in items if isinstance(item, dict)]


def _plugin(kind: str, **parameters: object) -> Document:
    return {"type": kind, **({"parameters": parameters} if parameters else {})}


def _refs(*names: str) -> list[Document]:
    return [{"pluginRef": name} for name in names]


def _document(release: EppRelease, plugins: list[Document], profiles: dict[str, list[Document]], **rest: object) -> str:
    document: Document = {
        "apiVersion": release.api_versions[0],
        "kind": KIND,
        "plugins": plugins,
        **rest,
        "schedulingProfiles": [{"name": name, "plugins": chain} for name, chain in profiles.items()],
    }
    return yaml.safe_dump(document, sort_keys=False, default_flow_style=False)
