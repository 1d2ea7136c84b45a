"""The selector under test, built anew as often as a check likes."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from flashspec.errors import BackendUnavailable, FlashSpecError
from flashspec.selectors import Selector, from_spec, get

PLAIN, HAZARD = "plain", "hazard"
"""Learns one reward per play, or outcomes per offset of a draft. ``Selector.update_reward`` declares it."""


@attrs.frozen(eq=False)
class Subject:
    """Who builds the selector, and which promises it makes."""

    build: Callable[[], Selector]
    kind: str


def of(build: Callable[[], Selector]) -> Subject:
    """A subject; a selector without ``update_reward`` learns hazards."""
    return Subject(build, HAZARD if build().update_reward is None else PLAIN)


def load(target: str) -> Subject:
    """The selector that ``target`` names: a registered name, ``fixed:DRAFT/LENGTH`` or ``module:attr``.

    Raises:
        UnknownName, ContractError, BackendUnavailable: it cannot be had; the message says why.
    """

    def build() -> Selector:
        try:
            return get(target) if target == "fixed" else from_spec(target)
        except FlashSpecError:
            raise
        except Exception as error:  # somebody's factory may raise anything
            raise BackendUnavailable(f"{target} cannot be built: {type(error).__name__}: {error}") from error

    return of(build)
