"""A function under test: what it is called with and what it says of itself."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import attrs

from flashspec.errors import BackendUnavailable, ContractError

Call: TypeAlias = Callable[[Any, Any, Any, Any], tuple[Any, Any]]
SAMPLED, ONEHOT = "sampled", "onehot"
COINS, OWN, MODELS = "coins", "own", "models"
PROBABILITIES, LOGITS = "probabilities", "logits"


@attrs.frozen(eq=False)
class Function:
    """``call(p, q, drafts, coins) -> (tokens, n_accepted)`` for one request with V tokens and gamma drafts.

    - ``p``: ``[gamma + 1, V]``, the target's laws; row j judges draft j, the last row gives the bonus.
    - ``q``: ``[gamma, V]``, the laws that the drafts were drawn from, or None: drafts that were not sampled.
    - ``drafts``: ``[gamma]`` int64.
    - ``coins``: ``[gamma + 1]`` float64 in ``[0, 1)``, place j for draft j and the last for the last token;
      None for a function with randomness of its own.
    - returns the emitted tokens (accepted drafts, then one more) and how many drafts were accepted.
    """

    name: str
    call: Call
    randomness: str = COINS
    """``coins``: a pure function of its arguments; ``own``: it draws by itself; ``models``: it drafts by itself too,
    ``p`` and ``q`` are the levels of :class:`~flashspec_conformance.functions.laws.Laws`, the rest is None."""
    reseed: Callable[[int], None] | None = None
    """Seeds a function with randomness of its own."""
    kinds: frozenset[str] = frozenset({SAMPLED, ONEHOT})
    """Which proposals it takes: ``sampled`` (q given), ``onehot`` (q is None)."""
    rows: str = PROBABILITIES
    """``logits``: ``p`` and ``q`` are handed over as their natural logarithms."""
    dtype: str = "float64"
    """Of the rows that are handed over: ``float32`` or ``float64``."""
    padding: bool = False
    """Whether a draft of -1 means "no draft here"."""
    nonfinite: bool = False
    """Whether it promises to emit nothing that comes from a row with NaN."""
    many: Call | None = None
    """The same for ``N`` requests at once, a leading axis everywhere: lists of tokens and counts come back."""
    version: str = ""
    """Of what is wrapped, for example ``transformers 5.23.0``."""


def load(name: str, reseed: str | None = None) -> Function:
    """The function behind ``module:attr``: a :class:`Function`, a factory of one without parameters, or a callable.

    A callable of four parameters is judged in explicit coins, one of three ``(p, q, drafts)`` by its own randomness.

    Raises:
        ContractError: not of the form ``module:attr``, or no callable of three or four parameters.
        BackendUnavailable: the module or the attribute cannot be loaded, or a factory failed.
    """
    found = _attribute(name)
    hook = _attribute(reseed) if reseed else None
    if isinstance(found, Function):
        return found
    places = _parameters(name, found)
    if places == 0:
        return _made(name, found)
    if places == 4:
        return Function(name, found)
    return Function(name, lambda p, q, drafts, coins: found(p, q, drafts), OWN, hook)


def _made(name: str, factory: Callable[[], object]) -> Function:
    try:
        made = factory()
    except (ImportError, AttributeError) as error:
        raise BackendUnavailable(f"{name} cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(made, Function):
        raise ContractError(f"{name} has no parameters and returns {type(made).__name__}; allowed: a Function")
    return made


def _attribute(name: str) -> Any:
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ContractError(f"function {name!r}; allowed: module:attr")
    try:
        value: Any = importlib.import_module(module)
        for part in attribute.split("."):
            value = getattr(value, part)
    except Exception as error:
        raise BackendUnavailable(f"{name} cannot be loaded: {type(error).__name__}: {error}") from error
    return value


def _parameters(name: str, found: Any) -> int:
    """How many arguments it must be given: 0, 3 or 4."""
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError) as error:
        raise ContractError(f"{name} is {type(found).__name__}; allowed: a callable with a signature") from error
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    places = sum(p.kind in positional and p.default is p.empty for p in parameters)
    if places not in (0, 3, 4):
        raise ContractError(
            f"{name} takes {places} arguments; allowed: (p, q, drafts, coins), (p, q, drafts) with randomness of its "
            "own, or none for a factory of a Function"
        )
    return places


def signature(wrapped: Callable[..., Any], expected: tuple[str, ...], name: str) -> None:
    """Refuse to wrap a function whose parameters are not the ones that an adapter was written for.

    Raises:
        BackendUnavailable: other parameters; both lists are told.
    """
    found = tuple(inspect.signature(wrapped).parameters)
    if found != expected:
        raise BackendUnavailable(
            f"{name} has parameters ({', '.join(found)}); this adapter knows ({', '.join(expected)})"
        )
