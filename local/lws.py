"""The LeaderWorkerSet and DisaggregatedSet controllers, run beside the plane instead of in a Pod.

They are one program. Its webhooks are called at a loopback address instead of a Service, with the plane's certificate
authority, and those for Pods only for Pods of a LeaderWorkerSet, as the project's own overlay has it
(lws, config/webhook). All else is as the project ships it.
"""

from __future__ import annotations

import base64
import shutil
from typing import TYPE_CHECKING, Any, cast

import yaml

from local import credentials
from local.api import ApiError

if TYPE_CHECKING:
    from pathlib import Path

    from local.api import Api, Object
    from local.components import Layout
    from local.processes import Component
    from local.tools import Tools

LWS_MANAGER = "lws-manager"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
POD_WEBHOOKS = ("mpod.kb.io", "vpod.kb.io")


def lws_manager(layout: Layout) -> Component:
    """Return the controller manager: no leader election, since there is one, and no certificates of its own."""
    folder = layout.folder / "config"
    certificates = folder / "lws-webhook"
    certificates.mkdir(exist_ok=True, mode=0o700)
    shutil.copy2(layout.credentials.certificate(credentials.LWS_MANAGER), certificates / "tls.crt")
    shutil.copy2(layout.credentials.key(credentials.LWS_MANAGER), certificates / "tls.key")
    config = folder / "lws-manager.yaml"
    content = {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": layout.ports[LWS_MANAGER], "certDir": str(certificates)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": "0"},
    }
    config.write_text(yaml.safe_dump(content))
    kubeconfig = layout.kubeconfig_of(credentials.LWS_MANAGER)
    return layout.component(LWS_MANAGER, f"--kubeconfig={kubeconfig}", f"--config={config}")


def render_webhooks(manifests: str, *, port: int, ca: bytes) -> tuple[Object, ...]:
    """Return the project's webhook configurations, to be called at a port of this machine.

    Args:
        manifests: `config/webhook/manifests.yaml` of the project.
        port: Where the manager serves.
        ca: Certificate of the authority, PEM.
    """
    rendered: list[Object] = []
    for document in cast("list[Object]", list(yaml.safe_load_all(manifests))):
        webhooks = [_render_webhook(webhook, port=port, ca=ca) for webhook in document["webhooks"]]
        # The names in the manifest are for kustomize to put a prefix before.
        metadata = {"name": f"lws-{document['metadata']['name']}"}
        rendered.append({**document, "metadata": metadata, "webhooks": webhooks})
    return tuple(rendered)


def _render_webhook(webhook: Object, *, port: int, ca: bytes) -> Object:
    path: str = webhook["clientConfig"]["service"]["path"]
    client: dict[str, Any] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": base64.b64encode(ca).decode()}
    rendered: Object = {**webhook, "clientConfig": client}
    if webhook["name"] in POD_WEBHOOKS:
        expression = {"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}
        rendered["objectSelector"] = {"matchExpressions": [expression]}
    return rendered


def read_webhooks(tools: Tools) -> str:
    """Return the project's webhook manifest, which lies beside its CRDs."""
    bases: Path = tools.crd_dir("lws")
    return (bases.parents[1] / "webhook" / "manifests.yaml").read_text()


def remove_webhooks(api: Api) -> None:
    """Remove the webhook configurations, without whose manager no LeaderWorkerSet could be changed any more."""
    for kind in ("mutating", "validating"):
        api.delete(f"{CONFIGURATIONS}/{kind}webhookconfigurations/lws-{kind}-webhook-configuration")


def webhooks_answer(api: Api) -> bool:
    """Whether a DisaggregatedSet is judged by the manager; its is the last webhook that it begins to serve."""
    probe: Object = {
        "apiVersion": "disaggregatedset.x-k8s.io/v1",
        "kind": "DisaggregatedSet",
        "metadata": {"name": "probe", "namespace": "default"},
        "spec": {"roles": [_probe_role("prefill"), _probe_role("decode")]},
    }
    collection = api.collection_of(probe["apiVersion"], probe["kind"], namespace="default")
    try:
        api.request("POST", collection, probe, query={"dryRun": "All"})
    except ApiError as error:
        return "failed calling webhook" not in str(error)
    return True


def _probe_role(name: str) -> Object:
    container = {"name": "main", "image": "example.com/probe:1"}
    worker = {"size": 1, "workerTemplate": {"spec": {"containers": [container]}}}
    return {"name": name, "spec": {"replicas": 1, "leaderWorkerTemplate": worker}}
