"""The recorder: mocks that keep every registration with its options, and the stage a program runs on."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import pulumi
from google.protobuf.json_format import MessageToDict
from pulumi.runtime.mocks import MockMonitor, Mocks
from pulumi.runtime.proto.callback_pb2 import CallbackInvokeRequest
from pulumi.runtime.proto.callback_pb2_grpc import CallbacksStub
from pulumi.runtime.proto.resource_pb2 import ResourceHookRequest, ResourceHookResponse
from pulumi.runtime.settings import reset_options

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from pulumi.runtime.mocks import MockCallArgs, MockResourceArgs

UID = "11111111-2222-3333-4444-555555555555"
"""What the recorder gives every object that an update makes."""
MASK = "[secret]"
READ_STATE = "pulumi:pulumi:readStackResourceOutputs"
"""The engine's own function that tells a stack's resources as the state has them."""
CALM = 1000
"""Rounds of an event loop in which nothing is under way: what one registration sets off takes some tens of them."""
DEADLINE = 30
"""Seconds after which a program that should have come to rest is given up."""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """One registration: what was asked for, and the raw request with all its options.

    Attributes:
        id: the identity the recorder gave it.
        inputs: as the engine is sent them; whole numbers are whole, secrets are masked.
        request: the protobuf message.
    """

    type: str
    name: str
    urn: str
    id: str
    inputs: dict[str, Any]
    request: Any

    @property
    def kind(self) -> str:
        """Last part of the type: a Kubernetes kind, or a component's class."""
        return self.type.rsplit(":", 1)[-1]

    @property
    def is_object(self) -> bool:
        """Whether it is a Kubernetes object (no component, no provider, no stack)."""
        return self.type.startswith("kubernetes:")

    @property
    def is_component(self) -> bool:
        """Whether it is one of ours."""
        return self.type.startswith("servingstack:")

    @property
    def options(self) -> dict[str, Any]:
        """The options that were set, by their name in the engine; other resources by their logical names."""
        request = self.request
        # The SDK adds what an input refers to, so this is more than was written as `depends_on`.
        named = {
            "dependsOn": sorted(map(name_of, request.dependencies)),
            "replaceWith": sorted(map(name_of, request.replace_with)),
            "deletedWith": name_of(request.deletedWith),
            "parent": f"{type_of(request.parent)} {name_of(request.parent)}".strip(),
            "provider": name_of(request.provider.rpartition("::")[0]),
        }
        scalars: dict[str, Any] = {
            "deleteBeforeReplace": request.deleteBeforeReplace,
            "retainOnDelete": request.retainOnDelete,
            "protect": request.protect,
            "importId": request.importId,
            "ignoreChanges": list(request.ignoreChanges),
            "replaceOnChanges": list(request.replaceOnChanges),
            "replacementTrigger": MessageToDict(request.replacement_trigger)
            if request.HasField("replacement_trigger")
            else None,
            "customTimeouts": MessageToDict(request.customTimeouts),
            "hooks": {moment.name: list(names) for moment, names in request.hooks.ListFields() if names},
        }
        return {key: value for key, value in sorted((named | scalars).items()) if value}


def _answer_at_once(_: Recorded) -> None: ...


@dataclass
class Recorder(Mocks):
    """Keeps every registration in order.

    Attributes:
        uid: what a cluster gives each object; None for a preview in which nothing is there yet.
        runs_hooks: whether bound create hooks are run, through the SDK's own server for them, as the engine does.
        state: what the engine answers when it is asked what the state holds; None for an engine that can't tell. By
            default the answer before the first update.
        before_answer: is called with each registration before the program hears that it is done.
        asked: token and arguments of every function that was called.
        made: kind and logical name of everything in the order in which it came to be.
        exports: stack outputs.
        hook_errors: what hooks answered that failed.
        finished: URNs whose outputs were registered.
    """

    uid: str | None = UID
    runs_hooks: bool = False
    state: dict[str, Any] | None = field(default_factory=lambda: holding({}))
    before_answer: Callable[[Recorded], None] = _answer_at_once
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    resources: list[Recorded] = field(default_factory=list[Recorded])
    made: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    exports: dict[str, Any] = field(default_factory=dict[str, Any])
    finished: list[str] = field(default_factory=list[str])
    hook_errors: list[str] = field(default_factory=list[str])
    callbacks: dict[str, Any] = field(default_factory=dict[str, Any])

    def new_resource(self, args: MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        given: Any = args  # the SDK says no more than dict
        outputs: dict[str, Any] = dict(given.inputs)
        if self.uid is not None and "metadata" in outputs:
            outputs["metadata"] = {**outputs["metadata"], "uid": self.uid}
        self.made.append((given.typ.rpartition(":")[2], given.name))
        return id_of(args.name), outputs

    def call(self, args: MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]] | None]:
        given: Any = args
        self.asked.append((given.token, dict(given.args)))
        if given.token != READ_STATE:
            return dict(given.args), []
        if self.state is None:
            return {}, [("stackName", "unknown function")]
        return self.state, []

    def state_after(self) -> dict[str, Any]:
        """What the engine answers in the next run, of all that was registered; outputs are as the inputs were."""
        return holding({r.urn: {"type": r.type, "outputs": r.inputs} for r in self.resources})

    def of(self, kind: str) -> list[Recorded]:
        """Registrations of a kind, in order."""
        return [r for r in self.resources if r.kind == kind]

    def named(self, name: str, kind: str | None = None) -> Recorded:
        """The one Kubernetes object with this logical name."""
        [found] = [r for r in self.objects if r.name == name and kind in (None, r.kind)]
        return found

    @property
    def objects(self) -> list[Recorded]:
        """Kubernetes objects, in order."""
        return [r for r in self.resources if r.is_object]

    @property
    def components(self) -> list[Recorded]:
        """Components of ours, in order."""
        return [r for r in self.resources if r.is_component]

    @property
    def names(self) -> set[tuple[str, str]]:
        """Type and name of everything."""
        return {(r.type, r.name) for r in self.resources}


def holding(resources: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What the engine answers of a state with these resources: URN -> type and outputs."""
    return {"name": "organization/serving-stack/test", "outputs": {urn: dict(held) for urn, held in resources.items()}}


def name_of(urn: str) -> str:
    """Logical name inside a URN; nothing for none."""
    return urn.rpartition("::")[2]


def type_of(urn: str) -> str:
    """Type inside a URN, without its parents'; nothing for none."""
    return urn.split("::")[2].rpartition("$")[2] if urn else ""


def id_of(name: str) -> str:
    """Identity that the recorder gives to what has this logical name."""
    return f"{name}-id"


class RecordingMonitor(MockMonitor):
    """Sees the raw requests, and so the options that a mock is not told."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.recorder = recorder

    @property
    def _mocks(self) -> Any:
        """The base class, whose methods have no types."""
        return super()

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802  # the engine's name for it
        recorded = Recorded(
            type=request.type,
            name=request.name,
            urn=self.make_urn(request.parent, request.type, request.name),
            id=id_of(request.name),
            inputs=plain(MessageToDict(request.object)),
            request=request,
        )
        self.recorder.resources.append(recorded)
        self.recorder.before_answer(recorded)
        self._run_hooks(request, request.hooks.before_create)
        response = self._mocks.RegisterResource(request)
        self._run_hooks(request, request.hooks.after_create)
        return response

    def _run_hooks(self, request: Any, names: Iterable[str]) -> None:
        """A failing hook shuts the monitor, and the program is told that it is gone, not why."""
        for name in names if self.recorder.runs_hooks else ():
            callback = self.recorder.callbacks[name]
            asked = ResourceHookRequest(name=request.name, type=request.type, new_inputs=request.object)
            with grpc.insecure_channel(callback.target) as channel:
                callbacks: Any = CallbacksStub(channel)
                answer = callbacks.Invoke(
                    CallbackInvokeRequest(token=callback.token, request=asked.SerializeToString()), timeout=10
                )
            error = ResourceHookResponse.FromString(answer.response).error
            if error:
                self.recorder.hook_errors.append(error)
                raise MonitorIsGoneError

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802  # the engine's name for it
        self.recorder.finished.append(request.urn)
        if "::pulumi:pulumi:Stack::" in request.urn:
            self.recorder.exports = plain(MessageToDict(request.outputs))
        return self._mocks.RegisterResourceOutputs(request)

    def RegisterResourceHook(self, request: Any) -> Any:  # noqa: N802  # the engine's name for it
        self.recorder.callbacks[request.name] = request.callback
        return self._mocks.RegisterResourceHook(request)


class MonitorIsGoneError(grpc.RpcError):
    """What gRPC says once the engine has shut its monitor."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "resource monitor shut down"


def plain(value: Any) -> Any:
    """Whole numbers as numbers, since protobuf has only floats; secrets masked, since mocks show them."""
    match value:
        case {"4dabf18193072939515e22adb298388d": _}:  # Pulumi's mark
            return MASK
        case dict():
            return {k: plain(v) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType]  # JSON
        case list():
            return [plain(v) for v in value]  # pyright: ignore[reportUnknownVariableType]  # JSON
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


class Loop(asyncio.SelectorEventLoop):
    """Counts the requests that the program has sent and not been answered."""

    under_way = 0

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        self.under_way += 1
        answer: Any = super().run_in_executor(executor, func, *args)
        answer.add_done_callback(self._count_answer)
        return answer

    def _count_answer(self, _: object) -> None:
        self.under_way -= 1


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Where programs run: an event loop of their own, no engine, nothing left behind."""

    loop: Loop

    def until_calm(self, *, held: int = 0) -> None:
        """Return when the program can do nothing more before the caller, a wait of its own, has ended.

        So what is not registered then waits for the caller, and not for its turn.

        Args:
            held: requests that the caller itself keeps from being answered.
        """
        is_calm = threading.Event()

        def look(rounds: int) -> None:
            if rounds == CALM:
                is_calm.set()
            else:
                self.loop.call_soon(look, rounds + 1 if self.loop.under_way <= held else 0)

        self.loop.call_soon_threadsafe(look, 0)
        assert is_calm.wait(DEADLINE)

    def __call__(
        self, program: Callable[[], object], *, preview: bool = False, recorder: Recorder | None = None
    ) -> Recorder:
        """Run a program and return what it registered. Raises what the program raises."""
        recorder = recorder or Recorder(uid=None if preview else UID)
        asyncio.set_event_loop(self.loop)
        _set_root("taken")  # else `set_mocks` makes a stack, and a program that an engine runs begins without one
        pulumi.runtime.set_mocks(
            recorder,
            project="serving-stack",
            stack="test",
            organization="organization",
            preview=preview,
            monitor=RecordingMonitor(recorder),
        )
        _set_root(None)
        try:
            self.loop.run_until_complete(_in_stack(program))
        finally:
            reset_options()
        return recorder


def _set_root(root: Any) -> None:
    pulumi.runtime.settings.set_root_resource(root)


async def _in_stack(program: Callable[[], object]) -> None:
    """As the SDK runs a program, so that exports land at the stack and hooks have their server."""

    def run() -> None:
        program()

    await pulumi.runtime.run_in_stack(run)


@contextmanager
def keep_pulumi_to_itself() -> Generator[Stage]:
    """A stage. Its loop and the loops that the mocks want in every worker thread are closed in the end."""
    loops: list[asyncio.AbstractEventLoop] = []

    def give_a_loop() -> None:
        loops.append(asyncio.new_event_loop())
        asyncio.set_event_loop(loops[-1])

    loop = Loop()
    # A failing program leaves tasks that nobody asks for their exception; the SDK's entry point silences asyncio too.
    loop.set_exception_handler(lambda _, __: None)
    workers = ThreadPoolExecutor(max_workers=4, initializer=give_a_loop)
    loop.set_default_executor(workers)
    try:
        yield Stage(loop=loop)
    finally:
        reset_options()
        workers.shutdown()
        for each in (*loops, loop):
            each.close()
        asyncio.set_event_loop(None)
