"""The joblib backend "scaler". Importing this module registers it:

import scaler.joblib
from joblib import Parallel, delayed, parallel_config

with parallel_config("scaler", address="tcp://127.0.0.1:2345"):
    print(Parallel()(delayed(pow)(number, 2) for number in range(10)))
"""

from __future__ import annotations

from joblib import register_parallel_backend

from scaler.adapters.joblib_backend import ScalerBackend

__all__ = ["ScalerBackend"]

register_parallel_backend("scaler", ScalerBackend)
