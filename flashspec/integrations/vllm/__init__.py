"""vLLM: drafts chosen online, FlashSpec's verifier in place of the engine's, and a test of the engine's sampling.

Three parts that do not need each other; see ``docs/how-to/vllm.md``. Nothing here imports vLLM before it is used.
"""

from __future__ import annotations
