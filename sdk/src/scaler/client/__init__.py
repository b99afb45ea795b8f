"""The client: hands functions to a scheduler and gets futures back."""

from __future__ import annotations

from scaler.client.client import Client
from scaler.client.future import ScalerFuture

__all__ = ["Client", "ScalerFuture"]
