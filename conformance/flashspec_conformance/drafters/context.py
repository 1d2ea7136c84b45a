"""A toy target on a CPU, from which anybody's factory can build a drafter without weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.contract import Array, Backend, Dense, Draw, Sample, Sampling, Uniforms
from flashspec.decoding.toy import TableLM
from flashspec_conformance.plain.backend import Plain

VOCAB = 7
DRAFT_MAX = 4


@attrs.frozen(eq=False)
class Watched:
    """A backend that tells ``heard`` what it is asked to draw with, and otherwise is the plain one."""

    heard: Callable[[Draw | Uniforms], None]
    plain: Plain = Plain()

    @property
    def name(self) -> str:
        """The plain backend's name."""
        return self.plain.name

    @property
    def capabilities(self) -> Any:
        """The plain backend's capabilities."""
        return self.plain.capabilities

    def asarray(self, values: npt.NDArray[Any], dtype: str, device: str = "cpu") -> Array:
        """As the plain backend."""
        return self.plain.asarray(values, dtype, device)

    def to_numpy(self, array: Array) -> npt.NDArray[Any]:
        """As the plain backend."""
        return self.plain.to_numpy(array)

    def sample(self, logits: Array, sampling: Sampling, randomness: Draw | Uniforms) -> Sample:
        """As the plain backend, after telling."""
        self.heard(randomness)
        return self.plain.sample(logits, sampling, randomness)

    def verify(self, *arguments: Any, **more: Any) -> Any:
        """As the plain backend."""
        return self.plain.verify(*arguments, **more)

    def concat(self, proposals: Any) -> Dense:
        """As the plain backend."""
        return self.plain.concat(proposals)


@attrs.frozen(eq=False)
class ToyContext:
    """What a factory of the suite gets: ``flashspec.hf.pool.PoolContext`` without a model to take layers from."""

    lm: TableLM
    """The target: ``VOCAB`` tokens, logits that depend on the last three tokens."""
    backend: Backend
    draft_max: int = DRAFT_MAX

    @property
    def target(self) -> Any:
        """There are no weights."""
        raise AttributeError(
            "the toy target has no weights; build the drafter over context.lm and context.backend, or over a model "
            "of your own with ids in [0, context.lm.vocab)"
        )


def toy(heard: Callable[[Draw | Uniforms], None] = lambda randomness: None) -> ToyContext:
    """The context; ``heard`` is told of every draw that its backend makes."""
    lm = TableLM.random(VOCAB, 11, order=3, scale=1.5, array=np.asarray)
    return ToyContext(lm, Watched(heard))
