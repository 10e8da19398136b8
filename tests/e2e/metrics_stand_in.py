"""A stand-in for prometheus-adapter: Kubernetes' custom metrics API with numbers that a test sets.

What the API server sees of it is real: an APIService, and a server behind it that the controllers of Kubernetes ask.
What Prometheus and its adapter would put into it is a number for each Pod. A Pod that is not Ready shows none.
"""

from __future__ import annotations

import datetime as dt
import json
import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from local.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from local.api import Api, Object

GROUP, VERSION = "custom.metrics.k8s.io", "v1beta2"
ROOT = f"/apis/{GROUP}/{VERSION}"
REGISTRATION = f"/apis/apiregistration.k8s.io/v1/apiservices/{VERSION}.{GROUP}"
SERVED_SECONDS = 60


class MetricsStandIn:
    """What the API answers.

    Attributes:
        value: the metric of a Pod, by its live object; None for one that shows nothing.
        asked: how often it was asked, by metric.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self.value: Callable[[Object], float | None] = lambda _: None
        self.asked: dict[str, int] = {}

    def answer(self, url: str) -> dict[str, Any] | None:
        """What is at a URL; None where nothing is."""
        found = urlsplit(url)
        if found.path.rstrip("/") == ROOT:
            resource = {"name": "pods/any", "namespaced": True, "kind": "MetricValueList", "verbs": ["get"]}
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"{GROUP}/{VERSION}",
                "resources": [{**resource, "singularName": ""}],
            }
        parts = unquote(found.path).removeprefix(f"{ROOT}/").split("/")
        if not found.path.startswith(f"{ROOT}/namespaces/") or parts[2:4] != ["pods", "*"]:
            return None
        namespace, metric = parts[1], parts[4]
        self.asked[metric] = self.asked.get(metric, 0) + 1
        selector = parse_qs(found.query).get("labelSelector", [""])[0]
        pods = self._api.list(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector)
        values = [(pod, self.value(pod)) for pod in pods if _is_ready(pod)]
        return {
            "kind": "MetricValueList",
            "apiVersion": f"{GROUP}/{VERSION}",
            "metadata": {},
            "items": [_item(pod, metric, value) for pod, value in values if value is not None],
        }


def _is_ready(pod: Object) -> bool:
    conditions = {each["type"]: each["status"] for each in pod.get("status", {}).get("conditions", ())}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def _item(pod: Object, metric: str, value: float) -> dict[str, Any]:
    meta = pod["metadata"]
    described = {"kind": "Pod", "apiVersion": "v1", "namespace": meta["namespace"], "name": meta["name"]}
    return {
        "describedObject": described,
        "metric": {"name": metric},
        "timestamp": dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "value": f"{round(value * 1000)}m",
    }


@contextmanager
def metrics_stand_in(api: Api, namespace: str, folder: Path) -> Generator[MetricsStandIn]:
    """Serve it, and have the API server pass questions on to it.

    Args:
        api: the API server of a plane that the test started.
        namespace: where the Service lies that the API server finds it by; it goes with the namespace.
        folder: for its certificate, which nobody checks.
    """
    stand_in = MetricsStandIn(api)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = stand_in.answer(self.path)
            body = json.dumps(answer or {"kind": "Status", "apiVersion": "v1", "code": 404}).encode()
            self.send_response(200 if answer is not None else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # so it is called there
            """Keep the test's output for what fails."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_certificate(folder))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        _register(api, namespace, server.server_address[1])
        yield stand_in
    finally:
        api.delete(REGISTRATION)
        server.shutdown()
        server.server_close()
        thread.join()


def _register(api: Api, namespace: str, port: int) -> None:
    name = "metrics-stand-in"
    api.create(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": namespace},
            # Endpoints take no loopback address, and this machine's own name is one.
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }
    )
    api.create(
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{VERSION}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "service": {"name": name, "namespace": namespace, "port": port},
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        }
    )

    def is_served() -> bool:
        status = api.get(REGISTRATION).get("status", {})
        return any(each["type"] == "Available" and each["status"] == "True" for each in status.get("conditions", ()))

    wait_until(is_served, timeout=SERVED_SECONDS, what="the custom metrics API to be served")


def _certificate(folder: Path) -> Path:
    """A certificate with its key in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "metrics-stand-in.pem"
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    path.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain) + made.public_bytes(pem))
    path.chmod(0o600)
    return path
