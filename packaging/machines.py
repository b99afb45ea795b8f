"""Which machine a program is for, and how one for another machine is run on this one: by qemu.

    machine_of(file)          "aarch64", by the file's header; None of a script
    command_for("aarch64")    what goes in front of the program's own command; nothing for this machine

Rules:
- Programs that a program executes run by qemu too, as the single file's PyPy. The kernel does that once it knows qemu,
  which it is told in a user namespace of the command's own (Linux 6.7 and later): the system stays as it is.
- The process that is started becomes the program, so that its signals, exit code and process id are the program's.
"""

from __future__ import annotations

import functools
import platform
import shutil
import subprocess
from pathlib import Path
from typing import List, Optional

_NUMBERS = {"x86_64": 62, "aarch64": 183}
"""Of the machines, in the headers of ELF files."""

_REGISTER = """\
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc &&
printf '%s' "$1" > /proc/sys/fs/binfmt_misc/register && shift && exec "$@"
"""


class NotRunnableError(Exception):
    """Why no program for a machine can be run here, and what to do."""


def machine_of(file: Path) -> Optional[str]:
    """The machine that an ELF file of 64 bits is for, as the kernel calls it; None if it is something else."""
    with open(file, "rb") as opened:
        header = opened.read(20)
    number = int.from_bytes(header[18:20], "little")
    known = {number: machine for machine, number in _NUMBERS.items()}
    return known.get(number) if header[:6] == b"\x7fELF\x02\x01" else None


@functools.cache
def _command_for(machine: str) -> List[str]:
    if machine == platform.machine():
        return []
    qemu = shutil.which(f"qemu-{machine}-static")
    namespace = shutil.which("unshare")
    if qemu is None or namespace is None:
        raise NotRunnableError(
            f"programs for {machine} run by qemu here, which is missing; on Debian: apt-get install qemu-user-static"
        )
    # Executables and shared libraries of 64 bits, the lowest byte first, of this machine. P: with the name that they
    # are called by; F: qemu is opened now, for it may be out of sight in another root.
    magic = "".join(f"\\x{byte:02x}" for byte in (*b"\x7fELF\x02\x01\x01", *bytes(9), 2, 0, _NUMBERS[machine], 0))
    mask = "\\xff" * 7 + "\\x00" * 9 + "\\xfe" + "\\xff" * 3
    entry = f":qemu-{machine}:M::{magic}:{mask}:{qemu}:PF"
    command = [namespace, "--user", "--map-root-user", "--mount", "sh", "-c", _REGISTER, "sh", entry]
    trial = subprocess.run([*command, "true"], capture_output=True, text=True)
    if trial.returncode:
        raise NotRunnableError(
            f"no program for {machine} can be run here: {trial.stderr.strip()}\n"
            "It takes Linux 6.7 or later, and the right to create user namespaces."
        )
    return command


def command_for(machine: Optional[str]) -> List[str]:
    """What goes in front of a command whose program is for a machine; None is this one.

    Raises NotRunnableError.
    """
    return list(_command_for(machine)) if machine else []
