"""The Endpoint Picker (EPP) and the routing proxy, rendered for one exact version of each.

Their flags and configuration drift from release to release and either stops at what it does not know, so each release
that was read in source has its own description here, and any other version is refused by name. What the operator may
set and which Kubernetes objects come of it are decided elsewhere.
"""

from stack.epp.config import CONFIG_KEYS, DEFAULT_CONFIG, PAYLOAD_AGNOSTIC_CONFIG
from stack.epp.drain import EppDrain, plan_drain
from stack.epp.proxy import PROXY_CONTAINER, ProxyDecisions, ProxyRendering, proxy_refusals, render_proxy
from stack.epp.refusal import Refusal, UnsupportedError
from stack.epp.releases import (
    EppDistribution,
    EppRelease,
    ProxyRelease,
    find_epp,
    find_proxy,
    known_epp_versions,
    known_proxy_versions,
)
from stack.epp.render import EppDecisions, EppRendering, EppTracing, epp_refusals, render_epp

__all__ = [
    "CONFIG_KEYS",
    "DEFAULT_CONFIG",
    "PAYLOAD_AGNOSTIC_CONFIG",
    "PROXY_CONTAINER",
    "EppDecisions",
    "EppDistribution",
    "EppDrain",
    "EppRelease",
    "EppRendering",
    "EppTracing",
    "ProxyDecisions",
    "ProxyRelease",
    "ProxyRendering",
    "Refusal",
    "UnsupportedError",
    "epp_refusals",
    "find_epp",
    "find_proxy",
    "known_epp_versions",
    "known_proxy_versions",
    "plan_drain",
    "proxy_refusals",
    "render_epp",
    "render_proxy",
]
