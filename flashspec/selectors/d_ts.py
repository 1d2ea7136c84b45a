"""Discounted Thompson sampling (Raj and Kalyani 2017): Beta laws whose counts fade towards Beta(1, 1).

Every reward multiplies all arms' successes and failures by the rate, then counts for the arm played.
"""

from __future__ import annotations

from flashspec.selectors import choice, discounted, flat, sums, thompson
from flashspec.selectors.types import Selector


def d_ts(*, rate: float = 0.99) -> Selector:
    """The selector; ``rate`` in (0, 1] per reward. Raises ContractError for another one."""
    config = {"rate": discounted.check_rate(rate)}
    return flat.selector("d_ts", sums.init, thompson.scores, discounted.reward(rate), choice.unknown, config)
