"""Caches after a forward that was broken off: some layers have the new tokens, others do not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers.cache_utils import DynamicLayer, StaticLayer

from flashspec.hf.recurrent import own


@contextmanager
def repaired(past: Any, length: int) -> Iterator[None]:
    """Inside, a forward may change ``past``, which holds ``length`` tokens; if it raises, they are what it holds again.

    Full attention takes back what it got. Other layers, which keep little, are remembered.
    """
    layers = past.layers
    kept = [
        None if type(layer) in (DynamicLayer, StaticLayer) and length else own(layer, states=False) for layer in layers
    ]
    try:
        yield
    except BaseException:
        for index, (layer, before) in enumerate(zip(layers, kept, strict=True)):
            if isinstance(layer, StaticLayer):
                layer.cumulative_length.fill_(length)
            elif before is not None:
                layers[index] = before
            elif layer.get_seq_length() > length:
                layer.crop(length - layer.get_seq_length())
        raise
