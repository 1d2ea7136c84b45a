"""FlashSpec's Triton backend: raw logits to tokens in one to four launches, without waiting for the host.

On a CPU it runs in Triton's interpreter (``TRITON_INTERPRET=1``), for tests.
"""

try:
    import triton as triton
except ImportError as error:
    raise ImportError(f"the triton backend needs the package triton (Linux; extra flashspec[gpu]): {error}") from error

from flashspec_triton._backend import TritonBackend as TritonBackend
from flashspec_triton._backend import backend as backend
from flashspec_triton._backend import interpreted as interpreted
from flashspec_triton._backend import poisoned as poisoned
from flashspec_triton._backend import uncopied as uncopied

__all__ = ["TritonBackend", "backend", "interpreted", "poisoned", "uncopied"]
