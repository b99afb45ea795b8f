"""The options of `scaler keys` and of its commands: tables like those of any program.

See `scaler_protocol.programs.options` for option tables.
"""

from __future__ import annotations

import argparse
import time
from typing import Callable, Dict, List, Optional

from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, __version__
from scaler_protocol.keys.allow_list import ROLES, Grant, check_grant, usual_tenant
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.expiry import parse_expiry
from scaler_protocol.programs.options import Choice, Directory, Kind, NewFile, Option, Program, Switch

NEW_ROLES = tuple(role for role in ROLES if role != "owner")

_DIRECTORY = Option(
    "--directory",
    Directory(),
    "the scheduler's folder of keys",
    default_text="$SCALER_KEY_DIRECTORY, else $XDG_CONFIG_HOME/scaler/keys, which is ~/.config/scaler/keys",
    is_command_line_only=True,
)
_RELOAD = Option(
    "--reload",
    Switch(),
    "let the schedulers of this user on this host that use the folder read it again (SIGHUP)",
    default=True,
    is_command_line_only=True,
)


def _version() -> str:
    return f"scaler keys {__version__} (protocol {PROTOCOL_MAJOR}.{PROTOCOL_MINOR_MAX})"


def tenant_of(options: argparse.Namespace) -> str:
    """The tenant of a new key."""
    return usual_tenant(options.role) if options.tenant is None else str(options.tenant)


def _faults_of_new(options: argparse.Namespace) -> List[str]:
    faults = []
    try:
        check_grant(Grant(options.role, tenant_of(options), options.name or options.role))
    except KeyFileError as error:
        faults.append(str(error))
    try:
        if options.expires is not None:
            parse_expiry(options.expires, time.time())
    except KeyFileError as error:
        faults.append(f"--expires: {error}")
    return faults


def _program(
    word: str,
    description: str,
    options: List[Option],
    epilog: str = "",
    faults: Optional[Callable[[argparse.Namespace], List[str]]] = None,
) -> Program:
    return Program(
        name=f"scaler keys {word}",
        page="security#scaler-keys",
        section="keys",
        description=description,
        epilog=epilog,
        version=_version,
        is_configured=False,
        faults=faults,
        options=[*options, _DIRECTORY],
    )


NEW = _program(
    "new",
    "Make the key of a client, worker, monitor or administrator, authorize it, and write its key file: all that its"
    " program needs. The file is a secret.",
    [
        Option(
            "--role",
            Choice(NEW_ROLES),
            "what a program with this key may do: client, submit tasks, and cancel and explain its own; worker, run"
            " tasks; monitor, read the status; admin, read the status, drain workers and stop the cluster; provisioner,"
            " read the status and drain workers, for programs that start workers as they are needed",
            is_required=True,
            is_command_line_only=True,
        ),
        Option(
            "--tenant",
            Kind(),
            "whom the key belongs to: a client's tasks and objects are its tenant's, and run only on workers of this"
            " tenant or of '*'; a worker of '*' runs the tasks of all tenants; a monitor or admin of a tenant sees that"
            " tenant alone, one of '*' all",
            default_text="'*' for monitor, admin and provisioner, otherwise default",
            metavar="TENANT",
            is_command_line_only=True,
        ),
        Option(
            "--name",
            Kind(),
            "of the key, for lists and logs, and to revoke it",
            default_text="the role and a number, such as worker-1",
            metavar="NAME",
            is_command_line_only=True,
        ),
        Option(
            "--expires",
            Kind(),
            "when the key ends: a lifetime such as 90d (h, d, w, y), or a time in UTC such as 2027-01-01 or"
            " 2027-01-01T12:00:00Z",
            default_text="never",
            metavar="WHEN",
            is_command_line_only=True,
        ),
        Option(
            "-o --output",
            NewFile(),
            "write the key file here, with mode 0600, instead of to standard output; it must not exist yet",
            is_command_line_only=True,
        ),
        _RELOAD,
    ],
    epilog="examples:\n"
    "  scaler keys new --role worker --output worker.key\n"
    "  scaler keys new --role worker --tenant research --output research-worker.key\n"
    "  scaler keys new --role worker --tenant '*' --output shared-worker.key\n"
    "  scaler keys new --role client --name alice-laptop --expires 90d > alice.key\n"
    "  scaler keys new --role worker | ssh node1 'umask 077; cat > worker.key'\n"
    "  scaler keys new --role worker | kubectl create secret generic scaler-worker --from-file=worker.key=/dev/stdin",
    faults=_faults_of_new,
)
LIST = _program(
    "list",
    "List the authorized keys: name, role, tenant, expiry and fingerprint. No secrets are shown.",
    [],
)
REVOKE = _program(
    "revoke",
    "Withdraw the authorization of a key. Schedulers that run elsewhere must read their folder again: send them"
    " SIGHUP.",
    [
        Option(
            "key",
            Kind(),
            "its name, its fingerprint, or its public key; a name that several keys have revokes all of them",
            metavar="NAME|FINGERPRINT|PUBLIC_KEY",
            is_required=True,
            is_command_line_only=True,
        ),
        _RELOAD,
    ],
    epilog="examples:\n"
    "  scaler keys revoke alice-laptop\n"
    "  scaler keys revoke 3f2a-91c0-4d7e-aa01\n"
    "  scaler keys revoke -- 'PUBLIC_KEY'      # quoted, as it may have any character",
)
ROTATE = _program(
    "rotate",
    "Make a new key of the scheduler. It proves to own the old ones, too, until they are forgotten, so key files that"
    " exist stay valid meanwhile; new ones have the new key.",
    [
        Option(
            "--forget-old",
            Switch(has_negation=False),
            "make no new key, and remove all but the newest: key files without it become invalid",
            default=False,
            is_command_line_only=True,
        ),
        _RELOAD,
    ],
    epilog="examples:\n"
    "  scaler keys rotate                # then give new key files to programs elsewhere\n"
    "  scaler keys rotate --forget-old   # when all of them have one",
)
SHOW = _program(
    "show",
    "Show where the keys are, and the public keys of the scheduler. No secrets are shown.",
    [],
)

RELOAD = _program(
    "reload",
    "Let the schedulers of this user on this host that use the folder read it again (SIGHUP), after its files were"
    " changed otherwise than by these commands.",
    [],
)

COMMANDS: Dict[str, Program] = {
    program.name.split()[-1]: program for program in (NEW, LIST, REVOKE, ROTATE, SHOW, RELOAD)
}

KEYS = Program(
    name="scaler keys",
    page="security#scaler-keys",
    section="keys",
    description="Make, list and revoke the keys with which programs connect to a scheduler, and replace the"
    " scheduler's own.",
    epilog="commands:\n"
    "  new      make and authorize a key, and write its key file\n"
    "  list     list the authorized keys\n"
    "  revoke   withdraw the authorization of a key\n"
    "  rotate   replace the scheduler's own key, with overlap\n"
    "  show     show where the keys are, and the scheduler's public key\n"
    "  reload   let running schedulers read the keys again\n"
    "\n"
    "`scaler keys COMMAND -h` shows its options and examples.\n"
    "\n"
    "On one host, and on hosts that share a home, programs of one user need none of this: a\n"
    "scheduler makes its keys by itself, and they find them. For others, make one key file each\n"
    "where the scheduler runs, and hand it over in private. A program uses it with --key-file FILE,\n"
    "or with SCALER_KEY_FILE=FILE in its environment.",
    version=_version,
    is_configured=False,
    commands=list(COMMANDS.values()),
    options=[
        Option(
            "command",
            Choice(tuple(COMMANDS)),
            "what to do",
            metavar="COMMAND",
            is_required=True,
            is_command_line_only=True,
        )
    ],
)
