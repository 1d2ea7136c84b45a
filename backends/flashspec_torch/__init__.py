"""FlashSpec's PyTorch backend: any device, no host synchronisation on CUDA, fast at batch 1 on the CPU."""

from flashspec_torch._backend import TorchBackend as TorchBackend
from flashspec_torch._backend import backend as backend
from flashspec_torch._backend import vectorised as vectorised

__all__ = ["TorchBackend", "backend", "vectorised"]
