"""What a peer may do, by what its key is admitted as.

Rules:
- The shell says who a peer is, once, before its first message. A peer of which it says nothing may do nothing.
- A tenant's tasks, objects and functions are its own. To peers of another tenant they do not exist: an id of theirs is
  answered like one that is unknown. This holds for owners, too, whose programs are of the tenant DEFAULT_TENANT.
- The units of a provisioner have workers of its own tenant; if it sees all, those that serve all, or DEFAULT_TENANT,
  which is what keys of workers have if nothing else was asked for.
- Figures are of one's own tenant, and of the workers that serve it. Owners, and keys of ANY_TENANT, see all.
- Owners are programs of the user that the scheduler runs as. To stop the cluster or a worker, they need
  `--no-protected`, which guards against mistakes; a key with the role admin is made for it. To drain a worker costs no
  work, and is not guarded.
"""

from __future__ import annotations

from typing import FrozenSet, Mapping, Optional

from scaler_appliance.core.effects import PeerError
from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import (
    ANY_TENANT,
    CANCEL,
    DEFAULT_TENANT,
    DRAIN,
    EXPLAIN,
    INFO,
    STOP,
    SUBMIT,
    Grant,
)

OWNER = "owner"
OWNER_GRANT = Grant(OWNER, DEFAULT_TENANT, "")

_REQUESTS: Mapping[type, str] = {
    m.Task: SUBMIT,
    m.GraphTask: SUBMIT,
    m.ObjectInstruction: SUBMIT,
    m.ObjectRequest: SUBMIT,
    m.ObjectResponse: SUBMIT,
    m.TaskCancel: CANCEL,
    m.ExplanationRequest: EXPLAIN,
    m.InfoRequest: INFO,
    m.Units: DRAIN,
    m.ReleaseRequest: DRAIN,
}
"""What a client asks for with a message; WorkerShutdown and ClientShutdown have answers of their own."""
_USES = {INFO: "to ask for figures", EXPLAIN: "to ask why tasks wait", DRAIN: "to start and release workers"}
_HELLO_ROLES = {m.Role.CLIENT: "client", m.Role.WORKER: "worker"}


def check_role(grant: Optional[Grant], hello: m.Hello) -> Grant:
    """The grant, if a peer may have the role that it says Hello in, which is one of those that are served.

    Raises PeerError.
    """
    if grant is None:
        raise PeerError(m.RefusalReason.NOT_ALLOWED, "this connection is not authenticated")
    # SCL-SEC-016
    role = _HELLO_ROLES[m.Role(hello.role)]
    if not grant.may_greet_as(role):
        text = f"a key with the role {grant.role} cannot be used by a {role}: make one for it"
        raise PeerError(m.RefusalReason.NOT_ALLOWED, f"{text}: scaler keys new --role {role}")
    return grant


def check_message(grant: Grant, message: object) -> None:
    """Raise PeerError unless a client may send a message."""
    # SCL-SEC-016
    request = _REQUESTS.get(type(message))
    if request is not None and not grant.may(request):
        use = _USES.get(request, "for tasks and objects")
        wanted = "provisioner" if request == DRAIN else "client"
        text = f"a key with the role {grant.role} cannot be used {use}: use one with the role {wanted}"
        raise PeerError(m.RefusalReason.NOT_ALLOWED, text)


def sees_all(grant: Grant) -> bool:
    """Whether a peer may know of all tenants, and ask their workers to leave."""
    return grant.role == OWNER or grant.tenant == ANY_TENANT


def view_of(grant: Grant) -> str:
    """The tenant that a peer sees; ANY_TENANT: all of them."""
    return ANY_TENANT if sees_all(grant) else grant.tenant


def unit_tenants(grant: Grant) -> FrozenSet[str]:
    """The tenants of the keys that workers of a provisioner's units may have."""
    return frozenset({DEFAULT_TENANT, ANY_TENANT} if sees_all(grant) else {grant.tenant})


def may_stop(grant: Grant, is_protected: bool) -> bool:
    """Whether a peer may stop the scheduler, and with it all workers.

    Parameters:
        is_protected: the scheduler refuses its own user.
    """
    return grant.may(STOP) and sees_all(grant) and not (grant.role == OWNER and is_protected)


def may_drain(grant: Grant, is_protected: bool, is_draining: bool) -> bool:
    """Whether a peer may ask workers to leave: those of its tenant, or all if it `sees_all`.

    Parameters:
        is_draining: the worker is to finish its tasks before.
    """
    return grant.may(DRAIN) if is_draining else grant.may(STOP) and not (grant.role == OWNER and is_protected)


def why_not_stopped(grant: Grant, is_worker: bool) -> str:
    """The answer to a peer that may not stop something.

    Parameters:
        is_worker: it wanted to stop a worker, and not the scheduler.
    """
    if grant.may(STOP) and not sees_all(grant):
        wanted = f"make one with the tenant {ANY_TENANT!r}: scaler keys new --role {grant.role} --tenant '{ANY_TENANT}'"
        return (
            f"a key of the tenant {grant.tenant} cannot stop the scheduler, which serves other tenants, too: {wanted}"
        )
    if grant.may(STOP):
        what = "the worker" if is_worker else "it"
        others = ", or let it drain" if is_worker else ""
        text = f"the scheduler is protected: stop {what} where it was started{others}"
        return f"{text}, or start the scheduler with --no-protected"
    if is_worker and grant.may(DRAIN):
        return f"a key with the role {grant.role} can drain workers, and not stop them: use one with the role admin"
    what = "workers" if is_worker else "the scheduler"
    return f"a key with the role {grant.role} cannot stop {what}: use one with the role admin"


def in_log(grant: Grant) -> str:
    """What the log says of a peer with a key."""
    return f", with the key {grant.name!r} ({grant.role}, tenant {grant.tenant})" if grant.name else ""
