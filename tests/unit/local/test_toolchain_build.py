"""Building and its failures, with a stand-in for `go`: a shell script that answers as the real one would.

The real Go builds the real tools in `make toolchain`; what counts here is order, messages and cleanliness.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from rich.console import Console

from local.toolchain import Lines, Live, Silent, Toolbox, ToolchainError, ensure, show_progress
from local.toolchain.failures import explain
from local.toolchain.golang import parse_go_version
from local.toolchain.pins import Pins

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]
SUM = "h1:" + "A" * 43 + "="
MIB = 1 << 20

# Calls are kept in $HOME/calls; what it does beside answering stands in $HOME/<command>.sh, where a test puts it.
STAND_IN = r"""#!/bin/sh
echo "$*" >> "$HOME/calls"
[ -f "$HOME/$1.sh" ] && . "$HOME/$1.sh"
case "$1" in
env) cat <<END
{"GOVERSION": "go1.26.8", "GOHOSTOS": "linux", "GOHOSTARCH": "amd64", "GOAMD64": "v1", "GOARM64": "",
 "GOEXPERIMENT": "", "GOCACHE": "$HOME/gocache", "GOMODCACHE": "$HOME/modules"}
END
;;
list) echo "go: downloading example.org/one v1.0.0" >&2; printf 'true\nfalse\ntrue\n' ;;
mod) mkdir -p "$HOME/modules/crds/bases" && printf '{"Path":"%s","Version":"%s","Dir":"%s","Sum":"%s"}' \
    "${4%@*}" "${4#*@}" "$HOME/modules/crds" "SUM" ;;
build) echo example.org/one >&2; echo example.org/two >&2
    while [ "$1" != -o ]; do shift; done; printf '#!/bin/sh\necho built\n' > "$2"; chmod +x "$2" ;;
esac
""".replace('"SUM"', f'"{SUM}"')


def pinned(**more: object) -> dict[str, Any]:
    tool = {"module": "one", "package": "example.org/one", "disk_mib": 1}
    return {
        "go": {"minimum": "1.26.6"},
        "modules": {"one": {"origin": {"path": "example.org/one", "version": "v1.2.3"}}},
        "tools": {"alpha": tool, "beta": tool},
        "crds": {"gamma": {"origin": {"path": "example.org/crds", "version": "v4.5.6", "sum": SUM}, "folder": "bases"}},
        **more,
    }


class DiskUsage(NamedTuple):
    total: int
    used: int
    free: int


class Bench:
    """A home with a stand-in for Go, a wrapper module and a cache, all of this test alone."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.pins = Pins.model_validate(pinned())
        self.environ = {
            "HOME": str(home),
            "PATH": f"{home}/bin:/usr/bin:/bin",
            "SERVING_STACK_CACHE": str(home / "cache"),
        }
        self.cache = home / "cache"
        (home / "modules-of-ours/one").mkdir(parents=True)
        (home / "modules-of-ours/one/go.mod").write_text("module one\n", encoding="utf-8")
        (home / "bin").mkdir()
        (home / "bin/go").write_text(STAND_IN, encoding="utf-8")
        (home / "bin/go").chmod(0o755)

    def on(self, command: str, does: str) -> None:
        (self.home / f"{command}.sh").write_text(does, encoding="utf-8")

    def says(self, command: str, words: str, code: int = 1) -> None:
        self.on(command, f"cat >&2 <<'END'\n{words}\nEND\nexit {code}\n")

    def calls(self, command: str) -> list[str]:
        return [
            call for call in (self.home / "calls").read_text(encoding="utf-8").splitlines() if call.startswith(command)
        ]

    def ensure(self, *names: str, progress: Lines | Silent | None = None) -> Toolbox:
        return ensure(
            names or None,
            progress=progress or Silent(),
            environ=self.environ,
            pins=self.pins,
            modules=self.home / "modules-of-ours",
        )

    def fails(self, *names: str) -> ToolchainError:
        with pytest.raises(ToolchainError) as caught:
            self.ensure(*names)
        return caught.value

    def left_over(self) -> list[Path]:
        return list((self.cache / "staging").iterdir())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_everything_asked_for_is_there_with_its_version(bench: Bench) -> None:
    toolbox = bench.ensure()
    assert dict(toolbox.versions) == {"alpha": "1.2.3", "beta": "1.2.3", "gamma": "4.5.6"}
    assert subprocess.check_output([toolbox.path("alpha")], text=True) == "built\n"
    assert sorted(path.name for path in toolbox.bin_dir.iterdir()) == ["alpha", "beta"]
    assert toolbox.crd_dir("gamma") == bench.home / "modules/crds/bases"
    assert bench.left_over() == []


def test_nothing_is_built_that_was_not_asked_for(bench: Bench) -> None:
    toolbox = bench.ensure("beta")
    assert len(bench.calls("build")) == 1
    with pytest.raises(KeyError):
        toolbox.path("alpha")
    with pytest.raises(KeyError):
        toolbox.crd_dir("gamma")
    with pytest.raises(KeyError):
        _ = toolbox.pulumi_home


def test_what_comes_with_a_tool_comes_along_and_stands_beside_it(bench: Bench) -> None:
    tool = {"module": "one", "package": "example.org/one", "disk_mib": 1}
    script = {"name": "host-script", "file": "script", "origin": pinned()["crds"]["gamma"]["origin"]}
    host = tool | {"comes_with": "alpha", "beside": [script]}
    bench.pins = Pins.model_validate(pinned(tools={"alpha": tool, "host": host, "other": tool}))
    bench.on("mod", 'mkdir -p "$HOME/modules/crds" && echo run > "$HOME/modules/crds/script"')
    toolbox = bench.ensure("alpha")
    assert sorted(path.name for path in toolbox.bin_dir.iterdir()) == ["alpha", "host", "host-script"]
    assert os.access(toolbox.path("host-script"), os.X_OK)


def test_a_second_run_builds_nothing(bench: Bench) -> None:
    first = bench.ensure()
    built = len(bench.calls("build"))
    assert bench.ensure() == first
    assert len(bench.calls("build")) == built == 2


def test_a_changed_lock_file_builds_anew_and_leaves_the_old_binary_alone(bench: Bench) -> None:
    old = bench.ensure("alpha").path("alpha")
    (bench.home / "modules-of-ours/one/go.sum").write_text("changed", encoding="utf-8")
    new = bench.ensure("alpha").path("alpha")
    assert new != old
    assert old.exists()
    assert len(bench.calls("build")) == 2


def test_go_runs_without_c_and_with_the_locked_graph_whatever_the_user_has_set(bench: Bench) -> None:
    bench.environ |= {"CGO_ENABLED": "1", "GOFLAGS": "-mod=mod -p=1 -race", "GOOS": "plan9", "GOTOOLCHAIN": "auto"}
    bench.on("build", 'echo "$CGO_ENABLED $GOFLAGS $GOOS $GOTOOLCHAIN $GOWORK" > "$HOME/seen"')
    bench.ensure("alpha")
    seen = (bench.home / "seen").read_text(encoding="utf-8").strip()
    assert seen == "0 -p=1 -mod=readonly -buildvcs=false linux local off"


def test_build_tags_count_for_what_is_downloaded_and_counted_as_for_what_is_compiled(bench: Bench) -> None:
    tagged = {"origin": {"path": "example.org/one", "version": "v1.2.3"}, "tags": ["small", "quick"]}
    tool = {"module": "one", "package": "example.org/one", "disk_mib": 1}
    beta = tool | {"module": "two"}
    (bench.home / "modules-of-ours/two").mkdir()
    modules = pinned()["modules"] | {"two": tagged}
    bench.pins = Pins.model_validate(pinned(modules=modules, tools={"alpha": tool, "beta": beta}))
    bench.on("build", 'until grep -q "^list -e" "$HOME/calls"; do sleep 0.02; done')  # beta's modules come meanwhile
    bench.ensure("alpha", "beta")
    for command in ("list", "build"):
        plain = [call for call in bench.calls(command) if "-tags" not in call]
        assert len(plain) == 1, f"alpha's, whose module has no tags: {command}"
        assert {"-tags small,quick" in call for call in bench.calls(command) if call not in plain} == {True}
    assert bench.calls("list -e -tags small,quick"), "ahead of its turn"


def test_the_variables_put_the_tools_first_on_path(bench: Bench) -> None:
    toolbox = bench.ensure("alpha")
    assert toolbox.variables({"PATH": "/usr/bin"}) == {"PATH": f"{toolbox.bin_dir}:/usr/bin"}
    assert toolbox.variables({}) == {"PATH": str(toolbox.bin_dir)}


def test_a_plugin_is_installed_in_a_pulumi_home_and_kept_off_path(bench: Bench) -> None:
    tool = {"module": "one", "package": ".", "disk_mib": 1}
    plugin = tool | {"plugin": {"kind": "resource", "name": "kubernetes", "version": "4.25.0"}}
    bench.pins = Pins.model_validate(pinned(tools={"alpha": tool, "pulumi-resource-kubernetes": plugin}))
    toolbox = bench.ensure()
    home = toolbox.pulumi_home
    assert toolbox.path("pulumi-resource-kubernetes") == (
        home / "plugins/resource-kubernetes-v4.25.0/pulumi-resource-kubernetes"
    )
    assert toolbox.path("pulumi-resource-kubernetes").is_file()
    assert sorted(path.name for path in toolbox.bin_dir.iterdir()) == ["alpha"]
    assert toolbox.variables({})["PULUMI_HOME"] == str(home)
    assert toolbox.variables({})["PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION"] == "true"


def test_what_path_has_in_a_good_version_is_linked_and_not_built(bench: Bench) -> None:
    tool = {"module": "one", "package": "example.org/one", "disk_mib": 1}
    policy = {"on_path": {"ask": ["--version"], "pattern": "(\\S+)", "accept": "==9.*"}}
    bench.pins = Pins.model_validate(pinned(tools={"alpha": tool | policy, "beta": tool}))
    mine = bench.home / "bin/alpha"
    mine.write_text("#!/bin/sh\necho v9.1.0\n", encoding="utf-8")
    mine.chmod(0o755)
    toolbox = bench.ensure("alpha", "beta")
    assert toolbox.versions["alpha"] == "9.1.0"
    assert toolbox.path("alpha").resolve() == mine
    assert len(bench.calls("build")) == 1


def test_what_a_killed_run_left_behind_is_cleared_away(bench: Bench) -> None:
    bench.ensure("alpha")
    [entry] = (bench.cache / "tools/alpha").iterdir()
    shutil.rmtree(entry)
    left = bench.cache / "staging" / f"alpha-{entry.name}" / "made"
    left.mkdir(parents=True)
    (left / "half").touch()
    assert bench.ensure("alpha").path("alpha").is_file()
    assert not (entry / "half").exists()
    assert bench.left_over() == []


def test_two_runs_at_once_build_once(bench: Bench) -> None:
    bench.on("build", "sleep 0.2")
    boxes: list[Toolbox] = []
    threads = [threading.Thread(target=lambda: boxes.append(bench.ensure("alpha"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(boxes) == 3
    assert len({box.path("alpha") for box in boxes}) == 1
    assert len(bench.calls("build")) == 1


def test_lines_say_tool_phase_count_and_the_end(bench: Bench) -> None:
    text = io.StringIO()
    bench.ensure("alpha", "beta", progress=Lines(Console(file=text, width=200), every=0))
    said = text.getvalue()
    for want in (
        "[1/2] alpha: downloading modules 1 modules",
        "[1/2] alpha: compiling 1 of 2 packages",
        "[1/2] alpha: linking",
        "[1/2] alpha 1.2.3: built in 0:0",
        "[2/2] beta: compiling",
    ):
        assert want in said


def test_lines_are_no_flood(bench: Bench) -> None:
    text = io.StringIO()
    bench.on("build", "for i in 1 2 3 4 5 6 7 8 9; do echo p$i >&2; done")
    bench.ensure("alpha", progress=Lines(Console(file=text, width=200), every=60))
    assert len(text.getvalue().splitlines()) == 4, "two phases, the linking, the end"


def test_a_terminal_gets_a_live_display_and_a_pipe_gets_lines() -> None:
    assert isinstance(show_progress(Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "xterm"})), Live)
    assert isinstance(show_progress(Console(file=io.StringIO(), force_terminal=False)), Lines)


def test_the_live_display_shows_how_far_the_tool_is_and_leaves_a_line_when_it_is_there() -> None:
    text = io.StringIO()
    console = Console(file=text, width=120, force_terminal=True, _environ={"TERM": "xterm"})
    with Live(console) as live:
        live.begin(3)
        live.tool("alpha")
        live.phase("compiling", total=10)
        live.advance(4)
        live.tick()
        assert "1/3" in text.getvalue()
        assert "alpha: compiling" in text.getvalue()
        assert "4 of 10 packages" in text.getvalue()
        live.finished("alpha", version="1.2.3", seconds=61, size=7 * MIB)
    assert "alpha 1.2.3: built in 1:01, 7 MiB" in text.getvalue()


def test_an_unknown_name_is_refused_with_the_names_there_are(bench: Bench) -> None:
    error = bench.fails("alhpa")
    assert str(error) == "alhpa: is not in the toolchain. Choose among alpha, beta, gamma."


def test_missing_go_is_one_clear_message(bench: Bench) -> None:
    bench.environ["PATH"] = str(bench.home / "empty")
    assert str(bench.fails()).startswith("go: is not on PATH. Install Go 1.26.6 or newer")


def test_a_go_that_is_too_old_is_named_with_its_version(bench: Bench) -> None:
    bench.on("env", 'sed "s/go1.26.8/go1.26.5/" <<END\n{"GOVERSION": "go1.26.8"}\nEND\nexit\n')
    error = bench.fails()
    assert str(error).startswith(f"{bench.home}/bin/go: is go1.26.5, which is too old. Install Go 1.26.6 or newer")


@pytest.mark.parametrize("words", ["exit 3", "echo no json; exit", "kill -9 $$"])
def test_a_go_that_does_not_run_is_named(bench: Bench, words: str) -> None:
    bench.on("env", words)
    assert bench.fails().subject == f"{bench.home}/bin/go"


def test_too_little_disk_is_said_before_anything_is_built(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def disk_usage(_: object) -> DiskUsage:
        return DiskUsage(total=100 * MIB, used=90 * MIB, free=10 * MIB)

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    error = bench.fails()
    assert error.why == "has 10 MiB free, and building alpha, beta takes up to 259 MiB"
    assert "set GOCACHE to a directory on a bigger disk" in error.fix
    assert bench.calls("build") == []


def test_a_disk_that_fills_up_is_named_and_leaves_nothing(bench: Bench) -> None:
    bench.says("build", "# example.org/one\ncompile: writing output: write $WORK/b1/_pkg_.a: no space left on device")
    assert bench.fails().why == "the disk is full"
    assert not (bench.cache / "tools").exists()
    assert bench.left_over() == []


def test_a_failed_build_names_its_log_and_the_next_run_succeeds(bench: Bench) -> None:
    bench.says("build", "example.org/one\nsome nonsense\n")
    error = bench.fails("alpha")
    assert error.log is not None
    assert f"\nThe whole log: {error.log}" in str(error)
    log = error.log.read_text(encoding="utf-8")
    assert "$ go build -v -o " in log
    assert "some nonsense" in log
    assert "  | some nonsense" in str(error)
    (bench.home / "build.sh").unlink()
    assert bench.ensure("alpha").path("alpha").is_file()
    assert bench.left_over() == []


def test_a_module_that_is_not_what_was_pinned_is_refused(bench: Bench) -> None:
    bench.on("mod", 'printf \'{"Path":"example.org/crds","Version":"v4.5.6","Dir":"/x","Sum":"h1:other"}\'; exit')
    error = bench.fails("gamma")
    assert error.subject == "example.org/crds@v4.5.6"
    assert error.why == f"has the checksum h1:other, and pins.toml says {SUM}"


def test_a_crd_module_that_the_registry_refuses_is_named(bench: Bench) -> None:
    answer = (
        '{"Path":"example.org/crds","Version":"v4.5.6","Error":"example.org/crds@v4.5.6: reading it: 403 Forbidden"}'
    )
    bench.on("mod", f"printf '{answer}'; exit 1")
    error = bench.fails("gamma")
    assert error.subject == "example.org/crds@v4.5.6"
    assert error.why == "the module registry refuses example.org/crds@v4.5.6 with status 403"


@pytest.mark.parametrize(
    ("output", "want"),
    [
        pytest.param(
            "go: a.org/b@v1.0.0: reading file:///x: 404 Not Found", "refuses a.org/b@v1.0.0 with status 404", id="404"
        ),
        pytest.param(
            "go: a.org/b@v1.0.0: reading somewhere: 410 Gone\n\tserver response: gone",
            "refuses a.org/b@v1.0.0 with status 410",
            id="410",
        ),
        pytest.param(
            "go: a.org/b@v1.0.0: Get somewhere: dial tcp: lookup somewhere: no such host", "cannot be reached", id="DNS"
        ),
        pytest.param(
            "go: a.org/b@v1.0.0: Get somewhere: dial tcp 10.0.0.1:443: connect: connection refused",
            "cannot be reached",
            id="refused connection",
        ),
        pytest.param(
            "go: a.org/b@v1.0.0: module lookup disabled by GOPROXY=off", "cannot be reached", id="no registry allowed"
        ),
        pytest.param(
            "fatal: unable to access 'somewhere': Could not resolve host: somewhere",
            "cannot be reached",
            id="git, no network",
        ),
        pytest.param(
            "go: a.org/b@v1.0.0: Get somewhere: tls: failed to verify certificate: x509: certificate signed by unknown "
            "authority",
            "is not trusted",
            id="certificate",
        ),
        pytest.param(
            "go: downloading a.org/b v1.0.0\nverifying a.org/b@v1.0.0: checksum mismatch\n\tdownloaded: h1:x\n"
            "\tgo.sum:     h1:y\n\nSECURITY ERROR\nThis download does NOT match an earlier download.",
            "checksum of a.org/b@v1.0.0",
            id="checksum",
        ),
        pytest.param(
            "go: go.mod requires go >= 1.26.6 (running go 1.26.0; GOTOOLCHAIN=local)", "need Go 1.26.6", id="old Go"
        ),
        pytest.param(
            "one.go:3:2: missing go.sum entry for module providing package a.org/b; to add:", "lock files", id="go.sum"
        ),
        pytest.param("go: updates to go.mod needed; to update it:\n\tgo mod tidy", "lock files", id="go.mod"),
        pytest.param("a.org/b: /usr/local/go/pkg/tool/compile: signal: killed", "memory runs out", id="killed"),
        pytest.param('go: a.org/b@v1.0.0: git init --bare: exec: "git": executable file not found', "git", id="no git"),
        pytest.param("open /gocache/00/x: permission denied", "/gocache/00/x cannot be written", id="permission"),
        pytest.param("open /gocache/00/x: read-only file system", "/gocache/00/x cannot be written", id="read-only"),
        pytest.param('# runtime/cgo\ncgo: C compiler "gcc" not found: exec: "gcc"', "C compiler", id="C compiler"),
        pytest.param("a.go:1:1: undefined: B", "  | a.go:1:1: undefined: B", id="unknown"),
        pytest.param("", "(nothing)", id="silence"),
    ],
)
def test_what_go_says_is_explained(output: str, want: str) -> None:
    assert want in explain(output).why
    assert explain(output).fix.endswith(".")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("go1.26.8", "1.26.8"),
        ("go1.27", "1.27"),
        ("go1.27rc1", "1.27rc1"),
        ("go1.26.6-X:boring", "1.26.6"),
        ("devel go1.28-0f0", None),
    ],
)
def test_go_versions_are_read(text: str, want: str | None) -> None:
    version = parse_go_version(text)
    assert (version and str(version)) == want


RUN = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from local.toolchain import Lines, ensure, golang
from local.toolchain.pins import Pins
from rich.console import Console
golang.GRACE_SECONDS = 0.2
ensure(["alpha"], progress=Lines(Console(stderr=True)), pins=Pins.model_validate({pins!r}), modules=Path({modules!r}))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interruption_ends_go_with_its_children_and_the_next_run_goes_on(
    bench: Bench, number: signal.Signals
) -> None:
    # The stand-in is deaf to a polite request, as is its child: both must go all the same.
    bench.on("build", "trap '' INT; sh -c 'trap \"\" INT; echo $$ > $HOME/child; while :; do sleep 0.05; done'")
    code = RUN.format(root=str(ROOT), pins=pinned(), modules=str(bench.home / "modules-of-ours"))
    process = subprocess.Popen([sys.executable, "-c", code], env=bench.environ, stderr=subprocess.PIPE, text=True)
    child = int(wait_for(lambda: (bench.home / "child").read_text(encoding="utf-8").strip()))
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert process.returncode != 0
    assert "Interrupted. What was compiled so far is kept" in said
    wait_for(lambda: not is_alive(child))
    assert not (bench.cache / "tools").exists()
    assert bench.left_over() == []
    (bench.home / "build.sh").unlink()
    assert bench.ensure("alpha").path("alpha").is_file()
    assert bench.left_over() == []


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for(read: Callable[[], object], seconds: float = 15) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if value := read():
                return str(value)
        except FileNotFoundError:
            pass
        time.sleep(0.01)
    pytest.fail("it did not come true in time")
