"""Is this program alive, is the cluster healthy, is it ready: for probes.

Rule: an answer only reads existing figures.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple

from scaler_appliance.ui.ui_state import UiState

LOOP_LATE_AFTER_SECONDS = 5.0


class Health(NamedTuple):
    is_good: bool
    details: Dict[str, Any]


def live(late_seconds: float) -> Health:
    """Whether this program works, from the number of seconds since its last loop iteration."""
    reasons: List[str] = []
    if late_seconds > LOOP_LATE_AFTER_SECONDS:
        reasons.append(f"the status was last updated {late_seconds:.1f} s ago")
    return _health(reasons, {})


def healthy(state: UiState) -> Health:
    """Whether the scheduler publishes."""
    return _health(_silence(state), _figures(state))


def ready(state: UiState, workers: int) -> Health:
    """Whether the scheduler publishes and has at least this many workers."""
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
            f"nothing was received from {state.feed.address} for {age}: is this the scheduler's monitor address?",
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
