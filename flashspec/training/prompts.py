"""Prompts that the target answers to make its own training text, written for this project, and code of the library.

Code prompts are the beginnings of modules of Python's standard library (PSF licence), continued by the target, and
requests for small programs. None of them is a prompt of ``flashspec bench``.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import attrs

from flashspec.errors import ContractError

CODE, PROSE = "code", "prose"
WORDS: dict[str, list[str]] = json.loads(Path(__file__).with_name("words.json").read_text(encoding="utf-8"))
"""What requests are made of: forms with a gap, and what fills it."""
PACKAGES = ("asyncio", "collections", "concurrent", "email", "html", "http", "importlib", "json", "logging", "unittest")
"""Packages of the standard library that are read beside its modules."""
SOURCES = "own prompts; for code also sources of Python's standard library (PSF licence)"


@attrs.frozen
class Seed:
    """Where a sequence begins."""

    kind: str
    text: str
    chat: bool = True
    """A user's turn (where the model has a chat template), or text to be continued."""


def seeds(which: str, count: int, seed: int) -> list[Seed]:
    """``count`` beginnings of ``self``, ``self:code`` or ``self:prose``, the same for the same seed.

    Raises:
        ContractError: another name.
    """
    kinds = {"self": (CODE, PROSE), "self:code": (CODE,), "self:prose": (PROSE,)}.get(which)
    if kinds is None:
        raise ContractError(f"data is {which!r}; allowed: self, self:code, self:prose, or a JSON-lines file")
    chance = random.Random(seed)
    columns = [
        _code(chance) if kind == CODE else _asked(PROSE, WORDS["wishes"], WORDS["topics"], chance) for kind in kinds
    ]
    return [columns[n % len(columns)][(n // len(columns)) % len(columns[n % len(columns)])] for n in range(count)]


def _asked(kind: str, forms: Sequence[str], things: Sequence[str], chance: random.Random) -> list[Seed]:
    asked = [Seed(kind, form.format(thing)) for form, thing in itertools.product(forms, things)]
    chance.shuffle(asked)
    return asked


def _code(chance: random.Random) -> list[Seed]:
    """Requests and pieces of the standard library by turns."""
    asked, pieces = _asked(CODE, WORDS["tasks"], WORDS["things"], chance), library()
    chance.shuffle(pieces)
    return [
        seed for pair in itertools.zip_longest(asked, pieces[: 4 * len(asked)]) for seed in pair if seed is not None
    ]


def library(characters: int = 400) -> list[Seed]:
    """Pieces of modules of the standard library, each a class or function from its first line on."""
    found: list[Seed] = []
    home = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted([*home.glob("*.py"), *(p for name in PACKAGES for p in home.glob(f"{name}/*.py"))]):
        text = path.read_text(encoding="utf-8", errors="replace")
        starts = (match.start() for match in re.finditer(r"^(def|class) ", text, re.MULTILINE))
        found += [Seed(CODE, text[start : start + characters], chat=False) for start in starts]
    return found
