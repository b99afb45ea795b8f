"""Is this program alive, is the cluster healthy, is it ready: for probes.

Rule: an answer reads figures that are there, and makes nothing.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple

from scaler_appliance.ui.ui_state import UiState

LOOP_LATE_AFTER_SECONDS = 5.0


class Health(NamedTuple):
    is_good: bool
    details: Dict[str, Any]


def live(late_seconds: float) -> Health:
    """Whether this program does its work: its loop came round so many seconds ago."""
    reasons: List[str] = []
    if late_seconds > LOOP_LATE_AFTER_SECONDS:
        reasons.append(f"the status was last looked at {late_seconds:.1f} s ago")
    return _health(reasons, {})


def healthy(state: UiState) -> Health:
    """Whether the scheduler is heard."""
    return _health(_silence(state), _figures(state))


def ready(state: UiState, workers: int) -> Health:
    """Whether the scheduler is heard and has so many workers."""
    reasons = _silence(state)
    present = len(state.cluster.workers)
    if not reasons and present < workers:
        reasons.append(f"{present} of {workers} workers are connected")
    return _health(reasons, _figures(state))


def _silence(state: UiState) -> List[str]:
    if state.feed.is_connected():
        return []
    age = f"{state.feed.age_seconds():.1f} s"
    reason = state.feed.silence_reason()
    why = [reason] if reason else []
    if state.cluster.scheduler is None:
        return [
            f"no scheduler has been heard at {state.feed.address} for {age}: does it run, with this monitor address?",
            *why,
        ]
    return [f"the scheduler at {state.feed.address} has been silent for {age}", *why]


def _figures(state: UiState) -> Dict[str, Any]:
    return {
        "age_seconds": round(state.feed.age_seconds(), 1),
        "workers": len(state.cluster.workers),
        "generation": state.cluster.generation,
    }


def _health(reasons: List[str], figures: Dict[str, Any]) -> Health:
    return Health(not reasons, {"status": "unhealthy" if reasons else "ok", "reasons": reasons, **figures})
