# preStop hook of a model server: python3 -I -S -c <this> DELAY WATCHES LONGEST PULL PORT...
import os
import signal
import socket
import sys
import time
from http.client import HTTPConnection
from threading import Thread
from typing import Dict, List, Optional, Set, Tuple

RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
ENDED = "vllm:request_success_total"
ANSWER_SECONDS = 5
# Without work seen for so long: vLLM sets its gauges at the end of a step, when what ended with it is out of them. So
# a request shows after its first step, which with a long prompt takes seconds, and never if that is its last one.
QUIET_SECONDS = 10
began = time.monotonic()


def log_of_container() -> int:
    # A hook has no log. That of its container is the output of the main process, which, like the hook, was started
    # from outside (it has no parent in here) and sees the same files.
    try:
        mine = os.readlink("/proc/self/ns/mnt")
        pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    except OSError:
        return 2
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as stat:
                parent = int(stat.read().rpartition(")")[2].split()[1])
            if pid not in (1, os.getpid()) and parent == 0 and os.readlink(f"/proc/{pid}/ns/mnt") == mine:
                return os.open(f"/proc/{pid}/fd/1", os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError:
            continue
    return 2


def say(log: int, text: str) -> None:
    try:
        os.write(log, f"[drain] {time.monotonic() - began:.1f} s: {text}\n".encode())
    except OSError:
        pass  # nobody reads, or not fast enough: the drain goes on


def listening(ports: Set[int]) -> Dict[int, str]:
    # Port -> address of the engine's sockets in state LISTEN (0A). One that is only bound is none of them.
    found: Dict[int, str] = {}
    for family, path in ((socket.AF_INET, "/proc/net/tcp"), (socket.AF_INET6, "/proc/net/tcp6")):
        try:
            with open(path) as table:
                rows = [line.split() for line in table][1:]
        except OSError:
            continue
        for row in rows:
            address, _, port = row[1].partition(":")
            if row[3] != "0A" or int(port, 16) not in ports:
                continue
            words = [bytes.fromhex(address[at : at + 8]) for at in range(0, len(address), 8)]
            raw = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
            if not any(raw):  # every address: ask at loopback
                raw = bytes((127, 0, 0, 1)) if family == socket.AF_INET else raw[:-1] + b"\1"
            found.setdefault(int(port, 16), socket.inet_ntop(family, raw))
    return found


def ask(host: str, port: int, answers: Dict[int, Tuple[float, float]]) -> None:
    # Requests of all engines behind a port, into answers: those that run or wait, and how many have ended so far.
    # Nothing where it gives no full answer.
    try:
        connection = HTTPConnection(host, port, timeout=ANSWER_SECONDS)
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        seen: Dict[str, List[float]] = {RUNNING: [], WAITING: [], ENDED: []}
        for line in answer.read().decode().splitlines():
            name = line.partition("{")[0].partition(" ")[0]
            if name in seen:
                seen[name].append(float(line[len(name) :].rpartition("}")[2].split()[0]))
        if answer.status == 200 and seen[RUNNING] and seen[WAITING]:
            answers[port] = sum(seen[RUNNING] + seen[WAITING]), sum(seen[ENDED])
    except Exception:
        pass


class Watch:
    def __init__(self, ports: Set[int], end: float) -> None:
        self.ports, self.end = ports, end
        self.last_busy = self.last_look = began
        self.requests: Optional[float] = None  # as last seen; None where a port gave no answer
        self.ended: Dict[int, float] = {}  # port -> requests that have ended, as last seen

    def look(self) -> None:
        # No answer counts as busy, since busy engines answer slowly; so does a request that came and went since the
        # last look. A port that does not listen any more is not asked, since its engine is gone.
        there = listening(self.ports)
        found: Dict[int, Tuple[float, float]] = {}
        asking = [Thread(target=ask, args=(there[port], port, found), daemon=True) for port in there]
        until = min(time.monotonic() + ANSWER_SECONDS, self.end)
        for each in asking:
            each.start()
        for each in asking:
            each.join(max(0, until - time.monotonic()))
        answers, self.last_look = dict(found), time.monotonic()
        self.requests = sum(now for now, _ in answers.values()) if answers.keys() == there.keys() else None
        ended = {port: so_far for port, (_, so_far) in answers.items()}
        if self.requests != 0 or any(self.ended.get(port, so_far) != so_far for port, so_far in ended.items()):
            self.last_busy = self.last_look
        self.ended.update(ended)

    @property
    def is_idle(self) -> bool:
        return self.requests == 0 and self.last_look - self.last_busy >= QUIET_SECONDS

    def wait(self, until: float, stops_when_idle: bool = False) -> None:
        while time.monotonic() < until and not (stops_when_idle and self.is_idle):
            self.look()
            time.sleep(max(0, min(1, until - time.monotonic())))


def kill_everything() -> None:
    try:
        os.kill(-1, signal.SIGKILL)  # all but the sandbox's PID 1 and this process
    except OSError:
        pass


def main() -> None:
    delay, watches, longest, pull, *given = map(int, sys.argv[1:])
    ports, log = set(given), log_of_container()
    missing = sorted(ports - listening(ports).keys())
    if len(missing) == len(ports):
        say(log, "nothing is served yet: killing everything")
        kill_everything()
        return
    watch = Watch(ports, began + delay + longest)
    say(log, f"leaving: {delay} s for routers to notice" + (f", no engine at {missing}" if missing else ""))
    if watches or missing:
        watch.wait(began + delay)
        say(log, f"waiting for requests to end, {longest} s at most")
        watch.look()  # what came last before routers had noticed
        watch.wait(watch.end, stops_when_idle=True)
        if watch.is_idle:
            say(log, "nothing runs any more")
        elif watch.requests == 0:
            say(log, f"no more time, and no work seen for {watch.last_look - watch.last_busy:.0f} s")
        else:
            say(log, "time is up: " + ("no answer" if watch.requests is None else f"{watch.requests:.0f} requests"))
    else:
        time.sleep(delay)
    # A prompt of one step is never seen, and one may have come until routers had noticed.
    if pull and (seconds := max(watch.last_busy, began + delay) + pull - time.monotonic()) > 0:
        say(log, f"{seconds:.1f} s for pulls")
        time.sleep(seconds)
    if missing:
        say(log, "killing everything")
        kill_everything()
    else:
        say(log, "over to the engine")


if __name__ == "__main__":  # so it is under python3 -c; an import kills nothing
    main()
