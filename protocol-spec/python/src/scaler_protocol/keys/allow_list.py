"""The keys that a scheduler admits, and what each may do: `authorized_keys`, one line for each key.

    PUBLIC_KEY role=worker tenant=default name=alice-laptop expires=2027-01-01T00:00:00Z # comment

Rules:
- No I/O: the owner reads and writes the file, and decides what a malformed one means. On reload, the old list stays in
  force.
- A list is valid as a whole or not at all: an option that is unknown or written twice is an error, as it may have been
  meant to restrict the key.
- Keys are looked up in a dictionary, whose time depends on the key. That reveals nothing: they are public keys, and
  CURVE asks only after the peer has proved to own the secret one.
- `role` and `name` are required. Names need not be unique: revoking a name revokes all keys of that name.
- The tenant ANY_TENANT is not one that can own something: only keys of the roles in ANY_TENANT_ROLES may have it.
- Lists do not change: `with_line` and `without` return new ones, with all other lines and comments as they were.
"""

from __future__ import annotations

import re
from typing import Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Tuple

from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.expiry import parse_time, time_text
from scaler_protocol.keys.key_text import KEY_CHARACTERS, decode_key, encode_key, fingerprint

OWNER_ROLE = "owner"
ROLES = ("client", "worker", "monitor", "admin", "provisioner", OWNER_ROLE)
DEFAULT_TENANT = "default"
ANY_TENANT = "*"
"""Of keys that are for all tenants: a worker's serves them all, a monitor's or an admin's sees them all."""
ANY_TENANT_ROLES = ("worker", "monitor", "admin", "provisioner")
MAXIMUM_NAME_CHARACTERS = 64

SUBMIT = "submit"
"""Tasks, graphs and objects."""
CANCEL = "cancel"
"""Own tasks."""
EXPLAIN = "explain"
"""Why an own task waits."""
TAKE_TASKS = "take-tasks"
"""Run tasks, and return their results."""
INFO = "info"
"""The counts of the cluster: workers, slots, tasks."""
READ_STATUS = "read-status"
"""What the scheduler publishes for monitors."""
DRAIN = "drain"
"""Ask a worker to leave."""
STOP = "stop"
"""Ask the scheduler and all workers to stop."""

_REQUESTS = (SUBMIT, CANCEL, EXPLAIN, TAKE_TASKS, INFO, READ_STATUS, DRAIN, STOP)


class Permission(NamedTuple):
    """What the keys of a role may do.

    Attributes:
        hello_roles: the roles that a peer with such a key may have in its Hello.
        requests: what it may ask for.
    """

    hello_roles: FrozenSet[str]
    requests: FrozenSet[str]


PERMISSIONS: Mapping[str, Permission] = {
    "client": Permission(frozenset({"client"}), frozenset({SUBMIT, CANCEL, EXPLAIN, INFO})),
    "worker": Permission(frozenset({"worker"}), frozenset({TAKE_TASKS})),
    "monitor": Permission(frozenset({"monitor"}), frozenset({INFO, READ_STATUS})),
    # Asking for figures, draining and stopping are messages of a client's session.
    "admin": Permission(frozenset({"client", "monitor"}), frozenset({INFO, READ_STATUS, DRAIN, STOP})),
    # A program that starts workers when there is work, and drains them when there is none.
    "provisioner": Permission(frozenset({"client", "monitor"}), frozenset({INFO, READ_STATUS, DRAIN})),
    "owner": Permission(frozenset({"client", "worker", "monitor"}), frozenset(_REQUESTS)),
}
"""By the role of a key; what is missing here is forbidden."""

_NOTHING = Permission(frozenset(), frozenset())

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]*", re.ASCII)
_OPTIONS = ("role", "tenant", "name", "expires")


class Grant(NamedTuple):
    """What a key is admitted as.

    Attributes:
        role: one of ROLES.
        tenant: who owns what a peer with this key submits, or whose tasks it runs or sees; ANY_TENANT: all of them.
        name: of the key, for people.
        expires: in Unix seconds; None if it does not.
    """

    role: str
    tenant: str
    name: str
    expires: Optional[float] = None

    def may(self, request: str) -> bool:
        """Whether the role allows a request, such as SUBMIT."""
        return request in PERMISSIONS.get(self.role, _NOTHING).requests

    def may_greet_as(self, hello_role: str) -> bool:
        """Whether a peer may have this role in its Hello."""
        return hello_role in PERMISSIONS.get(self.role, _NOTHING).hello_roles


class _Line(NamedTuple):
    text: str
    key: bytes = b""  # empty for comments and blank lines
    grant: Optional[Grant] = None


class AllowList:
    """A valid list. Made by `parse`; without arguments it is empty and admits no key."""

    def __init__(self, lines: Tuple[_Line, ...] = ()) -> None:
        self._lines = lines
        self._grants = {line.key: line.grant for line in lines if line.grant is not None}

    @classmethod
    def parse(cls, text: str, where: str) -> AllowList:
        """Read the text of a list.

        Parameters:
            where: the name of the file, for errors.

        Raises KeyFileError, with the line's number.
        """
        lines: List[_Line] = []
        numbers: Dict[bytes, int] = {}
        for number, line_text in enumerate(text.rstrip("\n").split("\n") if text else (), 1):
            try:
                line = _parse_line(line_text)
                if line.key in numbers:
                    raise KeyFileError(f"the key is already in line {numbers[line.key]}: remove one of them")
            except KeyFileError as error:
                raise KeyFileError(f"{where}, line {number}: {error}") from None
            if line.grant is not None:
                numbers[line.key] = number
            lines.append(line)
        return cls(tuple(lines))

    @property
    def text(self) -> str:
        """The text of the file."""
        return "".join(f"{line.text}\n" for line in self._lines)

    @property
    def grants(self) -> Mapping[bytes, Grant]:
        """All grants by public key, also expired ones, in the order of the file."""
        return self._grants

    def grant(self, public_key: bytes, now: float) -> Optional[Grant]:
        """What a key is admitted as; None if it is unknown or has expired.

        Parameters:
            now: Unix seconds.
        """
        found = self._grants.get(public_key)
        if found is None or (found.expires is not None and found.expires <= now):
            return None
        return found

    def matching(self, name_or_key: str) -> Dict[bytes, Grant]:
        """The grants of a name, or that of a key: its Z85 text or its fingerprint."""
        return {
            key: grant
            for key, grant in self._grants.items()
            if name_or_key in (grant.name, encode_key(key), fingerprint(key))
        }

    def with_line(self, public_key: bytes, grant: Grant) -> AllowList:
        """This list, and one more key at the end.

        Raises KeyFileError if the key is already there, or the grant is invalid.
        """
        if public_key in self._grants:
            raise KeyFileError(f"the key {encode_key(public_key)} is already authorized: revoke it first")
        check_grant(grant)
        return AllowList((*self._lines, _Line(grant_line(public_key, grant), public_key, grant)))

    def without(self, name_or_key: str) -> AllowList:
        """This list without the keys that `matching` finds.

        Raises KeyFileError if it finds none.
        """
        removed = self.matching(name_or_key)
        if not removed:
            raise KeyFileError(f"no authorized key has this name, text or fingerprint: {name_or_key!r}")
        return AllowList(tuple(line for line in self._lines if line.key not in removed))


def usual_tenant(role: str) -> str:
    """The tenant of a new key, unless one is named: who watches or administers does so for all of them."""
    return DEFAULT_TENANT if role == "worker" or role not in ANY_TENANT_ROLES else ANY_TENANT


def grant_line(public_key: bytes, grant: Grant) -> str:
    """The line of a key, without its end."""
    expires = "" if grant.expires is None else f" expires={time_text(grant.expires)}"
    return f"{encode_key(public_key)} role={grant.role} tenant={grant.tenant} name={grant.name}{expires}"


def check_grant(grant: Grant) -> None:
    """Raises KeyFileError if a grant cannot be written to a list."""
    if grant.role not in ROLES:
        raise KeyFileError(f"the role must be one of {', '.join(ROLES)}")
    if grant.tenant == ANY_TENANT and grant.role not in ANY_TENANT_ROLES:
        known = ", ".join(ANY_TENANT_ROLES)
        raise KeyFileError(f"the tenant {ANY_TENANT!r}, which is all of them, is only for the roles {known}")
    for what, name in (("tenant", grant.tenant), ("name", grant.name)):
        if what == "tenant" and name == ANY_TENANT:
            continue
        if len(name) > MAXIMUM_NAME_CHARACTERS or not _NAME.fullmatch(name):
            raise KeyFileError(
                f"the {what} must have 1 to {MAXIMUM_NAME_CHARACTERS} letters, digits, '.', '_', '@' and '-', and begin"
                " with a letter or digit"
            )
    if grant.expires is not None:
        time_text(grant.expires)


def _parse_line(text: str) -> _Line:
    words = text.split()
    if not words or words[0].startswith("#"):
        return _Line(text)
    if len(words[0]) != KEY_CHARACTERS:
        raise KeyFileError(f"a line begins with a public key of {KEY_CHARACTERS} characters (Z85), or with #")
    key = decode_key(words[0])
    options: Dict[str, str] = {}
    for number, word in enumerate(words[1:], 2):
        if word.startswith("#"):
            break
        option, equals, value = word.partition("=")
        if not equals or option not in _OPTIONS:
            known = ", ".join(f"{each}=..." for each in _OPTIONS)
            raise KeyFileError(f"word {number} is not an option: after the key, there are {known}, and # for a comment")
        if option in options:
            raise KeyFileError(f"the option {option} is written twice")
        options[option] = value
    for required in ("role", "name"):
        if required not in options:
            raise KeyFileError(f"the option {required}=... is missing")
    expires = parse_time(options["expires"]) if "expires" in options else None
    grant = Grant(options["role"], options.get("tenant", DEFAULT_TENANT), options["name"], expires)
    check_grant(grant)
    return _Line(text, key, grant)
