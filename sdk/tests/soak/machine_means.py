"""What this machine offers for faults: file systems that can be filled, networks that can be unplugged, memory limits.

Rules:
- As root, a soak runs in a network and a mount namespace of its own: its ports, its /dev/shm and its small file systems
  belong to it alone, and vanish with it even if it is killed. Other users try it with a user namespace.
- Where namespaces are missing, links of the network are only stalled and broken by forwarders, and no file system is
  filled. Where no cgroup can be made, the tight worker has a limit of addresses (RLIMIT_AS).
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import FrozenSet, List, Optional, Sequence

MEMORY_BYTES = 96 << 20
DISK_BYTES = 256 << 20
TIGHT_BYTES = 400 << 20  # of the tight worker: agent, fork server and processors together
TIGHT_ADDRESS_BYTES = 1 << 30  # of each of its processes, where no cgroup can be made
SQUEEZED_ROOM_BYTES = 4 << 20
INSIDE_VARIABLE = "SCALER_SOAK_IS_INSIDE"
NAMESPACES = ("--mount", "--net")
CGROUPS = Path("/sys/fs/cgroup")
HERE_ADDRESS, OTHER_ADDRESS = "10.213.0.1", "10.213.0.2"


def enter_namespaces(command: Sequence[str]) -> None:
    """Run this program again in namespaces of its own, if the machine allows it. Returns inside, or if it does not."""
    if INSIDE_VARIABLE in os.environ:
        return
    user = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    unshare = ["unshare", *user, *NAMESPACES]
    probe = (
        "mount -t tmpfs -o size=1m soak /dev/shm && ip link set lo up && ip link add soak0 type veth peer name soak1"
    )
    is_possible = _succeeds([*unshare, "sh", "-c", probe])
    os.environ[INSIDE_VARIABLE] = "namespaces" if is_possible else ""
    if is_possible:
        os.execvp("unshare", [*unshare, *command])


def _succeeds(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


class Machine:
    """The means, set up in a folder.

    Attributes:
        means: what works here: "namespaces", "file systems", "cgroup".
        memory, disk: where schedulers keep objects; file systems of their own if possible.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.memory = self._make_folder("memory")
        self.disk = self._make_folder("disk")
        self._other: Optional[subprocess.Popen[str]] = None  # holds the namespaces of the other host
        self._cgroup: Optional[Path] = None
        means = set()
        if os.environ.get(INSIDE_VARIABLE):
            means |= {"namespaces", "file systems"}
            _mount(Path("/dev/shm"), 1 << 30)
            _mount(self.memory, MEMORY_BYTES)
            _mount(self.disk, DISK_BYTES)
            _run("ip", "link", "set", "lo", "up")
            self._make_other_host()
        if self._make_cgroup():
            means.add("cgroup")
        self.means: FrozenSet[str] = frozenset(means)

    def _make_folder(self, name: str) -> Path:
        path = self.folder / name
        path.mkdir()
        return path

    # Another host -----------------------------------------------------------------------------------------------------

    def _make_other_host(self) -> None:
        """A network of its own, and file systems on which this host's objects are not visible."""
        hide = f"mount -t tmpfs soak /dev/shm && mount -t tmpfs soak {self.memory} && mount -t tmpfs soak {self.disk}"
        command = ["unshare", *NAMESPACES, "sh", "-c", f"{hide} && ip link set lo up && echo ready && exec cat"]
        self._other = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._other.stdout is not None and self._other.stdout.readline() == "ready\n"
        _run("ip", "link", "add", "soak0", "type", "veth", "peer", "name", "soak1", "netns", str(self._other.pid))
        _run("ip", "addr", "add", f"{HERE_ADDRESS}/30", "dev", "soak0")
        _run("ip", "link", "set", "soak0", "up")
        _run(*self.on_other_host("ip", "addr", "add", f"{OTHER_ADDRESS}/30", "dev", "soak1"))
        self.plug(True)

    def on_other_host(self, *command: str) -> List[str]:
        """The command that runs a command there; itself if there is only this host."""
        if self._other is None:
            return list(command)
        return ["nsenter", "-t", str(self._other.pid), "-n", "-m", *command]

    @property
    def address_from_other_host(self) -> str:
        return "127.0.0.1" if self._other is None else HERE_ADDRESS

    def plug(self, is_plugged: bool) -> None:
        """The cable between the hosts: without it, packets are dropped and no connection ends."""
        _run(*self.on_other_host("ip", "link", "set", "soak1", "up" if is_plugged else "down"))

    # Full file systems ------------------------------------------------------------------------------------------------

    def fill(self, directory: Path) -> None:
        """Leave no room in a file system."""
        with contextlib.suppress(OSError), open(directory / "filler", "wb", buffering=0) as file:
            system = os.statvfs(directory)
            os.posix_fallocate(file.fileno(), 0, max(system.f_bavail * system.f_frsize, 1))

    def free(self, directory: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            (directory / "filler").unlink()

    # Little memory ----------------------------------------------------------------------------------------------------

    def _make_cgroup(self) -> bool:
        name = f"scaler-soak-{os.getpid()}"
        for parent, limit in ((CGROUPS / "memory", "memory.limit_in_bytes"), (CGROUPS, "memory.max")):
            path = parent / name
            with contextlib.suppress(OSError):
                path.mkdir()
                self._cgroup = path
                (path / limit).write_text(str(TIGHT_BYTES))
                self._limit = path / limit
                return True
            with contextlib.suppress(OSError):
                path.rmdir()
            self._cgroup = None
        return False

    def with_little_memory(self, *command: str) -> List[str]:
        """The command, so that its process, and all that it starts, have little memory from the beginning."""
        if self._cgroup is not None:
            limit = f"echo $$ > {self._cgroup}/cgroup.procs"
        else:
            limit = f"ulimit -v {TIGHT_ADDRESS_BYTES >> 10}"
        return ["sh", "-c", f'{limit} && exec "$@"', "sh", *command]

    def squeeze(self, is_squeezed: bool, process_ids: Sequence[int]) -> None:
        """Leave the tight worker's processes next to no memory, or what they had."""
        if self._cgroup is not None:
            current = "memory.usage_in_bytes" if (self._cgroup / "memory.usage_in_bytes").exists() else "memory.current"
            used = int((self._cgroup / current).read_text())
            with contextlib.suppress(OSError):  # the system cannot free as much
                self._limit.write_text(str(used + SQUEEZED_ROOM_BYTES if is_squeezed else TIGHT_BYTES))
            return
        for process_id in process_ids:
            if is_squeezed:
                starve(process_id)
            else:
                feed(process_id)

    def close(self) -> None:
        if self._other is not None:
            assert self._other.stdin is not None
            self._other.stdin.close()
            self._other.wait()
        for directory in (self.memory, self.disk):
            if os.path.ismount(directory):
                _succeeds(["umount", str(directory)])
        if self._cgroup is not None:
            deadline = time.monotonic() + 10.0
            while self._cgroup.exists() and time.monotonic() < deadline:
                with contextlib.suppress(OSError):  # its last processes are ending
                    self._cgroup.rmdir()
                    break
                time.sleep(0.05)


def starve(process_id: int) -> None:
    """Leave a process no new addresses: what does not fit in what it has freed fails with MemoryError."""
    _limit_addresses(process_id, _address_bytes(process_id))


def feed(process_id: int) -> None:
    """Undo `starve`."""
    _limit_addresses(process_id, resource.RLIM_INFINITY)


def _address_bytes(process_id: int) -> int:
    try:
        return int(Path(f"/proc/{process_id}/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
    except (OSError, IndexError):
        return TIGHT_ADDRESS_BYTES  # it has just ended


def _limit_addresses(process_id: int, soft: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        hard = resource.prlimit(process_id, resource.RLIMIT_AS)[1]
        limits = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
        resource.prlimit(process_id, resource.RLIMIT_AS, (min(limits, default=resource.RLIM_INFINITY), hard))


def _mount(directory: Path, size: int) -> None:
    _run("mount", "-t", "tmpfs", "-o", f"size={size}", "soak", str(directory))


def _run(*command: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"soak: {' '.join(command)} failed: {done.stderr.strip()}")
