"""A whole machine of another kind, emulated by qemu: Debian's kernel for it, a few files in memory, and a script.

    machine = EmulatedMachine("aarch64", TREE / "build/debian-arm64-kernel")
    output = machine.run({"scaler_scheduler": file}, "scaler_scheduler --self-test")

Rules:
- The script is the first program, run by busybox's shell; the machine is off when the script has ended. It has /proc,
  /dev, /dev/shm, its loopback, the files in /bin, and nothing else.
- The kernel and busybox are Debian's packages for that machine, fetched once and not installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Dict, List, NamedTuple

from systems import DebianSystem, run

# The shell and the commands of the script.
TOOLS = "busybox-static"
SCRIPT = """\
#!/bin/sh
busybox mount -t proc proc /proc
busybox mount -t devtmpfs dev /dev
busybox mkdir /dev/shm
busybox mount -t tmpfs shm /dev/shm
busybox ifconfig lo 127.0.0.1 up
export HOME=/root
{script}
busybox poweroff -f
"""
FOLDERS = ["bin", "dev", "proc", "root", "tmp"]
MEMORY_MEBIBYTES = 1536


class Kind(NamedTuple):
    """How one is emulated."""

    command: List[str]
    kernel: str
    console: str


KINDS = {
    "aarch64": Kind(["qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a72"], "linux-image-arm64", "ttyAMA0"),
    "x86_64": Kind(["qemu-system-x86_64", "-M", "q35", "-cpu", "max"], "linux-image-amd64", "ttyS0"),
}


def why_not(machine: str) -> str:
    """Why none can be emulated here; empty when it can."""
    emulator = KINDS[machine].command[0]
    return "" if shutil.which(emulator) else f"there is no {emulator} here"


class EmulatedMachine:
    """A machine that starts for each script; its packages are kept in `folder`."""

    def __init__(self, machine: str, folder: Path) -> None:
        self._kind = KINDS[machine]
        self._system = DebianSystem(machine, folder)
        self._folder = folder
        if not (folder / "fetched").exists():
            self._fetch()

    def _fetch(self) -> None:
        self._system.apt("apt-get", "--quiet", "update")
        # The package of this name has none but the newest kernel's to depend on.
        depends = self._system.apt("apt-cache", "depends", self._kind.kernel)
        [kernel] = re.findall(r"Depends: (linux-image-\S+)", depends)
        self._system.apt("apt-get", "--quiet", "download", kernel, TOOLS)
        for archive in (self._folder / "cache/archives").glob("*.deb"):
            run("dpkg-deb", "--extract", str(archive), str(self._system.root))
        (self._folder / "fetched").touch()

    def run(self, programs: Dict[str, Path], script: str, timeout_seconds: float) -> str:
        """What the machine writes to its console, from its start until it is off.

        Parameters:
            programs: what is in /bin, by name.
        """
        entries = [(name, 0o040755, b"") for name in FOLDERS]
        entries.append(("init", 0o100755, SCRIPT.format(script=script).encode()))
        busybox = self._system.root / "bin/busybox"
        for name, program in {**programs, "busybox": busybox, "sh": busybox}.items():
            entries.append((f"bin/{name}", 0o100755, program.read_bytes()))
        files = self._folder / "files.cpio"
        files.write_bytes(b"".join(cpio_entry(*entry) for entry in [*entries, ("TRAILER!!!", 0, b"")]))
        [kernel] = (self._system.root / "boot").glob("vmlinuz-*")
        command = [*self._kind.command, "-m", str(MEMORY_MEBIBYTES), "-smp", "2", "-nographic", "-no-reboot"]
        command += ["-nic", "none", "-kernel", str(kernel), "-initrd", str(files)]
        command += ["-append", f"console={self._kind.console} quiet panic=-1"]
        finished = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_seconds
        )
        assert finished.returncode == 0, finished.stderr
        return finished.stdout.replace("\r\n", "\n")


def cpio_entry(name: str, mode: int, content: bytes) -> bytes:
    """A file of an archive as the kernel reads it at its start (cpio's format newc)."""
    numbers = [0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
    header = b"070701" + "".join(f"{number:08X}" for number in numbers).encode() + name.encode() + b"\0"
    return header + bytes(-len(header) % 4) + content + bytes(-len(content) % 4)
