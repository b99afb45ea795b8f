"""What the status of a pod means for a unit.

Rules:
- A pod waits until it has a node, and starts from then on: so what keeps it from starting there has a time limit.
- A pod in a state that is not known here counts as one that runs: else there might be more than the maximum.
- Reasons begin with what people search for: what Kubernetes calls it is in them.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, Mapping, NamedTuple, Optional

from scaler.provision.core.provision_core import ListedUnit
from scaler_protocol import messages as m

_LONGEST_MESSAGE = 200  # characters
_START_ERRORS = {
    "CreateContainerConfigError": "a secret or ConfigMap that it needs is missing",
    "CreateContainerError": "its container cannot be created",
    "ErrImageNeverPull": "its node does not have the image",
    "ErrImagePull": "its image cannot be pulled",
    "ImageInspectError": "its image cannot be read",
    "ImagePullBackOff": "its image cannot be pulled",
    "InvalidImageName": "the name of its image is invalid",
    "RegistryUnavailable": "the registry of its image is unavailable",
    "RunContainerError": "its container cannot be started",
    "SignatureValidationFailed": "the signature of its image is invalid",
}
_ENDS = {
    "ContainerCannotRun": "its container cannot be started",
    "DeadlineExceeded": "it ran longer than activeDeadlineSeconds",
    "DeletionByPodGC": "its node is gone",
    "DeletionByTaintManager": "its node was tainted: it is unreachable or is being drained",
    "Evicted": "its node had too little memory, disk or processes",
    "EvictionByEvictionAPI": "its node is being drained",
    "NodeLost": "its node is unreachable",
    "NodeShutdown": "its node was shut down",
    "OOMKilled": "it needed more memory than its limit",
    "Preempting": "a pod with a higher priority took its place",
    "PreemptionByScheduler": "a pod with a higher priority took its place",
    "StartError": "its container cannot be started",
    "Terminated": "its node was shut down",
    "TerminationByKubelet": "its node was shut down or had too little of a resource",
    "UnexpectedAdmissionError": "its node did not accept it",
}


class PodState(NamedTuple):
    """What a pod is.

    Attributes:
        listed: as a unit; None: it has ended as it should.
        has_ended: all its containers have.
        start_error: why its container cannot start, which may pass; empty if nothing is known against it.
    """

    listed: Optional[ListedUnit]
    has_ended: bool = False
    start_error: str = ""


def state_of(pod: Mapping[str, Any]) -> PodState:
    """The state of a pod that the API has listed."""
    status = pod.get("status") or {}
    metadata = pod["metadata"]
    phase = status.get("phase", "Pending")
    if phase == "Succeeded":
        return PodState(None, has_ended=True)
    if phase == "Failed":
        return PodState(ListedUnit(m.UnitState.FAILED, f"pod {metadata['name']}: {_end_of(pod)}"), has_ended=True)
    error = _start_error(status)
    if error:
        return PodState(ListedUnit(m.UnitState.STARTING, error), start_error=f"pod {metadata['name']}: {error}")
    if phase == "Pending":
        condition = _conditions(status).get("PodScheduled", {})
        if condition.get("status") != "True":
            return PodState(ListedUnit(m.UnitState.PENDING, _said(condition) or "it waits for the scheduler of pods"))
        return PodState(ListedUnit(m.UnitState.STARTING, next(_waits(status), {}).get("reason", "")))
    if metadata.get("deletionTimestamp"):
        return PodState(ListedUnit(m.UnitState.STARTING, "it is being deleted"))
    return PodState(ListedUnit(m.UnitState.STARTING, "" if phase == "Running" else _said(status) or phase))


def _end_of(pod: Mapping[str, Any]) -> str:
    """Why a pod has failed."""
    status = pod["status"]
    ended = next((each for each in _states(status, "terminated") if each.get("exitCode")), {})
    disruption = _conditions(status).get("DisruptionTarget", {})
    of_container = {} if ended.get("reason") == "Error" else ended  # which says no more than its exit code
    for source in (status, disruption, of_container):
        word = source.get("reason")
        if word:
            code = f", exit code {ended['exitCode']}" if ended else ""
            message = source.get("message", "")
            said = f": {message[:_LONGEST_MESSAGE].strip()}" if message else ""
            return f"{_ENDS.get(word, 'it has failed')} ({word}{code}){said}"
    if ended:
        return f"its worker has ended with exit code {ended['exitCode']}: kubectl logs {pod['metadata']['name']}"
    return "it has failed, and its status does not say why"


def _start_error(status: Mapping[str, Any]) -> str:
    for waiting in _waits(status):
        word = waiting.get("reason", "")
        if word in _START_ERRORS:
            message = waiting.get("message", "")
            return f"{_START_ERRORS[word]} ({word}){f': {message[:_LONGEST_MESSAGE].strip()}' if message else ''}"
    return ""


def _waits(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return _states(status, "waiting")


def _states(status: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    """Of all containers in a state, what is said of it."""
    for field in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(field) or []:
            state = (container.get("state") or {}).get(name)
            if state is not None:
                yield state


def _conditions(status: Mapping[str, Any]) -> Dict[str, Mapping[str, Any]]:
    return {each["type"]: each for each in status.get("conditions") or []}


def _said(source: Mapping[str, Any]) -> str:
    """The reason and the message of a condition or status."""
    words = (source.get("reason", ""), source.get("message", "")[:_LONGEST_MESSAGE].strip())
    return ": ".join(filter(None, words))
