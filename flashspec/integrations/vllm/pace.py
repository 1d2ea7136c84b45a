"""What a step costs, learned from the steps that are made: nobody lets a plugin time an engine beforehand.

Seconds of a step are taken as ``base + size * B + turn * [some request drafts] + each * T`` for ``B`` requests
with ``T`` draft tokens in all, by recursive least squares that forgets. A step far from its prediction (a prompt
was read, the machine was busy) counts no more than one at the edge of what is usual.
"""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

FORGET = 0.995
"""Weight of a step after the next one."""
EDGE = 2.0
"""Usual deviations beyond which a step counts as if it were there."""
TURN, EACH = 0.02, 0.02
"""Before anything was measured: what drafting, and each draft token, adds to a step, over that step."""


@attrs.frozen(eq=False)
class Pace:
    """The fit after some steps."""

    weights: npt.NDArray[np.float64]
    """``[4]``: base, size, turn, each; seconds."""
    spread: npt.NDArray[np.float64]
    """``[4, 4]``: how uncertain they are, over the noise of a step."""
    usual: float
    """Mean absolute deviation of late, in seconds."""

    @classmethod
    def begin(cls, seconds: float, batch: int) -> Pace:
        """After one step of ``batch`` requests without drafts."""
        weights = np.array([0.7 * seconds, 0.3 * seconds / batch, TURN * seconds, EACH * seconds])
        return cls(weights, np.diag([1.0, 0.3 / batch, 0.1, 0.02]) ** 2, 0.1 * seconds)

    def add(self, seconds: float, batch: int, drafted: int) -> Pace:
        """With one more step in which ``drafted`` tokens were judged."""
        x = np.array([1.0, batch, float(drafted > 0), drafted])
        off = seconds - float(x @ self.weights)
        kept = float(np.clip(off, -EDGE * self.usual, EDGE * self.usual))
        lean = self.spread @ x
        gain = lean / (FORGET + float(x @ lean))
        spread = (self.spread - np.outer(gain, lean)) / FORGET
        # Directions that no step tells of would grow without end.
        spread *= min(1.0, 2.0 / max(1e-9, float(np.trace(spread))))
        usual = 0.95 * self.usual + 0.05 * min(abs(off), 4.0 * self.usual)
        return Pace(self.weights + gain * kept, spread, usual)

    def plain(self, batch: int) -> float:
        """Seconds of a step of ``batch`` requests without drafts."""
        return max(1e-6, float(self.weights[0] + self.weights[1] * batch))

    def of(self, length: npt.NDArray[np.int64], batch: int, drafting: int) -> npt.NDArray[np.float64]:
        """Seconds that one of ``batch`` requests is charged for a draft of each ``length``, its share of the step
        included; ``drafting`` requests could draft and share what drafting costs as such."""
        turn, each = (max(0.0, float(w)) for w in self.weights[2:])
        share = np.where(length > 0, turn / max(1, drafting), 0.0)
        return np.asarray(self.plain(batch) / batch + share + each * length)
