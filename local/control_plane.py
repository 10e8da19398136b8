"""Starting, stopping and looking at a plane: a whole Kubernetes control plane in one folder.

    plane = ControlPlane.start(load_inventory("small"), folder, tools=tools, context="serving-stack-dev")
    with running_plane(load_inventory("small"), folder, tools=tools) as plane: ...

The first outlives its starter, the second never does, however the starter ends. Each plane has its own folder with
its data, credentials, logs and kubeconfig, and its own ports, so any number run side by side. A stopped plane keeps
its data and comes back as it was. What is deployed on a plane, and building the programs, are others' business.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from filelock import FileLock, Timeout

from local import components, credentials
from local.api import Api, ApiError, condition_is_true
from local.crds import PROJECTS, digest_of, find_crds, install_crds, keep_crds, restore_crds
from local.errors import ComponentDiedError, LocalError
from local.inventory.render import (
    INVENTORY_LABEL,
    render_classes,
    render_cluster_objects,
    render_namespace,
    render_nodes,
    render_slices,
)
from local.lws import LWS_MANAGER, lws_manager, read_webhooks, remove_webhooks, render_webhooks, webhooks_answer
from local.places import cache_folder
from local.ports import choose_ports, port_is_free, port_was_taken
from local.processes import SupervisorLink, end_processes, read_last_lines, see_processes
from local.tools import PROGRAMS
from local.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from local.api import Object
    from local.etcd_store import EtcdStore
    from local.inventory.model import Inventory
    from local.processes import Component
    from local.tools import Tools

Progress = Callable[[str], None]

STATE_FILE = "plane.json"
PORT_ATTEMPTS = 5
START_SECONDS = 90
LOCK_SECONDS = 120


def _say_nothing(_: str) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class ComponentStatus:
    """How one component stands."""

    name: str
    state: Literal["running", "died"]
    pid: int | None
    ports: tuple[int, ...]
    exit_code: int | None
    log: Path
    last_lines: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PlaneStatus:
    """How a plane stands: running, broken (something died; see `components`), or stopped."""

    name: str
    state: Literal["running", "broken", "stopped"]
    folder: Path
    context: str
    server: str
    kubeconfig: Path
    inventory: str
    namespaces: tuple[str, ...]
    components: tuple[ComponentStatus, ...]


@dataclass(frozen=True, kw_only=True)
class PlaneRecord:
    """What is written down about a plane so that another process can find and judge it."""

    name: str
    context: str
    inventory: str
    namespaces: tuple[str, ...]
    ports: dict[str, int]
    crds_digest: str

    def write(self, folder: Path) -> None:
        """Write the record, atomically."""
        draft = folder / f".{STATE_FILE}.draft"
        draft.write_text(json.dumps(dataclasses.asdict(self), indent=1))
        draft.replace(folder / STATE_FILE)

    @classmethod
    def read(cls, folder: Path) -> PlaneRecord | None:
        """Return the record of a folder, or None if it never held a plane that came up.

        What an older or newer version wrote beside these fields is passed over.

        Raises:
            LocalError: if it is not a record.
        """
        path = folder / STATE_FILE
        try:
            content: dict[str, Any] = json.loads(path.read_text())
            known: dict[str, Any] = {field.name: content[field.name] for field in dataclasses.fields(cls)}
            known["namespaces"] = tuple(known["namespaces"])
            return cls(**known)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise LocalError(
                f"{path} is not the record of a plane that this version can read. "
                f"Remove {folder} once no process of it runs any more."
            ) from None


class ControlPlane:
    """A plane that runs, or ran, in its folder. Make one with `start` or `running_plane`, find one with `at`."""

    def __init__(self, folder: Path, record: PlaneRecord) -> None:
        self.folder = folder
        self.record = record

    # -- what it is -------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The folder's name unless the starter chose another."""
        return self.record.name

    @property
    def context(self) -> str:
        """Name of the one context in the kubeconfig."""
        return self.record.context

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of an administrator."""
        return self.folder / "kubeconfig"

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://127.0.0.1:{self.record.ports['kube-apiserver']}"

    @cached_property
    def api(self) -> Api:
        """A client with an administrator's rights."""
        held = credentials.make_credentials(self.folder / "pki")
        return Api(server=self.server, ca=held.ca, token=held.tokens[credentials.ADMIN])

    @property
    def store(self) -> EtcdStore:
        """The store behind the API server."""
        held = credentials.make_credentials(self.folder / "pki")
        return components.store_of(self.record.ports, held)

    # -- life -------------------------------------------------------------------------------------------------------

    @classmethod
    def at(cls, folder: Path) -> ControlPlane | None:
        """Return the plane of a folder, running or not, or None if there never was one."""
        record = PlaneRecord.read(folder)
        return cls(folder.absolute(), record) if record else None

    @classmethod
    def start(
        cls,
        inventory: Inventory,
        folder: Path,
        *,
        tools: Tools,
        name: str | None = None,
        context: str | None = None,
        namespaces: Iterable[str] = (),
        crd_projects: Iterable[str] = PROJECTS,
        lws: bool = False,
        progress: Progress = _say_nothing,
    ) -> ControlPlane:
        """Start a plane that outlives this process, or return the one that runs in this folder already.

        A running plane gets what is new in the inventory and the namespaces it lacks. One of which a component died or
        is missing is stopped and started again with its data. Nothing is left running if this fails or is interrupted.

        Args:
            inventory: Nodes, devices and what else there is from the beginning.
            folder: The plane's own folder, made if need be.
            tools: Where the programs and the CRDs are.
            name: What to call it; the folder's name if not given.
            context: Name of the context in its kubeconfig; `serving-stack-<name>` if not given.
            namespaces: To be created, with the inventory's namespace objects in each.
            crd_projects: Whose CRDs to install.
            lws: Run the LeaderWorkerSet and DisaggregatedSet controllers too; their CRDs are there in any case.
            progress: Told in a few words what is being done.

        Raises:
            ComponentDiedError: if a component does not come up.
            LocalError: for anything else that keeps the plane from running.
        """
        starter = _Starter(
            inventory,
            folder,
            tools=tools,
            name=name,
            context=context,
            namespaces=namespaces,
            crd_projects=crd_projects,
            lws=lws,
            progress=progress,
        )
        return starter.start(detach=True)

    def stop(self, *, remove: bool = False) -> None:
        """End every process of the plane; its data stay unless `remove`."""
        with _locked(self.folder):
            end_processes(self.folder)
            if remove:
                shutil.rmtree(self.folder)

    # -- looking ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Make sure that every component lives.

        Raises:
            ComponentDiedError: naming the first that does not, with its last lines.
            LocalError: if the plane is not running at all.
        """
        processes = see_processes(self.folder)
        if processes.supervisor is None:
            raise LocalError(f"The plane {self.name} is not running. Start it with `up`.")
        processes.raise_if_dead()

    def status(self) -> PlaneStatus:
        """Return how the plane stands; this never fails for a plane that is down."""
        processes = see_processes(self.folder)
        ports = self.record.ports
        found = tuple(
            ComponentStatus(
                name=process.name,
                state="running" if process.alive else "died",
                pid=process.pid if process.alive else None,
                ports=tuple(port for name, port in ports.items() if name.removesuffix("-peer") == process.name),
                exit_code=process.exit_code,
                log=process.log,
                last_lines=() if process.alive else read_last_lines(process.log, 12),
            )
            for process in (*processes.components, *((processes.supervisor,) if processes.supervisor else ()))
        )
        if processes.supervisor is None:
            state = "stopped"
        else:
            state = "running" if all(each.state == "running" for each in found) else "broken"
        return PlaneStatus(
            name=self.name,
            state=state,
            folder=self.folder,
            context=self.context,
            server=self.server,
            kubeconfig=self.kubeconfig,
            inventory=self.record.inventory,
            namespaces=self.record.namespaces,
            components=found,
        )

    def log_of(self, component: str) -> Path:
        """Return the log of a component.

        Raises:
            LocalError: if there is none of that name.
        """
        logs = {path.stem: path for path in sorted((self.folder / "logs").glob("*.log"))}
        if component not in logs:
            raise LocalError(f"{self.name} has no log of {component}; there are {', '.join(logs) or 'none'}.")
        return logs[component]


@contextmanager
def running_plane(
    inventory: Inventory,
    folder: Path,
    *,
    tools: Tools,
    name: str | None = None,
    context: str | None = None,
    namespaces: Iterable[str] = (),
    crd_projects: Iterable[str] = PROJECTS,
    lws: bool = False,
    progress: Progress = _say_nothing,
) -> Generator[ControlPlane]:
    """Hold a plane for as long as the block runs; it ends with the block and with this process, however that ends.

    Arguments and errors as for `ControlPlane.start`. A folder in which a plane runs already is refused.

    Raises:
        LocalError: if a plane runs in the folder already.
    """
    starter = _Starter(
        inventory,
        folder,
        tools=tools,
        name=name,
        context=context,
        namespaces=namespaces,
        crd_projects=crd_projects,
        lws=lws,
        progress=progress,
    )
    plane = starter.start(detach=False)
    try:
        yield plane
    finally:
        plane.stop()
        starter.release()


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Hold the folder against every other start and stop."""
    lock = FileLock(folder / "lock", timeout=LOCK_SECONDS)
    try:
        lock.acquire()
    except Timeout:
        raise LocalError(
            f"Another process has been starting or stopping the plane in {folder} for {LOCK_SECONDS} s. "
            "Look at its terminal, or end it and try again."
        ) from None
    try:
        yield
    finally:
        lock.release()


class _Starter:
    """One start: what was asked for, and what is under way."""

    def __init__(
        self,
        inventory: Inventory,
        folder: Path,
        *,
        tools: Tools,
        name: str | None,
        context: str | None,
        namespaces: Iterable[str],
        crd_projects: Iterable[str],
        lws: bool,
        progress: Progress,
    ) -> None:
        self.inventory = inventory
        self.folder = folder.absolute()
        self.tools = tools
        self.name = name or self.folder.name
        self.context = context or f"serving-stack-{self.name}"
        self.namespaces = tuple(dict.fromkeys(namespaces))
        for program in (*PROGRAMS, *([LWS_MANAGER] if lws else [])):
            _require(tools, program)
        self.crds = find_crds(tools, crd_projects)
        self.crds_digest = digest_of(self.crds, tools.path("kube-apiserver"))
        self.crds_restored = False
        self.lws = lws
        self.progress = progress
        self.link: SupervisorLink | None = None

    def start(self, *, detach: bool) -> ControlPlane:
        """Bring the plane up, holding the folder's lock meanwhile."""
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        with _locked(self.folder):
            return self._start(detach=detach)

    def release(self) -> None:
        """Let go of a supervisor that was not detached."""
        if self.link:
            self.link.abandon()
            self.link = None

    def _start(self, *, detach: bool) -> ControlPlane:
        found = ControlPlane.at(self.folder)
        processes = see_processes(self.folder)
        if processes.owner and processes.owner.alive and processes.alive:
            raise LocalError(
                f"The plane in {self.folder} is held by process {processes.owner.pid} and ends with it. "
                "Wait for that, or use another folder."
            )
        # One whose owner is gone is on its way down.
        if found and processes.alive and not processes.owner:
            if not detach:
                raise LocalError(f"A plane runs in {self.folder} already. Stop it first, or use another folder.")
            try:
                processes.raise_if_dead()
            except ComponentDiedError as error:
                self.progress(f"{error}\nStarting the plane again, with its data.")
            else:
                if not self.lws or any(process.name == LWS_MANAGER for process in processes.components):
                    return self._bring_up_to_date(found)
                self.progress(f"starting the plane again, with its data, to run {LWS_MANAGER} too")
        end_processes(self.folder)
        plane = self._start_processes(found)
        try:
            record = self._populate(plane, found)
            self._start_lws(plane)
            record.write(self.folder)
            if detach and self.link:
                self.link.detach()
                self.link = None
        except (OSError, HTTPException) as error:
            self._name_the_dead(error)
        except BaseException:
            self._undo()
            raise
        return ControlPlane(self.folder, record)

    def _name_the_dead(self, error: Exception) -> NoReturn:
        """A connection that broke most often means that a component died; say which before everything is undone."""
        try:
            see_processes(self.folder).raise_if_dead()
        finally:
            self._undo()
        raise LocalError(f"The plane in {self.folder} could not be started: {error}.") from None

    def _bring_up_to_date(self, found: ControlPlane) -> ControlPlane:
        if self.context != found.context:
            raise LocalError(
                f"The plane in {self.folder} runs with context {found.context}, not {self.context}. Stop it first."
            )
        record = self._populate(found, found)
        record.write(self.folder)
        return ControlPlane(self.folder, record)

    def _undo(self) -> None:
        # In this order: a supervisor that was let go ends by itself, and nothing would say when it has.
        end_processes(self.folder)
        self.release()

    # -- processes --------------------------------------------------------------------------------------------------

    def _start_processes(self, found: ControlPlane | None) -> ControlPlane:
        wanted = dict(found.record.ports) if found else {}
        for attempt in range(1, PORT_ATTEMPTS + 1):
            # Its old ports if they are free, so that a kubeconfig that somebody copied stays good.
            usable = set(wanted) == set(components.PORT_NAMES) and all(map(port_is_free, wanted.values()))
            ports = wanted if usable else choose_ports(components.PORT_NAMES)
            try:
                return self._try_ports(ports)
            except ComponentDiedError as error:
                self._undo()
                if not port_was_taken(error.last_lines) or attempt == PORT_ATTEMPTS:
                    raise
                self.progress(f"a port of {error.component} was taken meanwhile; trying others")
                wanted = {}
            except (OSError, HTTPException) as error:
                self._name_the_dead(error)
            except BaseException:
                self._undo()
                raise
        raise AssertionError("unreachable")

    def _try_ports(self, ports: dict[str, int]) -> ControlPlane:
        self.progress("starting the control plane")
        layout = self._layout(ports)
        (self.folder / "config").mkdir(exist_ok=True)
        plane = ControlPlane(self.folder, self._record(ports, crds_digest=""))
        credentials.write_kubeconfig(
            plane.kubeconfig,
            server=plane.server,
            credentials=layout.credentials,
            holder=credentials.ADMIN,
            context=self.context,
        )
        self.link = SupervisorLink(self.folder)
        self._run(components.etcd(layout))
        self._await(layout.store.is_healthy, what="etcd to serve")
        self._restore_crds(layout)
        self._run(components.api_server(layout))
        self._await(lambda: _is_ready(plane.api), what="the API server to be ready")
        # A kwok that was killed still holds its nodes' leases, and the next would wait until they run out.
        for lease in plane.api.list("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"):
            plane.api.delete(
                f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{lease['metadata']['name']}"
            )
        self._run(components.controller_manager(layout))
        self._run(components.scheduler(layout))
        self._run(components.kwok(layout))
        return plane

    def _start_lws(self, plane: ControlPlane) -> None:
        """Start the LeaderWorkerSet manager, which needs its CRDs to be there."""
        if not self.lws:
            remove_webhooks(plane.api)
            return
        self.progress(f"starting {LWS_MANAGER}")
        layout = self._layout(plane.record.ports)
        ca = layout.credentials.ca.read_bytes()
        self._run(lws_manager(layout))
        for manifest in render_webhooks(read_webhooks(self.tools), port=layout.ports[LWS_MANAGER], ca=ca):
            plane.api.apply(manifest)
        self._await(lambda: webhooks_answer(plane.api), what=f"{LWS_MANAGER} to answer")

    def _layout(self, ports: dict[str, int]) -> components.Layout:
        held = credentials.make_credentials(self.folder / "pki")
        return components.Layout(folder=self.folder, ports=ports, credentials=held, tools=self.tools)

    def _restore_crds(self, layout: components.Layout) -> None:
        if layout.store.is_empty("/registry/"):
            self.crds_restored = restore_crds(layout.store, self._kept_crds)

    def _run(self, component: Component) -> None:
        if self.link:
            (self.folder / "logs" / f"{component.name}.log").unlink(missing_ok=True)
            self.link.start(component)

    def _await(self, condition: Callable[[], bool], *, what: str) -> None:
        """Wait for a condition, but not longer than every component lives."""

        def holds() -> bool:
            see_processes(self.folder).raise_if_dead()
            return condition()

        # Asking costs the server, and while it starts it has no time to spare.
        wait_until(holds, timeout=START_SECONDS, what=what, interval=0.1)

    @property
    def _kept_crds(self) -> Path:
        return cache_folder() / "crds" / f"{self.crds_digest}.json"

    # -- objects ----------------------------------------------------------------------------------------------------

    def _record(self, ports: dict[str, int], *, crds_digest: str) -> PlaneRecord:
        return PlaneRecord(
            name=self.name,
            context=self.context,
            inventory=self.inventory.name,
            namespaces=self.namespaces,
            ports=ports,
            crds_digest=crds_digest,
        )

    def _populate(self, plane: ControlPlane, found: ControlPlane | None) -> PlaneRecord:
        api = plane.api
        if not self.crds_restored and (not found or found.record.crds_digest != self.crds_digest):
            self.progress(f"installing {len(self.crds)} CRDs (kept for the next plane)")
            install_crds(api, self.crds)
            if not found:
                keep_crds(plane.store, self._kept_crds)
        self.progress(f"preparing inventory {self.inventory.name}: {self.inventory.description}")
        nodes = [api.apply(node) for node in render_nodes(self.inventory)]
        uids = {str(node["metadata"]["name"]): str(node["metadata"]["uid"]) for node in nodes}
        kept = [
            *render_nodes(self.inventory),
            *render_slices(self.inventory, uids),
            *render_classes(self.inventory),
            *render_cluster_objects(self.inventory),
        ]
        for manifest in kept[len(nodes) :]:
            api.apply(manifest)
        self._prune(api, kept)
        known = found.record.namespaces if found else ()
        for namespace in self.namespaces:
            for manifest in render_namespace(self.inventory, namespace):
                _create_if_absent(api, manifest)
        self._await_population(api, uids)
        record = self._record(plane.record.ports, crds_digest=self.crds_digest)
        return dataclasses.replace(record, namespaces=tuple(dict.fromkeys((*known, *self.namespaces))))

    def _prune(self, api: Api, kept: list[Object]) -> None:
        """Delete what an earlier inventory had and this one has not."""
        paths = {api.path_of(manifest) for manifest in kept}
        kinds = {
            ("v1", "Node"),
            ("resource.k8s.io/v1", "ResourceSlice"),
            ("resource.k8s.io/v1", "DeviceClass"),
            ("storage.k8s.io/v1", "StorageClass"),
            *((str(manifest["apiVersion"]), str(manifest["kind"])) for manifest in kept),
        }
        for api_version, kind in sorted(kinds):
            collection = api.collection_of(api_version, kind)
            for item in api.list(collection, labelSelector=INVENTORY_LABEL):
                path = f"{collection}/{item['metadata']['name']}"
                if path not in paths:
                    api.delete(path)

    def _await_population(self, api: Api, uids: dict[str, str]) -> None:
        self.progress("waiting for the nodes to be ready")

        def nodes_are_ready() -> bool:
            nodes = {str(node["metadata"]["name"]): node for node in api.list("/api/v1/nodes")}
            return all(
                name in nodes and condition_is_true(nodes[name], "Ready") and not nodes[name]["spec"].get("taints")
                for name in uids
            )

        self._await(nodes_are_ready, what="the nodes to be Ready and free of taints")
        for namespace in self.namespaces:
            # Without it the API server refuses every Pod.
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
            self._await(lambda path=path: api.find(path) is not None, what=f"the default ServiceAccount of {namespace}")


def _require(tools: Tools, program: str) -> None:
    try:
        tools.path(program)
    except KeyError:  # what a toolbox says of a program that was not asked for
        raise LocalError(f"The tools have no {program}; it must be among those they are made from.") from None


def _is_ready(api: Api) -> bool:
    try:
        # Whoever has the port may never answer; the API server itself does at once.
        return api.request("GET", "/readyz", timeout=2).get("text") == "ok"
    except (OSError, HTTPException, ApiError):
        return False


def _create_if_absent(api: Api, manifest: Object) -> None:
    try:
        api.create(manifest)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
