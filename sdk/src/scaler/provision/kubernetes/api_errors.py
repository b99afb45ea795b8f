"""Errors of Kubernetes' API, each with what to do next."""

from __future__ import annotations

import json
from typing import Any, Dict, Type

from scaler.provision.unit_adapters import UnitError

_LONGEST_MESSAGE = 400  # characters


class KubernetesAccessError(UnitError):
    """It is not known where the API server is, or how to sign in."""


class KubernetesUnavailableError(UnitError):
    """The API server cannot be reached, does not answer in time, is throttling or has an error of its own."""


class KubernetesForbiddenError(UnitError):
    """The API server does not accept who asks (401), or that it does (403)."""


class KubernetesRefusedError(UnitError):
    """The API server refuses what it was asked for: it is invalid, exceeds a quota, or its namespace is not there."""


class NotFoundError(KubernetesRefusedError):
    """What was named is not there (404)."""


class ConflictError(KubernetesRefusedError):
    """What was named is not what it was, or is there already (409)."""


class ExpiredError(KubernetesUnavailableError):
    """A list took so long that the rest of it cannot be had any more (410)."""


class ThrottledError(KubernetesUnavailableError):
    """The API server asks for a pause (429)."""


# What a message of status 403 has in it that is not about a right: see https://kubernetes.io/docs/reference/access-authn-authz
_REFUSALS = {
    "exceeded quota": "kubectl describe resourcequota; raise the quota, or lower --maximum or --resources",
    "failed quota": "the quota wants resources to be named: set --resources",
    "violates podsecurity": "change securityContext in --pod-template, or the label of the namespace",
    "limitrange": "kubectl describe limitrange; change --resources",
    "maximum": "kubectl describe limitrange; change --resources",
    "minimum": "kubectl describe limitrange; change --resources",
    "error looking up service account": "create it, or change --service-account",
    "being terminated": "the namespace is being deleted: choose another --namespace",
    "no priorityclass": "create it, or change priorityClassName in --pod-template",
}


def error_of(status: int, body: bytes, verb: str, resource: str, namespace: str) -> UnitError:
    """The error that an answer of the API server stands for.

    Parameters:
        verb: the right that the request needs, such as `create`.
        resource: what it is a right to, such as `pods`.
    """
    said = _message_of(body) or f"status {status} without a message"
    asked = f"{verb} {resource} in the namespace {namespace}"
    kind: Type[UnitError] = KubernetesRefusedError
    if status == 401:
        kind, advice = KubernetesForbiddenError, "the token or certificate is invalid or has expired: sign in again"
    elif status == 403:
        lower = said.lower()
        advice = next((each for words, each in _REFUSALS.items() if words in lower), "")
        # "cannot": the message of a missing right, which may have any word in it, as names
        if not advice or f"cannot {verb} resource" in lower:
            kind = KubernetesForbiddenError
            advice = f"give the service account a Role with the verb {verb} for {resource} (docs/how-to/kubernetes.md)"
    elif status == 404:
        kind, advice = NotFoundError, "see --namespace and --owner-deployment: kubectl get namespaces"
    elif status == 409:
        kind, advice = ConflictError, "it is tried again with another name or later"
    elif status == 410:
        kind, advice = ExpiredError, "it is asked again"
    elif status == 429:
        kind, advice = ThrottledError, "the API server is busy; it is tried again later"
    elif status in (400, 422):
        advice = "see --pod-template, --resources and --dry-run"
    elif status >= 500:
        kind, advice = KubernetesUnavailableError, "it is tried again later; kubectl get --raw /readyz says more"
    else:
        kind, advice = KubernetesAccessError, "is the address that of a Kubernetes API server?"
    return kind(f"cannot {asked} (status {status}): {said[:_LONGEST_MESSAGE]}; {advice}")


def _message_of(body: bytes) -> str:
    """The message of a Status, or the beginning of whatever came instead of one."""
    try:
        answer: Dict[str, Any] = json.loads(body)
        return str(answer["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace").strip()
