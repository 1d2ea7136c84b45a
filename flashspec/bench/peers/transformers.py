"""``_speculative_sampling`` of transformers, which judges the drafts of assisted generation, one request a call."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import attrs
import numpy as np

from flashspec.bench.case import Case
from flashspec.bench.contender import PEER, Prepared
from flashspec.bench.inputs import Inputs
from flashspec.bench.peers import known, tensors

MODULE = "transformers.generation.utils"
VERSIONS = ("5.16", "5.17", "5.18", "5.19", "5.20", "5.21", "5.22", "5.23")
BASE = ("candidate_input_ids", "candidate_logits", "candidate_length", "new_logits")
OLDER = (*BASE, "is_done_candidate", "assistant_ensemble_weight")
NEWER = (*BASE, "assistant_ensemble_weight")


@attrs.frozen
class Transformers:
    """The float32 copy of the target's logits and the temperature count, as its caller needs them."""

    judge: Any
    takes_done: bool
    version: str
    name: str = "transformers"
    kind: str = PEER
    capturable: bool = False
    """It asks the device how many drafts were accepted."""
    most_batch: int | None = 1

    def refusal(self, case: Case, device: str) -> str | None:
        """Sampled drafts of one request."""
        return tensors.outside(case, ("token",), ("dense",), ())

    def prepare(self, inputs: Inputs) -> Prepared:
        """Draft logits are processed when they are drafted from, so they are given processed."""
        target, near = tensors.rows(inputs.target, inputs), tensors.rows(inputs.near, inputs)
        made, heat, count = tensors.drafted(inputs, near, "none"), inputs.temperature, inputs.case.draft_len
        offered, done = near.float() / heat, (False,) if self.takes_done else ()

        def call() -> Any:
            return self.judge(made.ids, offered, count, target.float() / heat, *done)

        def tokens(found: Any) -> Any:
            row = found[0][0].cpu().numpy()
            return np.pad(row, (0, count + 1 - len(row)), constant_values=-1)[None]

        return Prepared(call, tokens)


def peer() -> Transformers:
    """The installed one."""
    version = known.version(("transformers",), VERSIONS)
    judge = vars(import_module(MODULE))["_speculative_sampling"]
    return Transformers(judge, known.parameters(judge, OLDER, NEWER) == OLDER, version)
