"""Private releases on torch tensors, and private training of any module.

`Laplace`, `Gaussian`, `Encode` and `Mask` are modules whose forward pass is one custom op on CPU
tensors: torch.compile and torch.export trace through them. `DPOptimizer` wraps an optimizer:
per-sample clipping, exact Gaussian noise on the sum, accounting.

Needs dpcore[torch], and dpcore[accounting] for training on samples.
"""

from dpcore.interop.torch.ops import Encode, Gaussian, Laplace, Mask
from dpcore.interop.torch.training import DPOptimizer, per_sample_gradients

__all__ = ["DPOptimizer", "Encode", "Gaussian", "Laplace", "Mask", "per_sample_gradients"]
