"""Reads the files of bad input: a stack file, and in comments that begin with `#>` what must be said about it.

`expect` lists every letter by its key, with words that it must contain, the value included. `engine` marks what
Pulumi's own parser stops, with words of the engine's message; our reader of files stops it too, with the letters.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

FOLDER = Path(__file__).resolve().parents[2] / "bad"


@dataclass(frozen=True)
class Expected:
    key: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class BadFile:
    path: Path
    text: str
    expected: tuple[Expected, ...]
    engine_says: str | None

    @property
    def stops_the_engine(self) -> bool:
        return self.engine_says is not None


def bad_files() -> list[BadFile]:
    return [read_bad_file(path) for path in sorted(FOLDER.glob("*.yaml"))]


def read_bad_file(path: Path) -> BadFile:
    text = path.read_text(encoding="utf-8")
    comments = [line.removeprefix("#>") for line in text.splitlines() if line.startswith("#>")]
    head = yaml.safe_load("\n".join(line.removeprefix(" ") for line in comments))
    expected = tuple(Expected(key=item["key"], words=tuple(item["says"])) for item in head["expect"])
    return BadFile(path=path, text=text, expected=expected, engine_says=head.get("engine"))
