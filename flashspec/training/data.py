"""Training sequences: the target's own text, written once and kept beside the draft."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import torch

from flashspec.errors import ContractError
from flashspec.hf.heads.files import write_whole
from flashspec.hf.heads.identity import fingerprint
from flashspec.hf.loading import Loaded, encode_prompt
from flashspec.training.options import Options
from flashspec.training.prompts import Seed, seeds

Progress = Callable[[str, int, int], None]
"""Told the stage, how much is done, and of how much."""

PART = {"cpu": 64, "cuda": 4096}
"""By device: sequences that are written together and kept together."""
HELD_OUT = 10
"""Every tenth beginning of a kind is for evaluation, with all that was written from it."""


@attrs.frozen(eq=False)
class Corpus:
    """Sequences of one length."""

    tokens: npt.NDArray[np.int32]
    """``[N, T]``, filled up with -1."""
    first: npt.NDArray[np.int32]
    """``[N]``: where the target's own text begins; what stands before is read and not learned."""
    kinds: tuple[str, ...]
    """One a sequence."""

    def split(self) -> tuple[Corpus, Corpus]:
        """For learning and for evaluation."""
        held = dict[tuple[str, bytes], bool]()
        seen = dict[str, int]()
        whole = [
            (kind, row[:first].tobytes()) for kind, row, first in zip(self.kinds, self.tokens, self.first, strict=True)
        ]
        for kind, beginning in whole:
            if (kind, beginning) not in held:
                seen[kind] = seen.get(kind, 0) + 1
                held[kind, beginning] = seen[kind] % HELD_OUT == 0
        apart = np.array([held[key] for key in whole], bool)
        return self.of(~apart), self.of(apart)

    def of(self, which: npt.NDArray[Any]) -> Corpus:
        """Some of the sequences, by mask or by number."""
        chosen = np.flatnonzero(which) if which.dtype == bool else which
        return Corpus(self.tokens[chosen], self.first[chosen], tuple(self.kinds[int(n)] for n in chosen))

    def frequent(self, count: int, vocab: int) -> npt.NDArray[np.int64]:
        """The ``count`` most frequent tokens that were written, ascending; all if ``count`` is 0 or too large."""
        written = np.arange(self.tokens.shape[1])[None] >= self.first[:, None]
        counts = np.bincount(self.tokens[written & (self.tokens >= 0)], minlength=vocab)
        size = count if 0 < count < vocab else vocab
        return np.sort(np.argsort(-counts, kind="stable")[:size]).astype(np.int64)


def gather(options: Options, target: Loaded, progress: Progress) -> Corpus:
    """The corpus of a run; parts that are there already are read, so that a stopped run goes on.

    Raises:
        ContractError: a file that cannot be used.
        OSError: the disk is full.
    """
    beginnings = _beginnings(options)
    folder = Path(options.text or options.out) / f"data-{_key(options, target)}"
    folder.mkdir(parents=True, exist_ok=True)
    parts, size = [], PART[target.device]
    for start in range(0, len(beginnings), size):
        progress("writing text", start, len(beginnings))
        parts.append(_part(options, target, beginnings[start : start + size], folder / f"{start:06d}.npz", start))
    return Corpus(
        np.concatenate([p.tokens for p in parts]),
        np.concatenate([p.first for p in parts]),
        tuple(kind for p in parts for kind in p.kinds),
    )


def _key(options: Options, target: Loaded) -> str:
    """Of all that the text depends on, so that no other run's text is taken for this one's."""
    own = {name: getattr(options, name) for name in ("data", "length", "temperature", "seed")}
    facts = {**own, "target": fingerprint(target.model), "dtype": target.dtype, "part": PART[target.device]}
    facts["sequences"] = options.sequences
    if not options.data.startswith("self"):
        facts["file"] = Path(options.data).read_text(encoding="utf-8")
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


def _beginnings(options: Options) -> list[Seed]:
    if options.data.startswith("self"):
        return seeds(options.data, options.sequences, options.seed)
    found = []
    try:
        lines = Path(options.data).read_text(encoding="utf-8").splitlines()
        for line in filter(str.strip, lines):
            record = json.loads(line)
            kind = str(record.get("category", "text"))
            found.append(Seed(kind, record["prompt"]) if "prompt" in record else Seed(kind, record["text"], False))
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise ContractError(
            f"data {options.data} cannot be used ({type(error).__name__}: {error}); allowed: self, self:code, "
            'self:prose, or lines of {"prompt": ...} or {"text": ...}, "category" if you like'
        ) from error
    return found[: options.sequences]


def _part(options: Options, target: Loaded, beginnings: Sequence[Seed], path: Path, start: int) -> Corpus:
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as kept:
            return Corpus(kept["tokens"], kept["first"], tuple(str(kind) for kind in kept["kinds"]))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        pass  # not there, or cut short: it is written now
    made = write(target, beginnings, options.length, options.temperature, options.seed + start)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, tokens=made.tokens, first=made.first, kinds=np.array(made.kinds))
    write_whole(path, buffer.getvalue())
    return made


@torch.inference_mode()
def write(target: Loaded, beginnings: Sequence[Seed], length: int, temperature: float, seed: int) -> Corpus:
    """Let the target go on from each beginning until the sequence has ``length`` tokens or ends."""
    prompts = [encode_prompt(target, s.text, None if s.chat else False) for s in beginnings]
    prompts = [p[: length // 2] for p in prompts]
    widest = max(len(p) for p in prompts)
    pad = target.tokenizer.pad_token_id if target.tokenizer.pad_token_id is not None else 0
    ids = torch.full((len(prompts), widest), pad)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, widest - len(prompt) :], mask[row, widest - len(prompt) :] = torch.tensor(prompt), 1
    torch.manual_seed(seed)
    how = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
    device = target.model.device
    out = target.model.generate(
        ids.to(device), attention_mask=mask.to(device), max_new_tokens=length - min(map(len, prompts)),
        pad_token_id=pad, **how,
    )  # fmt: skip
    tokens = np.full((len(prompts), length), -1, np.int32)
    ends = _end_ids(target)
    for row, prompt in enumerate(prompts):
        text = out[row, widest - len(prompt) :].tolist()[:length]
        stop = next((n for n, t in enumerate(text) if n >= len(prompt) and t in ends), len(text) - 1)
        tokens[row, : stop + 1] = text[: stop + 1]
    return Corpus(tokens, np.array([len(p) for p in prompts], np.int32), tuple(s.kind for s in beginnings))


def _end_ids(target: Loaded) -> set[int]:
    configured = target.model.generation_config.eos_token_id
    return set(configured if isinstance(configured, list) else [] if configured is None else [configured])
