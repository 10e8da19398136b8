"""What can go wrong with the toolchain, as letters to the person at the terminal: what, why, what to do, and the log.

`explain` knows what Go prints when a build fails for a reason that has a remedy. It judges text and touches nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from local.errors import LocalError

if TYPE_CHECKING:
    from pathlib import Path

LINES_SHOWN = 5


class ToolchainError(LocalError):
    """A tool cannot be made available.

    Attributes:
        subject: What it is about: a tool, a module, a directory.
        why: What was found, as the rest of a sentence that begins with the subject.
        fix: What to do, in whole sentences.
        log: The file with everything Go said, if Go was asked.
    """

    def __init__(self, subject: str, why: str, *, fix: str, log: Path | None = None) -> None:
        self.subject = subject
        self.why = why
        self.fix = fix
        self.log = log
        super().__init__(f"{subject}: {why}. {fix}" + (f"\nThe whole log: {log}" if log else ""))


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Why Go failed, and what to do about it."""

    why: str
    fix: str


@dataclass(frozen=True, kw_only=True)
class _Known:
    sign: re.Pattern[str]
    why: str
    fix: str


def _known(sign: str, why: str, fix: str) -> _Known:
    return _Known(sign=re.compile(sign, re.IGNORECASE), why=why, fix=fix)


_AGAIN = "What was compiled so far is kept; run the same command again."

# Read from the top: causes stand before what follows from them.
_KNOWN = (
    _known(
        r"no space left on device|disk quota exceeded",
        "the disk is full",
        f"Make room, or point SERVING_STACK_CACHE, GOCACHE and GOMODCACHE at a bigger disk. {_AGAIN}",
    ),
    _known(
        r"requires go >= (?P<what>[\w.]+) \(running go",
        "its modules need Go {what} or newer",
        "Install a newer Go and put it first on PATH.",
    ),
    _known(
        r"verifying (?P<what>\S+@\S+): checksum mismatch|SECURITY ERROR",
        "the checksum of {what} is not the one in the lock file, so what the registry served is not what was reviewed",
        "Do not go on with it. Empty the module cache with `go clean -modcache` and try again; if it stays so, ask "
        "whoever runs the module proxy named by `go env GOPROXY`.",
    ),
    _known(
        r"(?P<what>\S+@\S+):.*\b(?P<status>40[0-9]|410|429|451|50[0-9]) [A-Z][\w ]*",
        "the module registry refuses {what} with status {status}",
        "Check that the proxy named by `go env GOPROXY` serves that module at that version, then run the same command "
        "again.",
    ),
    _known(
        r"x509: |certificate (?:signed by|is not|has expired)",
        "the certificate of the module registry is not trusted",
        "Behind a company proxy, install its authority's certificate into the system's trust store, or name it in "
        "SSL_CERT_FILE.",
    ),
    _known(
        r"dial tcp|no such host|i/o timeout|connection re(?:fused|set)|network is unreachable|TLS handshake timeout|"
        r"proxyconnect|unexpected EOF|could not resolve host|module lookup disabled by GOPROXY=off",
        "the module registry cannot be reached",
        f"Check the network, HTTPS_PROXY and `go env GOPROXY GOSUMDB`. {_AGAIN}",
    ),
    _known(
        r'exec: "?git"?: executable file not found|git init .*: exec:|"git": executable file not found',
        "Go wants git to fetch a module, and git is missing",
        "Install git, or let `go env GOPROXY` name a module proxy.",
    ),
    _known(
        r"missing go\.sum entry|updates to go\.(?:mod|sum) needed|no required module provides",
        "its lock files do not agree with what is built",
        "Run `python -m local.toolchain lock`, review the difference and commit it.",
    ),
    _known(
        r"signal: killed|cannot allocate memory|runtime: out of memory",
        "the compiler was killed, as happens when memory runs out",
        f"Close what needs much memory, or set GOFLAGS=-p=1 to compile one package at a time. {_AGAIN}",
    ),
    _known(
        r'C compiler .* not found|exec: "(?:gcc|cc|clang)"',
        "Go looks for a C compiler, which this toolchain never needs",
        "Unset CGO_ENABLED in `go env -w`, or install a C compiler.",
    ),
    _known(
        r"(?P<what>\S+): (?:permission denied|read-only file system)",
        "{what} cannot be written or run",
        "Give yourself write access to it, or point SERVING_STACK_CACHE, GOCACHE and GOMODCACHE to where you may write "
        "and run programs.",
    ),
)


def explain(output: str) -> Explanation:
    """Find the cause in what Go printed; where none is known, quote its last lines."""
    for known in _KNOWN:
        if match := known.sign.search(output):
            found = {name: value or "a module" for name, value in match.groupdict().items()}
            return Explanation(why=known.why.format_map({"what": "a module"} | found), fix=known.fix)
    lines = [line for line in output.splitlines() if line.strip()][-LINES_SHOWN:]
    said = "\n".join(f"  | {line}" for line in lines) or "  | (nothing)"
    return Explanation(why=f"Go failed. Its last lines:\n{said}\n", fix="The log may say more.")


def reason(error: OSError) -> str:
    """The operating system's own word for a failure."""
    return (error.strerror or str(error)).lower()
