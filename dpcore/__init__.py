"""Differential privacy with exact, addressed noise and a native core.

>>> import dpcore
>>> noisy = dpcore.laplace([3, 1, 4], epsilon=1.0, sensitivity=1)
>>> noisy.shape
(3,)
"""

import importlib
from typing import Any

from dpcore import errors, random
from dpcore._parallel import get_num_threads, set_num_threads
from dpcore.aggregates import bounded_mean, bounded_sum, histogram
from dpcore.calibration import gaussian_delta, gaussian_epsilon, gaussian_sigma
from dpcore.central import gaussian, laplace
from dpcore.errors import BudgetExceededError
from dpcore.noise import Noise, NotPrivateArray

__version__ = "0.1.0"

__all__ = [
    "BudgetExceededError",
    "Ledger",
    "Noise",
    "NotPrivateArray",
    "__version__",
    "accounting",
    "audit",
    "bounded_mean",
    "bounded_sum",
    "cluster",
    "errors",
    "federated",
    "gaussian",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "get_include",
    "get_num_threads",
    "histogram",
    "labeling",
    "laplace",
    "learners",
    "local",
    "proportions",
    "random",
    "secure",
    "series",
    "set_num_threads",
    "wire",
]

# Imported when first used: `import dpcore` stays quick and brings no optional package.
_ON_DEMAND = (
    "accounting",
    "audit",
    "cluster",
    "federated",
    "labeling",
    "learners",
    "local",
    "proportions",
    "secure",
    "series",
    "wire",
)


def __getattr__(name: str) -> Any:
    if name in _ON_DEMAND:
        return importlib.import_module(f"dpcore.{name}")
    if name == "Ledger":
        from dpcore.accounting import Ledger

        return Ledger
    raise AttributeError(f"module 'dpcore' has no attribute {name!r}")


def get_include() -> str:
    """Directory of dpcore's C headers, for extensions built on the native core.

    Privacy
    -------
    A path of the installation; no data are read.

    Cost
    ----
    A look at the path of a module that is loaded already.
    """
    from pathlib import Path

    import dpcore_ext

    return str(Path(dpcore_ext.__file__).parent / "include")
