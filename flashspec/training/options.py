"""What a training run is asked to do."""

from __future__ import annotations

from typing import Any

import attrs

from flashspec.errors import ContractError
from flashspec.hf.heads.files import STORED
from flashspec.hf.heads.kinds import KINDS
from flashspec.options import option


@attrs.frozen
class Options:
    """Every option of ``flashspec train-draft``.

    Raises:
        ContractError: a value that no run could use.
    """

    target: str = option("smollm2-135m", "model to draft for: a preset, a folder or a hub id")
    kind: str = option("eagle", f"what to train: {', '.join(KINDS)}")
    data: str = option("self", "self, self:code, self:prose, or a JSON-lines file with prompts or texts")
    out: str = option("", "folder for the draft, its card and its checkpoints")
    text: str = option("", "folder of the text, to be shared by several drafts (default: in out)")
    steps: int = option(2000, "steps of the optimiser")
    batch: int = option(16, "sequences a step")
    length: int = option(256, "tokens a sequence")
    sequences: int = option(2000, "sequences that the target writes")
    temperature: float = option(1.0, "at which the target writes")
    rate: float = option(1e-3, "largest learning rate")
    vocab: int = option(8192, "draft vocabulary: the most frequent tokens of the data; 0: all")
    taps: str = option("last", "hidden states that an EAGLE head reads: last, fused, or numbers as 2,15,27")
    width: int = option(0, "inner width of the EAGLE layer's MLP (0: the target's); hidden size of a small model")
    layers: int = option(0, "layers before a trained exit, or of a small model (0: a quarter of the target's; 4)")
    heads: int = option(4, "Medusa heads, or steps that an EAGLE head is unrolled in training")
    store: str = option("bfloat16", f"how weights are stored: {', '.join(STORED)}")
    every: int = option(100, "steps from one checkpoint and evaluation to the next")
    seed: int = option(0, "of the weights, the data and their order")
    dtype: str = option("auto", "of the target: auto, bfloat16, float16 or float32")
    device: str = option("auto", "auto, cpu or cuda")
    threads: int | None = option(None, "CPU threads (default: torch's own choice)")
    licence: str = option("", "licence of the data, for the card (needed with a file)")

    def __attrs_post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ContractError(f"kind is {self.kind!r}; allowed: {', '.join(KINDS)}")
        if self.store not in STORED:
            raise ContractError(f"store is {self.store!r}; allowed: {', '.join(STORED)}")
        if not self.out:
            raise ContractError("out is missing; name the folder that the draft is written to")
        for name, least in (("steps", 1), ("batch", 1), ("length", 16), ("sequences", 10), ("heads", 1), ("every", 1)):
            if getattr(self, name) < least:
                raise ContractError(f"{name} is {getattr(self, name)}; allowed: an integer >= {least}")
        for name in ("vocab", "width", "layers", "seed"):
            if getattr(self, name) < 0:
                raise ContractError(f"{name} is {getattr(self, name)}; allowed: an integer >= 0")
        if not 0 <= self.temperature < float("inf") or not 0 < self.rate < float("inf"):
            raise ContractError(
                f"temperature is {self.temperature}, rate {self.rate}; allowed: finite, at least 0 and above 0"
            )
        if not self.data.startswith("self") and not self.licence:
            raise ContractError(f"data is the file {self.data}; name its licence with --licence, for the card")

    @property
    def facts(self) -> dict[str, Any]:
        """What a checkpoint must agree on to be gone on from: all but where and how often."""
        left_out = ("out", "text", "every", "device", "threads", "store", "licence")
        return {k: v for k, v in attrs.asdict(self).items() if k not in left_out}
