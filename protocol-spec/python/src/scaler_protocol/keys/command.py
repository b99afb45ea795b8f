"""`scaler keys COMMAND` and `scaler_scheduler keys COMMAND`: make, list, revoke and rotate keys.

Rules:
- A secret is written in one place only: to the key file, which is private before the first byte is in it. It is never
  written to a terminal.
- Standard output has what was asked for, such as the key file; standard error has what people should know about it.
- A key is authorized once its file is written, and not if that fails.
- New secret keys come from libsodium's generator (`crypto_box_keypair`).
- Exit codes: 0, done; 1, it failed, and nothing has changed; 2, wrong command line.
"""

from __future__ import annotations

import argparse
import os
import signal
import stat
import sys
import time
from typing import Callable, Dict, Iterable, List, Sequence

from scaler_protocol.host.discovery import SCHEDULER, DiscoveryError, entries
from scaler_protocol.host.sodium import MissingLibraryError, load_sodium
from scaler_protocol.keys.allow_list import AllowList, Grant
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.expiry import parse_expiry, time_text
from scaler_protocol.keys.key_directory import AUTHORIZED_KEYS, KeyDirectory, default_key_directory
from scaler_protocol.keys.key_file import KeyFile, key_file_text, write_key_file
from scaler_protocol.keys.key_text import encode_key, fingerprint
from scaler_protocol.keys.keys_options import COMMANDS, KEYS, tenant_of
from scaler_protocol.keys.lookup import DIRECTORY_DETAIL

EXIT_FAILED = 1

_USES = {
    "client": 'Use it with: Client("tcp://HOST:PORT", key_file="FILE")',
    "worker": "Use it with: scaler_cluster --key-file FILE tcp://HOST:PORT",
    "monitor": "Use it with: scaler_top --key-file FILE tcp://HOST:MONITOR_PORT",
    "admin": 'Use it with: Client("tcp://HOST:PORT", key_file="FILE")',
    "provisioner": 'Use it with: Client("tcp://HOST:PORT", key_file="FILE")',
}
_STANDARD_OUTPUT = 1


def main(arguments: Sequence[str], name: str = "scaler keys") -> int:
    """Run the program; its exit code.

    Parameters:
        name: of the command, for its help.
    """
    word = arguments[0] if arguments else ""
    if word not in COMMANDS:
        if not arguments:
            KEYS.parser(name).print_help(sys.stderr)
            return 2
        word, arguments = str(KEYS.read(arguments, name).command), [""]
    program = f"{name} {word}"
    options = COMMANDS[word].read(list(arguments[1:]), program)
    directory = KeyDirectory(options.directory or default_key_directory())
    try:
        return _ACTIONS[word](directory, options)
    except (KeyFileError, MissingLibraryError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return EXIT_FAILED


def _new(directory: KeyDirectory, options: argparse.Namespace) -> int:
    if options.output is None and os.isatty(_STANDARD_OUTPUT):
        raise KeyFileError(
            "a key file is a secret, and standard output is a terminal: add --output FILE, or redirect it to a file or"
            " a program"
        )
    arithmetic = load_sodium()
    directory.open_or_create(arithmetic)
    allowed = directory.allow_list()
    name = options.name or _free_name(allowed, options.role)
    if allowed.matching(name):
        raise KeyFileError(f"there is a key {name} already: choose another --name, or revoke it first")
    expires = parse_expiry(options.expires, time.time()) if options.expires is not None else None
    server_keys = tuple(pair.public for pair in directory.server_key_pairs())
    key_file = KeyFile(options.role, tenant_of(options), name, arithmetic.new_keys(), server_keys, expires)
    _hand_over(directory, key_file, options.output)
    _tell_about(directory, key_file, options.output)
    _reload(directory, options.reload)
    return 0


def _hand_over(directory: KeyDirectory, key_file: KeyFile, output: object) -> None:
    """Write the file, and authorize the key: both, or neither."""
    public_key = key_file.keys.public
    if output is not None:
        write_key_file(str(output), key_file)
        try:
            directory.add(key_file.grant, public_key)
        except BaseException:
            os.unlink(str(output))
            raise
        return
    _make_private(_STANDARD_OUTPUT)
    directory.add(key_file.grant, public_key)
    try:
        sys.stdout.write(key_file_text(key_file))
        sys.stdout.flush()
    except OSError as error:
        directory.revoke(encode_key(public_key))
        # What could not be written would be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STANDARD_OUTPUT)
        raise KeyFileError(f"the key file could not be written: {error.strerror}; the key is not authorized") from None


def _make_private(descriptor: int) -> None:
    """Let no other user open the file from now on, if it is one. Raises KeyFileError if that is impossible."""
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077:
        try:
            os.fchmod(descriptor, 0o600)
        except OSError as error:
            raise KeyFileError(
                f"other users can read the file that standard output is, and its mode cannot be changed:"
                f" {error.strerror}; use --output FILE"
            ) from None
        _tell(
            f"The file had mode {stat.S_IMODE(found.st_mode):04o}, and now has 0600. In a folder that other users can"
            " read, use --output FILE: it is private from the start."
        )


def _free_name(allowed: AllowList, role: str) -> str:
    taken = {grant.name for grant in allowed.grants.values()}
    return next(name for number in range(1, len(taken) + 2) if (name := f"{role}-{number}") not in taken)


def _tell_about(directory: KeyDirectory, key_file: KeyFile, output: object) -> None:
    until = "does not expire" if key_file.expires is None else f"expires on {time_text(key_file.expires)}"
    _tell(
        f"Authorized {key_file.name} (role {key_file.role}, tenant {key_file.tenant}), which {until}, in"
        f" {os.path.join(directory.path, AUTHORIZED_KEYS)}."
    )
    if output is not None:
        _tell(f"Its key file is {output}.")
    _tell(_USES[key_file.role])


def _list(directory: KeyDirectory, options: argparse.Namespace) -> int:
    now = time.time()
    rows = [("NAME", "ROLE", "TENANT", "EXPIRES", "FINGERPRINT")]
    for key, grant in directory.allow_list().grants.items():
        rows.append((grant.name, grant.role, grant.tenant, _expiry_text(grant, now), fingerprint(key)))
    _print_table(rows)
    return 0


def _expiry_text(grant: Grant, now: float) -> str:
    if grant.expires is None:
        return "never"
    return f"{time_text(grant.expires)}{' (expired)' if grant.expires <= now else ''}"


def _revoke(directory: KeyDirectory, options: argparse.Namespace) -> int:
    for key, grant in directory.revoke(options.key).items():
        print(f"revoked {grant.name} (role {grant.role}, tenant {grant.tenant}, {fingerprint(key)})")
    _reload(directory, options.reload)
    return 0


def _rotate(directory: KeyDirectory, options: argparse.Namespace) -> int:
    if options.forget_old:
        count = directory.forget_old()
        print(
            f"removed {count} old server key{'' if count == 1 else 's'}; key files without the newest are now invalid"
        )
    else:
        print(f"new server key: {encode_key(directory.rotate(load_sodium()))}")
        _tell(
            "This user's programs expect it from now on: schedulers that run elsewhere must read their keys again now."
            " The old ones stay valid until: scaler keys rotate --forget-old"
        )
    _reload(directory, options.reload)
    return 0


def _show(directory: KeyDirectory, options: argparse.Namespace) -> int:
    pairs = directory.server_key_pairs()
    rows = [("folder", directory.path), ("server key", encode_key(pairs[0].public))]
    rows += [("old server key", encode_key(pair.public)) for pair in pairs[1:]]
    if directory.has_owner():
        rows.append(("owner", fingerprint(directory.owner().keys.public)))
    rows.append(("authorized", str(len(directory.allow_list().grants))))
    _print_table(rows)
    return 0


def _reload_only(directory: KeyDirectory, options: argparse.Namespace) -> int:
    directory.allow_list()  # an error here would be one of the scheduler
    return 0 if _reload(directory, True) else EXIT_FAILED


_ACTIONS: Dict[str, Callable[[KeyDirectory, argparse.Namespace], int]] = {
    "new": _new,
    "list": _list,
    "revoke": _revoke,
    "rotate": _rotate,
    "show": _show,
    "reload": _reload_only,
}


def _reload(directory: KeyDirectory, is_wanted: bool) -> bool:
    """Let running schedulers read the folder again, and say which do; returns whether any does."""
    signalled = reload_schedulers(directory.path) if is_wanted else []
    for address in signalled:
        _tell(f"Told the scheduler at {address} to read its keys again.")
    if not signalled:
        found = "No scheduler that uses this folder was found on this host. " if is_wanted else ""
        _tell(f"{found}A running scheduler reads its keys again when it gets SIGHUP: kill -HUP PROCESS_ID")
    return bool(signalled)


def reload_schedulers(path: str) -> List[str]:
    """Send SIGHUP to the schedulers of this user on this host that announce a folder of keys; their addresses.

    Parameters:
        path: of the folder, absolute.
    """
    try:
        found = entries(SCHEDULER)
    except (DiscoveryError, OSError) as error:
        _tell(f"Schedulers that run could not be found: {error}")
        return []
    signalled = []
    for entry in found:
        announced = entry.details.get(DIRECTORY_DETAIL)
        if announced and os.path.realpath(announced) == os.path.realpath(path):
            try:
                os.kill(entry.process_id, signal.SIGHUP)
                signalled.append(entry.address)
            except OSError as error:
                _tell(f"The scheduler at {entry.address} could not be signalled: {error.strerror}")
    return signalled


def _print_table(rows: Iterable[Sequence[str]]) -> None:
    lines = list(rows)
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def _tell(text: str) -> None:
    print(text, file=sys.stderr)
