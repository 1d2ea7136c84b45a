"""Backends that must not pass, that break the run, or that declare little: the harness is tested with them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.contract import Capabilities, Draw, Sample, Sampling, Uniforms, Verdict
from flashspec_conformance.plain.backend import Plain


@attrs.frozen(eq=False)
class Null(Plain):
    """Does nothing: no token, ever."""

    def verify(self, *arguments: Any) -> Verdict:
        """An empty verdict of the right shapes."""
        batch, width = np.shape(arguments[1])[:1], np.shape(arguments[1])[-1]
        blank = np.zeros(batch, np.int64)
        tokens = np.full((*batch, width + 1), -1, np.int64)
        return Verdict(tokens, blank, blank.copy(), blank.copy(), np.zeros(tokens.shape))

    def sample(self, logits: Any, sampling: Sampling, randomness: Draw | Uniforms) -> Sample:
        """No token and a record of the wrong temperature."""
        right = super().sample(logits, sampling, randomness)
        return attrs.evolve(right, tokens=np.full_like(right.tokens, -1), logprobs=right.logprobs - 1.0)


@attrs.frozen(eq=False)
class AlwaysWrong(Plain):
    """Right in form, wrong in everything else; refuses nothing."""

    def verify(self, *arguments: Any) -> Verdict:
        """Each token is the next id, and every count is one more."""
        right = super().verify(*arguments)
        turned = np.where(right.tokens >= 0, (right.tokens + 1) % np.shape(arguments[0])[-1], right.tokens)
        return attrs.evolve(right, tokens=turned, logprobs=right.logprobs - 1.0, status=right.status + 32)

    def sample(self, logits: Any, sampling: Sampling, randomness: Draw | Uniforms) -> Sample:
        """The next id."""
        right = super().sample(logits, sampling, randomness)
        return attrs.evolve(right, tokens=(right.tokens + 1) % np.shape(logits)[-1])


@attrs.frozen(eq=False)
class Hanging(Plain):
    """Never comes back once it sees two requests."""

    def verify(self, *arguments: Any) -> Verdict:
        """A verdict, or none."""
        while np.shape(arguments[1])[0] > 1:
            time.sleep(0.1)
        return super().verify(*arguments)


@attrs.frozen(eq=False)
class Crashing(Plain):
    """Takes its process down once it sees two requests."""

    def verify(self, *arguments: Any) -> Verdict:
        """A verdict, or the end."""
        if np.shape(arguments[1])[0] > 1:
            os._exit(11)
        return super().verify(*arguments)


@attrs.frozen(eq=False)
class Broken(Plain):
    """Cannot even copy an array."""

    def asarray(self, values: npt.NDArray[Any], dtype: str, device: str = "cpu") -> npt.NDArray[Any]:
        """An error of its own kind."""
        raise RuntimeError("no such device driver")


@attrs.frozen(eq=False)
class Killed(Plain):
    """Its process is killed by a signal once it sees two requests, as by a segmentation fault."""

    def verify(self, *arguments: Any) -> Verdict:
        """A verdict, or the end."""
        if np.shape(arguments[1])[0] > 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().verify(*arguments)


@attrs.frozen(eq=False)
class Raising(Plain):
    """Raises an error of its own kind, of many lines, once it sees two requests."""

    def verify(self, *arguments: Any) -> Verdict:
        """A verdict, or an error."""
        if np.shape(arguments[1])[0] > 1:
            raise LookupError("no kernel for this shape\n" + "launch parameters follow\n" * 5000)
        return super().verify(*arguments)


@attrs.frozen(eq=False)
class Malformed(Plain):
    """Right, but for what ``spoil`` does to each verdict about two or more requests."""

    spoil: Callable[[Verdict], Any] = lambda verdict: verdict

    def verify(self, *arguments: Any) -> Verdict:
        """A verdict, or something that is none."""
        right = super().verify(*arguments)
        found: Verdict = self.spoil(right) if np.shape(arguments[1])[0] > 1 else right
        return found


@attrs.frozen(eq=False)
class Mutating(Plain):
    """Writes -1 into the drafts that it has judged."""

    def verify(self, *arguments: Any) -> Verdict:
        """A verdict, at the caller's cost."""
        verdict = super().verify(*arguments)
        if np.shape(arguments[1])[0] > 1:
            arguments[1][...] = -1
        return verdict


@attrs.frozen(eq=False)
class Slow(Plain):
    """Takes a tenth of a second for every call."""

    def verify(self, *arguments: Any) -> Verdict:
        """A verdict, later."""
        time.sleep(0.1)
        return super().verify(*arguments)


def _declaring(*methods: str, proposals: tuple[str, ...]) -> Capabilities:
    return Capabilities(
        frozenset(methods), frozenset({"float32"}), frozenset(proposals), frozenset(), frozenset({"cpu"})
    )


null = Null(name="null", check=False)
always_wrong = AlwaysWrong(name="always_wrong", check=False)
hanging = Hanging(name="hanging")
crashing = Crashing(name="crashing")
killed = Killed(name="killed")
raising = Raising(name="raising")
wrong_type = Malformed(name="wrong_type", spoil=lambda v: (v.tokens, v.num_accepted))
wrong_shape = Malformed(name="wrong_shape", spoil=lambda v: attrs.evolve(v, tokens=v.tokens[:, :-1]))
wrong_dtype = Malformed(name="wrong_dtype", spoil=lambda v: attrs.evolve(v, tokens=v.tokens.astype(np.float32)))
mutating = Mutating(name="mutating")
slow = Slow(name="slow")
broken = Broken(name="broken")
plain = Plain()
greedy_only = Plain(name="greedy_only", capabilities=_declaring("greedy", proposals=("onehot",)))
sparse_only = Plain(name="sparse_only", capabilities=_declaring("token", proposals=("sparse",)))
not_a_backend = object()
