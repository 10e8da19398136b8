"""The environment in which the Pulumi engine works against a local plane: its own state, no login, no downloads.

Used by the try-out commands and by the tests; a user with a cluster needs none of it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from local.toolchain import Toolbox

PASSPHRASE = ""
"""Local stacks hold no secret, so their state is sealed with an empty passphrase and nobody is asked for one."""
LOGS_MB = 20
"""The engine keeps a log of each run, and looks at all of them whenever it starts; by itself it stops at 500 MB."""


def engine_environment(
    toolbox: Toolbox, *, kubeconfig: Path, backend: Path, virtualenv: Path, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Variables for a `pulumi` process.

    Args:
        toolbox: ensured tools, with the engine, its language host and the provider plugin among them.
        kubeconfig: kubeconfig of the plane.
        backend: folder of the state files; is made.
        virtualenv: virtual environment with the program's packages; the language host takes the first python on PATH.
        environ: environment to start from; None means this process's. What would lead elsewhere is taken out.
    """
    backend.mkdir(parents=True, exist_ok=True)
    kept = {
        name: value
        for name, value in (os.environ if environ is None else environ).items()
        if not name.startswith("PULUMI_") and name not in {"KUBECONFIG", "PYTHONPATH", "PYTHONHOME"}
    }
    kept |= toolbox.variables(kept)
    # The plane and the engine are on this machine: Go knows that no proxy leads there, Python's clients must be told.
    direct = ",".join(filter(None, [kept.get("NO_PROXY") or kept.get("no_proxy"), "127.0.0.1,localhost"]))
    return kept | {
        "NO_PROXY": direct,
        "no_proxy": direct,
        "PATH": os.pathsep.join([str(virtualenv / "bin"), kept["PATH"]]),
        "VIRTUAL_ENV": str(virtualenv),
        "KUBECONFIG": str(kubeconfig),
        "PULUMI_BACKEND_URL": f"file://{backend}",
        "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_LOG_ROTATION_MAX_TOTAL_MB": str(LOGS_MB),
    }
