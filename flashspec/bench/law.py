"""Whether a peer's tokens follow the target's law, before it is timed: chi-square at a small vocabulary.

Every request judges the same rows, with drafts of its own. An output is completed to ``K + 1`` tokens with
draws from the rows that it did not reach, as decoding would go on, so that the law of every place is the
target's row whatever the rule is; each place is tested. The level is far below what a bad day gives, and
seeds are fixed: a peer that fails is wrong, a small error may pass.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.bench.case import Case
from flashspec.bench.contender import Contender
from flashspec.bench.inputs import Inputs

FOLLOWS, DIFFERS, UNCHECKED = "follows", "differs", "unchecked"
VOCAB, DRAFTS = 61, 2
REQUESTS, CALLS = 16_384, 2_048
"""Replications, and of a peer that takes one request a call."""
LEVEL = 1e-4
"""Probability that one place of a right peer fails."""
LEAST = 5.0
"""Expected count of a bin; rarer tokens share one."""
SPREAD, NOISE = 1.5, 0.7


@attrs.frozen
class Law:
    """The verdict on one kind of call."""

    name: str
    method: str
    proposal: str
    filters: str
    verdict: str
    """``follows``, ``differs`` or ``unchecked``."""
    p_values: tuple[float, ...]
    """Of each place; 0 for a token that is impossible."""
    replications: int
    level: float = LEVEL
    reason: str = ""


def check(contender: Contender, case: Case, temperature: float, device: str) -> Law:
    """Judge the calls of ``case``'s method, proposal, filters and dtype at a small vocabulary."""
    batch = contender.most_batch or REQUESTS
    drafts = 0 if case.method == "sample" else DRAFTS
    small = attrs.evolve(case, batch=batch, draft_len=drafts, vocab=VOCAB, acceptance=None)
    kind = (contender.name, case.method, case.proposal, case.filters)
    rounds = 1 if batch == REQUESTS else CALLS
    try:
        tokens = np.concatenate([_tokens(contender, small, temperature, device, seed) for seed in range(rounds)])
    except Exception as error:  # somebody's function may raise anything, and that is its verdict
        return Law(*kind, DIFFERS, (), 0, reason=f"raises {type(error).__name__}: {error}")
    laws = target_laws(small, temperature, device)
    p_values = tuple(_places(tokens, laws))
    verdict = FOLLOWS if min(p_values) >= LEVEL else DIFFERS
    return Law(*kind, verdict, p_values, len(tokens))


def inputs(case: Case, temperature: float, device: str, seed: int) -> Inputs:
    """The same rows for every request and every seed."""
    rng = np.random.default_rng(1)
    target = (rng.standard_normal((1, case.rows, case.vocab)) * SPREAD).astype(np.float32)
    near = (target[:, :-1] + rng.standard_normal((1, case.draft_len, case.vocab)) * NOISE).astype(np.float32)
    rows: list[Any] = [np.repeat(values, case.batch, 0) for values in (target, near)]
    if device == "cuda":
        import torch

        rows = [torch.as_tensor(values).to(device, getattr(torch, case.dtype)) for values in rows]
    return Inputs(case, temperature, device, seed, *rows)


def target_laws(case: Case, temperature: float, device: str) -> npt.NDArray[np.float64]:
    """``[K + 1, V]``: the law of every row, from logits rounded to the case's dtype, in float64."""
    import torch

    from flashspec.bench.peers.tensors import cut

    given = inputs(attrs.evolve(case, batch=1), temperature, "cpu", 0).target[0]
    wide = torch.as_tensor(given).to(getattr(torch, case.dtype)).double() / temperature
    found: npt.NDArray[np.float64] = cut(wide, case.filters).softmax(-1).numpy()
    return found


def _tokens(contender: Contender, case: Case, temperature: float, device: str, seed: int) -> Any:
    import torch

    torch.manual_seed(seed)
    prepared = contender.prepare(inputs(case, temperature, device, seed))
    return prepared.tokens(prepared.call())


def _places(tokens: npt.NDArray[np.int64], laws: npt.NDArray[np.float64]) -> list[float]:
    """The p-value of every place."""
    rng = np.random.default_rng(2)
    found = []
    for place, law in enumerate(laws):
        mine = tokens[:, place]
        absent = mine < 0 if place else np.zeros(len(mine), bool)
        filled = np.where(absent, rng.choice(len(law), len(mine), p=law / law.sum()), mine)
        found.append(p_value(filled, law))
    return found


def p_value(tokens: npt.NDArray[np.int64], law: npt.NDArray[np.float64]) -> float:
    """Chi-square of tokens against a law; 0 if one is outside the vocabulary or has no probability."""
    import torch

    if tokens.min() < 0 or tokens.max() >= len(law):
        return 0.0
    seen, due = np.bincount(tokens, minlength=len(law)).astype(np.float64), law * len(tokens)
    if bool(np.any(seen[law == 0] > 0)):
        return 0.0
    common = due >= LEAST
    seen, due = (np.append(x[common], x[~common].sum()) for x in (seen, due))
    seen, due = seen[due > 0], due[due > 0]
    if len(due) < 2:
        return 1.0
    statistic = float(((seen - due) ** 2 / due).sum())
    half = torch.tensor([(len(due) - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))
