"""The methods: each says how many drafts are accepted and which token follows."""

from __future__ import annotations

import attrs
from flashspec.contract import Status

from flashspec_arrayapi._call import Call, reached
from flashspec_arrayapi._draw import choose
from flashspec_arrayapi._namespace import Array, at, bits, pick, xp


@attrs.frozen(eq=False)
class Outcome:
    """``[B]`` each: accepted drafts, the token after them, and status bits but for that of its row."""

    accepted: Array
    token: Array
    status: Array


def _ahead(flags: Array, places: Array) -> Array:
    """``flags[b, places[b]]`` of ``[B, K]``, False at place K."""
    none = xp.zeros((flags.shape[0], 1), dtype=xp.bool)
    return at(xp.concat([flags, none], axis=1), places)


def _upto(flags: Array, places: Array) -> Array:
    """Whether any of the first ``places[b]`` of ``flags [B, K]`` is true."""
    return xp.any(flags & (xp.arange(flags.shape[1], dtype=xp.int64) < places[:, None]), axis=1)


def _first_rows(call: Call, table: Array) -> Array:
    return table[:, : call.drafts.shape[1]]


def by_greedy(call: Call) -> Outcome:
    """Accept drafts while they are the argmax."""
    # implements: GRD-1
    best = call.target.cut_id
    accepted = reached(call, _first_rows(call, best) == call.drafts)
    return Outcome(accepted, at(best, accepted), _wild(call, accepted))


def by_path(call: Call) -> Outcome:
    """Draw a token from each row and accept drafts while they are equal to it."""
    # implements: PTH-1, PTH-2
    drawn = choose(call.target.weights, call.numbers.path)
    accepted = reached(call, _first_rows(call, drawn) == call.drafts)
    return Outcome(accepted, at(drawn, accepted), _wild(call, accepted))


def by_token(call: Call) -> Outcome:
    """Judge each draft by itself."""
    # implements: ACC-1, ACC-2, ACC-3, BON-1, BON-2
    coins = xp.ones_like(call.log_p) if call.numbers.coin is None else call.numbers.coin
    accepted = reached(call, xp.log(coins) + call.proposed.log_q < call.log_p)
    lawful = at(call.target.lawful, accepted)
    rejected = _ahead(call.judged, accepted) & lawful
    one = xp.ones(accepted.shape, dtype=xp.float64)
    token, status = _next(call, accepted, rejected, one)
    # The place of a rejection was judged too.
    read = accepted + xp.astype(rejected, xp.int64)
    invalid = bits(_upto(call.proposed.invalid, read), Status.INVALID_PROPOSAL)
    return Outcome(accepted, token, status | invalid | _wild(call, accepted))


def by_block(call: Call) -> Outcome:
    """Accept the longest prefix that the coins allow, judged from the end of the chain."""
    # implements: BLK-1, BLK-2, BLK-3
    length = reached(call, call.judged)
    prefix, passed = _prefixes(call, length)
    longest = call.drafts.shape[1]
    counts = xp.arange(1, longest + 1, dtype=xp.int64)
    some = xp.where(passed & (counts <= length[:, None]), counts, 0)
    accepted = xp.max(xp.concat([xp.zeros((some.shape[0], 1), dtype=xp.int64), some], axis=1), axis=1)
    token, status = _next(call, accepted, accepted < length, at(prefix, accepted))
    invalid = bits(_upto(call.proposed.invalid, length), Status.INVALID_PROPOSAL)
    return Outcome(accepted, token, status | invalid | _wild(call, length))


def _prefixes(call: Call, length: Array) -> tuple[Array, Array]:
    """The prefix probabilities ``P [B, K + 1]``, and ``[B, K]`` whether a prefix of 1, ..., K drafts passes."""
    batch, longest = call.drafts.shape
    logs = [xp.zeros((batch,), dtype=xp.float64)]
    passed = []
    for i in range(1, longest + 1):
        ratio = call.log_p[:, i - 1] - call.proposed.log_q[:, i - 1]
        logs.append(xp.minimum(logs[-1] + ratio, xp.zeros_like(ratio)))
        passed.append(_passes(call, i, xp.exp(logs[-1]), i == length))
    none = xp.zeros((batch, 0), dtype=xp.bool)
    return xp.exp(xp.stack(logs, axis=1)), xp.stack(passed, axis=1) if passed else none


def _passes(call: Call, i: int, prefix: Array, whole: Array) -> Array:
    """Whether a prefix of ``i`` drafts of probability ``prefix [B]`` passes; ``whole``: it is the chain."""
    coin = xp.ones_like(prefix) if call.numbers.coin is None else call.numbers.coin[:, i - 1]
    end = coin < prefix
    if i == call.drafts.shape[1]:
        return end
    p = call.target.weights[:, i, :] / call.target.mass[:, i, None]
    rest = xp.sum(_left(p, call.proposed.q[:, i, :], prefix), axis=-1)
    inner = (prefix == 1.0) | (coin * (rest + 1.0 - prefix) < rest)
    return xp.where(whole, end, inner)


def _left(p: Array, q: Array, prefix: Array) -> Array:
    """The masses ``[P p - q]+`` of ``[B, V]``."""
    return xp.maximum(prefix[:, None] * p - q, xp.zeros_like(q))


def _next(call: Call, place: Array, rejected: Array, prefix: Array) -> tuple[Array, Array]:
    """The token of row ``place [B]``: from the residual where ``rejected``, else from the target."""
    # implements: RES-1, RES-2
    weights, mass = at(call.target.weights, place), at(call.target.mass, place)
    bonus = choose(weights, at(call.numbers.bonus, place))
    if call.drafts.shape[1] == 0:
        return bonus, xp.zeros_like(place)
    last = xp.asarray(call.drafts.shape[1] - 1)
    q = at(call.proposed.q, xp.minimum(place, last))
    uniform = at(call.numbers.residual, place)
    found = choose(_left(weights / mass[:, None], q, prefix), uniform)
    fallback = rejected & (found < 0)
    token = xp.where(rejected, xp.where(fallback, choose(weights, uniform), found), bonus)
    return token, bits(fallback, Status.RESIDUAL_FALLBACK)


def _wild(call: Call, place: Array) -> Array:
    """The status bit of a draft out of range that ended the chain at ``place``."""
    # implements: STS-4
    lawful = at(call.target.lawful, place)
    return bits(_ahead(call.wild, place) & lawful, Status.DRAFT_OUT_OF_RANGE)


METHODS = {"greedy": by_greedy, "token": by_token, "path": by_path, "block": by_block}


def judged(call: Call, method: str) -> Outcome:
    """The outcome of every request; those of temperature 0 are judged greedily under every method."""
    greedy = by_greedy(call)
    if method == "greedy":
        return greedy
    other = METHODS[method](call)

    def mix(a: Array, b: Array) -> Array:
        return xp.where(call.greedy, a, b)

    return Outcome(
        mix(greedy.accepted, other.accepted), mix(greedy.token, other.token), mix(greedy.status, other.status)
    )


def log_probabilities(call: Call, accepted: Array, token: Array) -> Array:
    """``[B, K + 1]``: of the drafts, and of ``token`` at place ``accepted``; 0 for greedy requests."""
    # implements: LGP-1
    places = xp.arange(call.drafts.shape[1] + 1, dtype=xp.int64)
    none = xp.zeros((token.shape[0], 1), dtype=xp.float64)
    drafts = xp.concat([call.log_p, none], axis=1)
    own = pick(at(call.target.logs, accepted), xp.where(token < 0, 0, token))
    found = xp.where(places < accepted[:, None], drafts, own[:, None])
    return xp.where(call.greedy[:, None], 0.0, found)
