"""``flashspec bench synthetic``: the graph loop at a given acceptance, on random weights of a published shape.

Never exact: drafts are accepted by coins of a fixed probability, whatever the target says, and the text means
nothing. What is real is the work: every step drafts, reads, verifies and commits as it would with real weights.
It tells how fast the loop is at that acceptance, not what acceptance a model reaches.

Under ``torchrun`` each process holds a part of the weights on a GPU of its own (``flashspec.hf.ranks``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from flashspec.bench.header import header
from flashspec.errors import ContractError
from flashspec.options import option

LABEL = "synthetic acceptance, random weights: not exact"
SHAPES: Mapping[str, Mapping[str, int]] = {
    "smollm2-135m": {
        "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
        "num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": 1,
    },
    "tinyllama-1.1b": {
        "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32,
        "num_key_value_heads": 4, "vocab_size": 32000, "tie_word_embeddings": 0,
    },
    "llama-3-8b": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": 0,
    },
    "llama-3-70b": {
        "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
        "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": 0,
    },
    "tiny": {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 96, "tie_word_embeddings": 0,
    },
}  # fmt: skip
"""Llama configurations; ``tiny`` is for trying the command out."""


@attrs.frozen
class Config:
    """Every option of the command.

    Raises:
        ContractError: a value that no run could use.
    """

    shape: str = option("smollm2-135m", f"shape of the random target: {', '.join(SHAPES)}")
    batches: tuple[int, ...] = option((1,), "requests at a time")
    acceptance: float = option(0.75, "probability that a draft is accepted if those before it were")
    draft_len: int = option(4, "drafted tokens a step")
    prompt_len: int = option(128, "tokens of each prompt")
    steps: int = option(100, "steps that are timed; plain decoding makes as many tokens")
    repeats: int = option(3, "timed runs of each system, interleaved")
    temperature: float = option(0.8, "0 is greedy")
    compile: str = option("yes", "yes: compiled steps in graphs; no: graphs of the model's own kernels")
    dtype: str = option("bfloat16", "bfloat16, float16 or float32")
    device: str = option("cuda", "cuda or cpu")
    backend: str = option("triton", "verifier by name or module:attr")
    command: str = "flashspec bench synthetic"

    def __attrs_post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise ContractError(f"shape is {self.shape!r}; allowed: {', '.join(SHAPES)}")
        if not 0 <= self.acceptance <= 1:
            raise ContractError(f"acceptance is {self.acceptance}; allowed: a number in [0, 1]")
        if self.compile not in ("yes", "no"):
            raise ContractError(f"compile is {self.compile!r}; allowed: yes, no")
        counts = {"draft_len": self.draft_len, "prompt_len": self.prompt_len, "steps": self.steps}
        counts |= {"repeats": self.repeats, "batches": min(self.batches, default=0)}
        for name, value in counts.items():
            if value < 1:
                raise ContractError(f"{name} is {value}; allowed: integers >= 1")

    @property
    def emitted(self) -> float:
        """Tokens that a step is expected to emit."""
        return sum(self.acceptance**n for n in range(self.draft_len + 1))


def run(config: Config, progress: Callable[[str], None] = lambda stage: None) -> dict[str, Any]:
    """Make the weights, decode at every batch size; the report ``{"header": ..., "rows": [...]}``.

    Raises:
        UnknownName, BackendUnavailable: the backend.
    """
    from flashspec.bench.synthetic_run import measure, random_model
    from flashspec.hf.ranks import joined

    head = header(config.command)
    with joined(config.device) as team:
        progress("making random weights")
        model = random_model(SHAPES[config.shape], config, team)
        begin, rows = time.perf_counter(), []
        for batch in config.batches:
            progress(f"batch {batch}")
            row = measure(model, batch, config, begin)
            rows.append({"system": LABEL, "shape": config.shape, "ranks": 1 if team is None else team.size, **row})
    told = {f.name: getattr(config, f.name) for f in attrs.fields(Config) if f.name not in ("command", "batches")}
    return {"header": head | told | {"label": LABEL, "expected_tokens_per_step": config.emitted}, "rows": rows}


COLUMNS: Sequence[tuple[str, str]] = (
    ("batch", "d"), ("tokens_per_second", ".0f"), ("plain_tokens_per_second", ".0f"), ("ratio", ".2f"),
    ("tokens_per_step", ".2f"), ("step_ms", ".3f"), ("target_ms", ".3f"), ("draft_ms", ".3f"), ("verify_ms", ".3f"),
    ("overhead", ".1%"), ("plain_step_ms", ".3f"), ("first_token_seconds", ".2f"), ("warm_first_token_seconds", ".3f"),
    ("cache_mib", ".0f"),
)  # fmt: skip


def plain(report: Mapping[str, Any]) -> str:
    """The report as lines of text."""
    lines = [f"{report['header']['shape']}: {LABEL}, acceptance {report['header']['acceptance']}"]
    for row in report["rows"]:
        lines.append("  ".join(f"{name} {format(row[name], form)}" for name, form in COLUMNS))
    return "\n".join(lines)
