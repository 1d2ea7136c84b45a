"""How often coupled samplers of target and draft agree: the numbers of decision 0005. NumPy only, about a minute.

python docs/decisions/0005-no-gumbel2.py
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
VOCABULARY, TILE, ROWS, SEED, CHECKS = 32_768, 512, 20, 20_261_129, 10_000
FAMILIES = {
    "normal 5": (5.0, 0.0, 0.3),
    "normal 5, far draft": (5.0, 0.0, 1.0),
    "normal 3": (3.0, 0.0, 0.5),
    "normal 1": (1.0, 0.0, 0.3),
    "Zipf 1.5": (0.0, 1.5, 0.5),
    "Zipf 3": (0.0, 3.0, 0.5),
    "Zipf 3, far draft": (0.0, 3.0, 1.0),
}
"""Target logits ``a N(0, 1) - b ln(rank)``, ranks shuffled; the draft's add ``c N(0, 1)``: a, b, c."""


RULES = (
    *("token: 1 - TV", "Gumbel, flat", "Gumbel, two levels"),
    *("path, shared integer", "path, own integers", "path, greedy draft"),
)


def law(logits: F64) -> F64:
    """Softmax."""
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum(), np.float64)


def pair(family: str, generator: np.random.Generator) -> tuple[F64, F64]:
    """A target and a draft law."""
    spread, exponent, noise = FAMILIES[family]
    logits = spread * generator.standard_normal(VOCABULARY) - exponent * np.log(1 + generator.permutation(VOCABULARY))
    return law(logits), law(logits + noise * generator.standard_normal(VOCABULARY))


def gumbel_terms(p: F64, q: F64) -> F64:
    """P(both argmaxes of log-law + shared Gumbel noise are i) = 1 / sum_j max(p_j / p_i, q_j / q_i)."""
    order = np.argsort(p / q)
    p, q = p[order], q[order]
    below = np.cumsum(q) - q  # j of smaller p / q: their q_j / q_i is the larger one
    above = np.cumsum(p[::-1])[::-1]
    terms = np.empty_like(p)
    terms[order] = 1.0 / (below / q + above / p)
    return terms


def two_level(p: F64, q: F64) -> float:
    """A tile by its mass with shared noise, then a token inside it with noise of its own."""
    tiles_p, tiles_q = p.reshape(-1, TILE), q.reshape(-1, TILE)
    outer = gumbel_terms(tiles_p.sum(1), tiles_q.sum(1))
    inner = [gumbel_terms(a / a.sum(), b / b.sum()).sum() for a, b in zip(tiles_p, tiles_q, strict=True)]
    return float(outer @ np.array(inner))


def shared_uniform(p: F64, q: F64) -> float:
    """One uniform through both inverse CDFs: the overlap of the two intervals of each token."""
    a, b = np.cumsum(p), np.cumsum(q)
    low, high = np.maximum(a - p, b - q), np.minimum(a, b)
    return float(np.maximum(high - low, 0.0).sum())


def matches(p: F64, q: F64) -> list[float]:
    """Perplexity of p, then P(accepted) of one draft under each rule."""
    best = int(np.argmax(q))
    return [
        float(np.exp(-(p @ np.log(p)))),
        float(np.minimum(p, q).sum()),
        float(gumbel_terms(p, q).sum()),
        two_level(p, q),
        shared_uniform(p, q),
        float(p @ q),
        float(p[best]),
    ]


def simulated(p: F64, q: F64, generator: np.random.Generator) -> float:
    """Flat Gumbel by drawing the noise, as a check of the formula."""
    hits = 0
    for _ in range(CHECKS):
        noise = generator.gumbel(size=len(p))
        hits += int(np.argmax(np.log(p) + noise) == np.argmax(np.log(q) + noise))
    return hits / CHECKS


def main() -> None:
    """Print the table."""
    generator = np.random.default_rng(SEED)
    print("| family | perplexity | " + " | ".join(RULES) + " |")
    print("|---" * (len(RULES) + 2) + "|")
    for family in FAMILIES:
        rows = [matches(*pair(family, generator)) for _ in range(ROWS)]
        perplexity, *means = np.mean(rows, axis=0)
        print(f"| {family} | {perplexity:.1f} | " + " | ".join(f"{x:.3f}" for x in means) + " |")
    p, q = pair("normal 3", generator)
    formula, counted = gumbel_terms(p, q).sum(), simulated(p, q, generator)
    print(f"check, one row of normal 3: formula {formula:.3f}, {CHECKS} draws {counted:.3f}")
    print(f"noises per row: flat {VOCABULARY}, two levels {VOCABULARY // TILE + TILE}, token and path 1")


if __name__ == "__main__":
    main()
