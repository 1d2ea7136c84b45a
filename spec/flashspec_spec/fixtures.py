"""Small models, as numbers of four digits at most, that tell right rules from wrong ones.

A model of given rows: ``p_rows[prefix]`` and ``q_rows[prefix]`` are laws in decimal text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from flashspec_spec.proposals import DenseRow
from flashspec_spec.theorems import Law, Model, Tokens, normalised

Rows = Mapping[Tokens, str]

V3_P: Rows = {
    (): ".5 .3 .2",
    (0,): ".1 .6 .3",
    (1,): ".7 .2 .1",
    (2,): ".25 .25 .5",
    (0, 0): ".2 .3 .5",
    (0, 1): ".6 .3 .1",
    (0, 2): ".1 .1 .8",
    (1, 0): ".4 .4 .2",
    (1, 1): ".05 .9 .05",
    (1, 2): ".3 .3 .4",
    (2, 0): ".7 .1 .2",
    (2, 1): ".2 .6 .2",
    (2, 2): ".5 .25 .25",
}
V3_Q: Rows = {(): ".2 .5 .3", (0,): ".4 .3 .3", (1,): ".3 .3 .4", (2,): ".1 .6 .3"}

E_P: Rows = {
    (): ".3266 .1794 .3083 .1857",
    (0,): ".2227 .2622 .4462 .0689",
    (1,): ".0641 .0833 .5784 .2742",
    (2,): ".1147 .0944 .3835 .4074",
    (3,): ".3618 .4165 .1953 .0264",
    (0, 0): ".5881 .1518 .0816 .1785",
    (0, 1): ".0511 .0446 .5500 .3543",
    (0, 2): ".4835 .1191 .1289 .2685",
    (0, 3): ".2812 .0296 .1648 .5244",
    (1, 0): ".4616 .2226 .2804 .0354",
    (1, 1): ".1452 .3223 .3692 .1633",
    (1, 2): ".0261 .3288 .3222 .3229",
    (1, 3): ".1121 .4715 .1978 .2186",
    (2, 0): ".0900 .2342 .6187 .0571",
    (2, 1): ".0349 .1642 .3317 .4692",
    (2, 2): ".1946 .3443 .2089 .2522",
    (2, 3): ".0490 .5437 .2046 .2027",
    (3, 0): ".6362 .0724 .2560 .0354",
    (3, 1): ".7035 .0221 .2330 .0414",
    (3, 2): ".0522 .3071 .4991 .1416",
    (3, 3): ".2753 .2096 .1027 .4124",
}
E_Q: Rows = {
    (): ".2235 .3155 .1832 .2778",
    (0,): ".0484 .5073 .0199 .4244",
    (1,): ".2182 .4579 .0211 .3028",
    (2,): ".0515 .0910 .6238 .2337",
    (3,): ".0233 .2747 .1134 .5886",
}

V4_P, V4_Q = ".35 .35 .25 .05", ".30 .02 .03 .65"
"""One row with several tokens in the residual."""


def law_of(text: str) -> Law:
    """A law from decimals; renormalised, as four digits may not sum to 1.

    >>> law_of(".25 .75")
    [Fraction(1, 4), Fraction(3, 4)]
    """
    return normalised([Fraction(number) for number in text.split()])


def honest(vocabulary: int, target: Callable[[Tokens], Law], draft: Callable[[Tokens], Law]) -> Model:
    """A model whose drafts are drawn from exactly the dense law that is handed over."""
    return Model(vocabulary, target, draft, lambda prefix: DenseRow(tuple(draft(prefix))))


def of_rows(p_rows: Rows, q_rows: Rows) -> Model:
    """The honest model of listed rows, one for each prefix."""
    return honest(len(law_of(p_rows[()])), lambda x: law_of(p_rows[x]), lambda x: law_of(q_rows[x]))


def of_one_row(p: str, q: str) -> Model:
    """The honest model with the same two laws at every position."""
    return honest(len(law_of(p)), lambda _: law_of(p), lambda _: law_of(q))


def fixture_v3() -> Model:
    """V = 3, for gamma up to 2; every prefix has laws of its own."""
    return of_rows(V3_P, V3_Q)


def fixture_e() -> Model:
    """V = 4, for gamma up to 2; every prefix has laws of its own. It sees every wrong rule listed so far."""
    return of_rows(E_P, E_Q)


def fixture_h() -> Model:
    """V = 3, greedy: target and draft are point masses that rarely agree."""

    def at(token: int) -> Law:
        return [Fraction(v == token % 3) for v in range(3)]

    return honest(3, lambda x: at(2 * sum(x) + len(x)), lambda x: at(sum(x) + 1))
