"""Imputation: an imputer for tables with missing entries, and the rules by which draws of it are pooled."""

from srflvm.imputation.imputer import SRFLVMImputer
from srflvm.imputation.pooling import Pooled, energy_score, pool

__all__ = ["Pooled", "SRFLVMImputer", "energy_score", "pool"]
