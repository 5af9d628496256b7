"""Torch, for those modules that train; nothing else of the library needs it.

It is imported here and nowhere else, so that whoever has not installed it reads what
to install.
"""

from __future__ import annotations

from sketchlearn.errors import import_extra

try:
    import torch
    from torch import Tensor, nn
except ImportError:
    import_extra("torch", "train")

__all__ = ["Tensor", "nn", "torch"]
