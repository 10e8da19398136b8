"""The command line of each component of a plane, and the files that go with it.

Only what makes them serve one machine: everything that has a sensible default keeps it, since the point is that these
are the real servers. Starting them is `control_plane`'s part.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from local import credentials
from local.credentials import write_kubeconfig
from local.etcd_store import EtcdStore
from local.processes import Component

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local.credentials import Credentials
    from local.tools import Tools

ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
)
PORT_NAMES = ("etcd", "etcd-peer", "kube-apiserver", "lws-manager")
SERVICE_RANGE = "10.96.0.0/16"
STAGES = Path(__file__).parent / "stages"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One plane's place on this machine: its folder, its ports, its credentials and the programs it runs."""

    folder: Path
    ports: Mapping[str, int]
    credentials: Credentials
    tools: Tools

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://127.0.0.1:{self.ports['kube-apiserver']}"

    @property
    def store(self) -> EtcdStore:
        """The store."""
        return store_of(self.ports, self.credentials)

    def kubeconfig_of(self, holder: str) -> Path:
        """Return a kubeconfig for one holder of a token, written now."""
        path = self.folder / "config" / f"{holder}.kubeconfig"
        path.parent.mkdir(exist_ok=True)
        write_kubeconfig(path, server=self.server, credentials=self.credentials, holder=holder, context="local")
        return path

    def component(self, name: str, *flags: str) -> Component:
        """Return a component that runs the program of its name with these flags.

        Nothing of the caller's environment reaches it: a proxy setting there, or a kwok configuration in the home
        folder, would make it behave otherwise than on the next machine.
        """
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.folder), "TZ": "UTC"}
        return Component(name=name, argv=(str(self.tools.path(name)), *flags), env=env)


def store_of(ports: Mapping[str, int], held: Credentials) -> EtcdStore:
    """Return the connection to the store of a plane with these ports."""
    return EtcdStore(
        url=f"https://127.0.0.1:{ports['etcd']}",
        ca=held.ca,
        certificate=held.certificate("etcd-client"),
        key=held.key("etcd-client"),
    )


def etcd(layout: Layout) -> Component:
    """Return the store: TLS with client certificates, and no fsync, since nothing here must survive a power cut."""
    pki = layout.credentials
    peer = f"https://127.0.0.1:{layout.ports['etcd-peer']}"
    return layout.component(
        ETCD,
        f"--data-dir={layout.folder / 'etcd'}",
        "--name=local",
        f"--listen-client-urls={layout.store.url}",
        f"--advertise-client-urls={layout.store.url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=local={peer}",
        f"--cert-file={pki.certificate('etcd')}",
        f"--key-file={pki.key('etcd')}",
        "--client-cert-auth",
        f"--trusted-ca-file={pki.ca}",
        f"--peer-cert-file={pki.certificate('etcd')}",
        f"--peer-key-file={pki.key('etcd')}",
        "--peer-client-cert-auth",
        f"--peer-trusted-ca-file={pki.ca}",
        "--unsafe-no-fsync",
        "--quota-backend-bytes=2147483648",
        "--auto-compaction-retention=10m",
        "--log-level=warn",
    )


def api_server(layout: Layout) -> Component:
    """Return the API server: RBAC, tokens for people and components, signed tokens for service accounts."""
    pki = layout.credentials
    return layout.component(
        API_SERVER,
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.ports['kube-apiserver']}",
        "--advertise-address=127.0.0.1",
        # The `kubernetes` Service would need an endpoint, and an EndpointSlice takes no loopback address.
        "--endpoint-reconciler-type=none",
        f"--etcd-servers={layout.store.url}",
        f"--etcd-cafile={pki.ca}",
        f"--etcd-certfile={pki.certificate('etcd-client')}",
        f"--etcd-keyfile={pki.key('etcd-client')}",
        f"--tls-cert-file={pki.certificate('kube-apiserver')}",
        f"--tls-private-key-file={pki.key('kube-apiserver')}",
        f"--token-auth-file={pki.token_file}",
        "--authorization-mode=Node,RBAC",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki.service_account_public_key}",
        f"--service-account-signing-key-file={pki.key('service-account')}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--allow-privileged=true",
        "--profiling=false",
        # A whole stack is created at once, by a client that does not wait for its turn.
        "--max-requests-inflight=1000",
        "--max-mutating-requests-inflight=500",
    )


def controller_manager(layout: Layout) -> Component:
    """Return the controller manager, with every controller that needs no cloud."""
    pki = layout.credentials
    return layout.component(
        CONTROLLER_MANAGER,
        f"--kubeconfig={layout.kubeconfig_of(credentials.CONTROLLER_MANAGER)}",
        "--leader-elect=false",
        "--secure-port=0",
        f"--service-account-private-key-file={pki.key('service-account')}",
        f"--root-ca-file={pki.ca}",
        "--kube-api-qps=300",
        "--kube-api-burst=600",
        "--pvclaimbinder-sync-period=2s",
        # A plane is for trying out: a scaler that is looked at every 15 s is waited for.
        "--horizontal-pod-autoscaler-sync-period=2s",
        "--profiling=false",
    )


def scheduler(layout: Layout) -> Component:
    """Return the scheduler.

    Pods that did not fit are tried again after 2 s at most, where the default is 10 s: nodes on paper come and go fast.
    """
    path = layout.folder / "config" / "scheduler.yaml"
    kubeconfig = layout.kubeconfig_of(credentials.SCHEDULER)
    content = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 300, "burst": 600},
        "leaderElection": {"leaderElect": False},
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 2,
    }
    path.write_text(yaml.safe_dump(content))
    return layout.component(SCHEDULER, f"--config={path}", "--secure-port=0", "--profiling=false")


def kwok(layout: Layout) -> Component:
    """Return the kubelet on paper, with the stages of this package and no others.

    It keeps to nodes that are annotated as fake, so that a real node may join; the node leases are what keeps its nodes
    Ready.
    """
    path = layout.folder / "config" / "kwok.yaml"
    path.write_text("---\n".join(stage.read_text() for stage in sorted(STAGES.glob("*.yaml"))))
    return layout.component(
        KWOK,
        f"--kubeconfig={layout.kubeconfig_of(credentials.KWOK)}",
        f"--config={path}",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-lease-duration-seconds=40",
    )
