"""Record the traces of ``docs/benchmarks/traces``: answers to our own prompts, every free draft scored.

``python -P -m flashspec.bench.record DIR`` writes one file per kind of prompt and ``mixed``, in which
the kinds take turns; ``flashspec replay`` reads them. Greedy, so that the text is the target's alone.
(The header of the shipped traces names ``flashspec.bench.select``, as this module was called.)
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from flashspec.bench.header import header
from flashspec.bench.prompts import Prompt, load_prompts
from flashspec.errors import ContractError

KINDS = ("code", "edit", "chat", "prose")
MIXED = "mixed"
KEPT = ("request", "places")
"""What a replay reads of a step; the rest would only make the files larger."""


@attrs.frozen
class Config:
    """What to record.

    Raises:
        ContractError: numbers below 1.
    """

    target: str = "smollm2-135m"
    prompts: int = 4
    """Prompts of each kind; the mixed trace takes half as many others of each, one of each kind in turn."""
    max_new_tokens: int = 160
    threads: int | None = None
    """Threads of torch for which costs are looked up or measured."""
    answer_threads: int | None = None
    """Threads while answering; None: the same. Costs do not come from the answers, so they may differ."""
    dtype: str = "auto"

    def __attrs_post_init__(self) -> None:
        if self.prompts < 1 or self.max_new_tokens < 1:
            raise ContractError(f"{self}; allowed: prompts and max_new_tokens >= 1")


def chosen(prompts: Sequence[Prompt], each: int) -> dict[str, list[Prompt]]:
    """The prompts of every trace by its name; those of ``mixed`` are in no other."""
    kinds = {kind: [p for p in prompts if p.category == kind] for kind in KINDS}
    turns = max(1, each // 2)
    short = [kind for kind, mine in kinds.items() if len(mine) < each + turns]
    if short:
        raise ContractError(f"there are fewer than {each + turns} prompts of {', '.join(short)}; lower --prompts")
    mixed = [kinds[kind][each + turn] for turn in range(turns) for kind in KINDS]
    return {**{kind: mine[:each] for kind, mine in kinds.items()}, MIXED: mixed}


def record(config: Config, folder: Path, say: Any) -> None:
    """Answer the prompts and write the files."""
    import torch

    from flashspec.hf import Speculator, load
    from flashspec.hf.loading import encode_prompt

    loaded = load(config.target, dtype=config.dtype, threads=config.threads, progress=say)
    speculator = Speculator.build(loaded)
    if config.answer_threads is not None:
        torch.set_num_threads(config.answer_threads)
    for name, prompts in chosen(load_prompts(), config.prompts).items():
        lines: list[str] = []
        for number, prompt in enumerate(prompts, 1):
            say(f"{name}: {number} of {len(prompts)}")
            ids = encode_prompt(loaded, prompt.text, None)
            request = speculator.default_request(ids, max_new_tokens=config.max_new_tokens)
            notes = {"question_id": prompt.question_id, "kind": prompt.category}
            speculator.generate(request, trace=partial(_keep, lines, notes))
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _keep(lines: list[str], notes: Mapping[str, Any], step: Mapping[str, Any]) -> None:
    """Add a step's line, with the notes if it begins a request."""
    kept = {key: step[key] for key in KEPT if key in step}
    if "request" in kept:
        kept["request"] = {**kept["request"], **notes}
    lines.append(json.dumps(kept, separators=(",", ":"), allow_nan=False))


def main(argv: Sequence[str] | None = None) -> int:
    """Record; 0 when it ended well."""
    given = sys.argv[1:] if argv is None else list(argv)
    parser = argparse.ArgumentParser(prog="python -P -m flashspec.bench.record", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the files go")
    for field in attrs.fields(Config):
        kind = str if field.name in ("target", "dtype") else int
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=field.default)
    arguments = vars(parser.parse_args(given))
    folder = arguments.pop("folder")
    if not folder.is_dir():
        parser.error(f"{folder} is no folder; make it first")
    record(Config(**arguments), folder, lambda stage: None)
    about = json.dumps(header(" ".join(["python -P -m flashspec.bench.record", *given])), indent=2)
    (folder / "header.json").write_text(about + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
