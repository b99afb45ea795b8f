"""Scaler as the engine of pandas 3:

from scaler.pandas import engine

frame.apply(function, axis=1, engine=engine)
"""

from __future__ import annotations

from scaler.adapters.pandas_engine import PandasEngine

__all__ = ["PandasEngine", "engine"]

engine = PandasEngine()
"""For the scheduler that is found as by `Client()`, or a local cluster; `PandasEngine(address)` is for another."""
