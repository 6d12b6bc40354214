"""Helpers under the names that callers import from DeepGEMM's testing."""
from ._casts import calc_diff

__all__ = ["calc_diff"]
