"""Makes the images of this folder from the example reports: `make screenshots`.

The terminal is drawn by rich, the page is taken by a headless Chromium, which nothing else here needs. No image shows
the moment or the machine, so none changes unless what it shows does (or fonts and Chromium do).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

from cli.impact import print_report
from cli.report import render_html
from stack.report import Report, from_text

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "headless_shell")
WIDTH = 126
"""Columns of the terminal."""
LONGEST_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Shot:
    """A picture of the page; sizes in CSS pixels."""

    width: int = 1120
    height: int
    is_dark: bool = False


SHOTS = {
    "impact-restarts": Shot(height=1330),
    "impact-refused": Shot(height=1330),
    "impact-outage": Shot(height=1330, is_dark=True),
}


def main() -> int:
    """Make all of them; 1 where the browser is missing."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    for name, shot in SHOTS.items():
        report = from_text((EXAMPLES / f"{name}.json").read_bytes())
        (HERE / f"{name}.svg").write_text(draw_terminal(report), encoding="utf-8")
        if browser is not None:
            take_page(browser, render_html(report), shot, HERE / f"{name}.png")
    if browser is None:
        sys.stderr.write(f"No browser for the pages: none of {', '.join(BROWSERS)} is on PATH. Install chromium.\n")
        return 1
    return 0


def draw_terminal(report: Report) -> str:
    """What the command prints in a terminal, wrapped at its edge, as SVG that loads no font."""
    printed = Console(
        width=WIDTH, file=(written := StringIO()), force_terminal=True, color_system="256", highlight=False
    )
    print_report(printed, report)
    console = Console(record=True, width=WIDTH, file=StringIO(), highlight=False)
    console.print(f"[bold green]$[/] serving-stack impact --stack {report.stack}")
    console.print(Text.from_ansi(written.getvalue().rstrip()))
    svg = console.export_svg(title="serving-stack impact", unique_id="terminal")
    svg = re.sub(r"\s*(@font-face\s*{[^}]*}|<!--.*?-->)", "", svg).replace("Fira Code", "ui-monospace, Menlo, Consolas")
    return "".join(f"{line.rstrip()}\n" for line in svg.splitlines() if line.strip())


def take_page(browser: str, page: str, shot: Shot, into: Path) -> None:
    """Take a picture of the upper part of a page."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "page.html")
        path.write_text(page, encoding="utf-8")
        subprocess.run(
            [
                browser,
                "--headless",
                "--hide-scrollbars",
                f"--user-data-dir={folder}/profile",
                f"--window-size={shot.width},{shot.height}",
                f"--screenshot={into}",
                *(["--blink-settings=preferredColorScheme=0"] if shot.is_dark else []),
                *(["--no-sandbox"] if os.geteuid() == 0 else []),
                path.as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=LONGEST_SECONDS,
        )


if __name__ == "__main__":
    sys.exit(main())
