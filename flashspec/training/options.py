"""What a training run is asked to do."""

from __future__ import annotations

from typing import Any

import attrs

from flashspec.errors import ContractError
from flashspec.hf.heads.files import STORED
from flashspec.hf.heads.kinds import KINDS


def _field(default: Any, text: str) -> Any:
    return attrs.field(default=default, metadata={"help": text})


@attrs.frozen
class Options:
    """Every option of ``flashspec train-draft``.

    Raises:
        ContractError: a value that no run could use.
    """

    target: str = _field("smollm2-135m", "model to draft for: a preset, a folder or a hub id")
    kind: str = _field("eagle", f"what to train: {', '.join(KINDS)}")
    data: str = _field("self", "self, self:code, self:prose, or a JSON-lines file with prompts or texts")
    out: str = _field("", "folder for the draft, its card and its checkpoints")
    text: str = _field("", "folder of the text, to be shared by several drafts (default: in out)")
    steps: int = _field(2000, "steps of the optimiser")
    batch: int = _field(16, "sequences a step")
    length: int = _field(256, "tokens a sequence")
    sequences: int = _field(2000, "sequences that the target writes")
    temperature: float = _field(1.0, "at which the target writes")
    rate: float = _field(1e-3, "largest learning rate")
    vocab: int = _field(8192, "draft vocabulary: the most frequent tokens of the data; 0: all")
    taps: str = _field("last", "hidden states that an EAGLE head reads: last, fused, or numbers as 2,15,27")
    width: int = _field(0, "inner width of the EAGLE layer's MLP (0: the target's); hidden size of a small model")
    layers: int = _field(0, "layers before a trained exit, or of a small model (0: a quarter of the target's; 4)")
    heads: int = _field(4, "Medusa heads, or steps that an EAGLE head is unrolled in training")
    store: str = _field("bfloat16", f"how weights are stored: {', '.join(STORED)}")
    every: int = _field(100, "steps from one checkpoint and evaluation to the next")
    seed: int = _field(0, "of the weights, the data and their order")
    dtype: str = _field("auto", "of the target: auto, bfloat16, float16 or float32")
    device: str = _field("auto", "auto, cpu or cuda")
    threads: int | None = _field(None, "CPU threads (default: torch's own choice)")
    licence: str = _field("", "licence of the data, for the card (needed with a file)")

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


def options() -> list[tuple[str, type, Any, str]]:
    """Name, type, default and help of every option."""
    kinds: dict[str, type] = {"steps": int, "threads": int}
    return [
        (f.name, kinds.get(f.name, type(f.default)), f.default, str(f.metadata["help"])) for f in attrs.fields(Options)
    ]
