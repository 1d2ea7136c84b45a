"""``flashspec bench hazards``: how often lookup drafts are right, by length of match and offset.

The target answers prompts greedily; at every position of every answer each lookup draft is compared
with the text that really followed. Offset j counts where all drafts before it were right. The
tables of ``flashspec.selectors.known`` come from this command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.bench.header import header
from flashspec.bench.prompts import load_prompts
from flashspec.contract import Sampling, Stream
from flashspec.drafts import Drafter, NGram, Suffix
from flashspec.errors import ContractError

OFFSETS = 16
CONTEXTS = 4
Counts = npt.NDArray[np.int64]
Progress = Callable[[str], None]
Text = tuple[Sequence[int], Sequence[int]]
"""Prompt and answer, as token ids."""


@attrs.frozen
class Config:
    """Every option of the command.

    Raises:
        ContractError: a value that no run could use.
    """

    prompts: str | None = None
    """JSON-lines file with question_id, category, turns; None is the benchmark's own set."""
    target: str = "smollm2-135m"
    every: int = 1
    """Take every n-th prompt of the file."""
    longest: int = 700
    """Leave out prompts of more tokens."""
    max_new_tokens: int = 160
    dtype: str = "auto"
    threads: int | None = None
    command: str = "flashspec bench hazards"

    def __attrs_post_init__(self) -> None:
        for name in ("every", "longest", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise ContractError(f"{name} is {getattr(self, name)}; allowed: an integer >= 1")


def count(drafter: Drafter, texts: Sequence[Text]) -> Counts:
    """``[2, CONTEXTS, OFFSETS]``: drafts that were right (0) and wrong (1) at each context and offset."""
    counts: Counts = np.zeros((2, CONTEXTS, OFFSETS), np.int64)
    unused = Sampling.of(1), Stream.of([0], [0])
    for prompt, answer in texts:
        state = drafter.start(prompt)
        for place, token in enumerate(answer):
            draft, _ = drafter.propose(state, OFFSETS, *unused)
            for offset, (drafted, real) in enumerate(zip(draft.tokens, answer[place:], strict=False)):
                counts[int(drafted != real), draft.context, offset] += 1
                if drafted != real:
                    break
            state = drafter.extend(state, [token])
    return counts


def rows(drafter: Drafter, texts: Sequence[Text]) -> list[dict[str, Any]]:
    """One row per context and offset that occurred."""
    right, wrong = count(drafter, texts)
    return [
        {
            "draft": drafter.name,
            "context": context,
            "offset": offset + 1,
            "drafts": int(right[context, offset] + wrong[context, offset]),
            "hazard": round(float(right[context, offset] / (right[context, offset] + wrong[context, offset])), 4),
        }
        for context in range(CONTEXTS)
        for offset in range(OFFSETS)
        if right[context, offset] + wrong[context, offset]
    ]


def answers(config: Config, progress: Progress) -> list[Text]:
    """Greedy answers of the target, each with its prompt."""
    from flashspec.hf import Speculator, load
    from flashspec.hf.loading import encode_prompt

    loaded = load(config.target, dtype=config.dtype, threads=config.threads, progress=progress)
    speculator = Speculator.build(loaded)
    texts: list[Text] = []
    chosen = load_prompts(config.prompts)[:: config.every]
    for done, prompt in enumerate(chosen):
        progress(f"answering {done + 1} of {len(chosen)}")
        ids = encode_prompt(loaded, prompt.turns[0], None)
        if len(ids) <= config.longest:
            request = speculator.default_request(ids, max_new_tokens=config.max_new_tokens)
            texts.append((ids, speculator.generate(request).token_ids))
    if not texts:
        raise ContractError(f"no prompt has at most {config.longest} tokens; raise --longest")
    return texts


def run(config: Config, progress: Progress) -> dict[str, Any]:
    """The report: header, how much text was judged, and the rows."""
    texts = answers(config, progress)
    found = [row for drafter in (NGram(), Suffix()) for row in rows(drafter, texts)]
    size = {"prompts": len(texts), "tokens": sum(len(answer) for _, answer in texts)}
    return {"header": header(config.command), **size, "rows": found}


def plain(report: dict[str, Any]) -> str:
    """A line per draft and context: hazards at offsets 1, 2, ..."""
    lines = [f"{report['prompts']} answers, {report['tokens']} tokens"]
    kinds = sorted({(row["draft"], row["context"]) for row in report["rows"]})
    for draft, context in kinds:
        mine = [row for row in report["rows"] if (row["draft"], row["context"]) == (draft, context)]
        hazards = " ".join(f"{row['hazard']:.2f}" for row in mine)
        lines.append(f"{draft:8} context {context} ({mine[0]['drafts']} drafts): {hazards}")
    return "\n".join(lines)
