"""A machine of its own whose first process is a real systemd, made of namespaces and this host's /usr, or another one.

    nsenter ──▶ systemctl, journalctl, clients        in the machine, as root
                    │
    unshare ──▶ systemd, process 1 ──▶ the units that a test installs

Rules:
- It takes root, systemd (`make systemd` installs it) and a Python of the host's in /usr. Elsewhere, tests are skipped
  and say so.
- SCALER_TEST_ROOT may name the root of another system, whose systemd is to run: `mmdebstrap --variant=minbase
  --include=systemd,dbus,procps,python3,python3-venv trixie FOLDER` makes one.
- Nothing that the machine does reaches the host: processes, mounts, network, shared memory and control groups are its
  own, /usr is read-only, and so is what it would set in the kernel.
- All of it ends with the process that started it, whatever its state: the kernel kills what runs there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List

import psutil

SYSTEM = Path(os.environ.get("SCALER_TEST_ROOT", "/"))
NEEDED = ("lib/systemd/systemd", "bin/systemctl", "bin/systemd-run", "bin/journalctl", "bin/dbus-daemon", "bin/python3")
TOOLS = ("unshare", "nsenter", "setpriv", "pivot_root")  # of the host
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
READY_SECONDS = 60.0
COMMAND_SECONDS = 120.0

# Of the distribution's units: those that set up the host's kernel or serve logins.
_MASKED = (
    *("systemd-sysctl.service", "systemd-remount-fs.service", "systemd-modules-load.service", "systemd-logind.service"),
    *("sys-kernel-debug.mount", "sys-kernel-tracing.mount", "getty.target"),
    *("systemd-update-utmp.service", "systemd-update-utmp-runlevel.service", "sys-fs-fuse-connections.mount"),
)
# Others are made when it starts.
_USERS = "root:x:0:0:root:/root:/bin/sh\n"
_GROUPS = "root:x:0:\n"

_CONTROL_GROUP = r"""
set -e
mkdir -p "$folder/groups"
mount -t cgroup2 groups "$folder/groups"
"""

_OUTSIDE = (
    _CONTROL_GROUP
    + r"""
mkdir "$folder/groups/$name"
echo $$ > "$folder/groups/$name/cgroup.procs"
umount "$folder/groups"
exec unshare --pid --mount --uts --ipc --net --cgroup --fork --kill-child sh -c "$inside"
"""
)

_INSIDE = r"""
set -e
mount -t tmpfs -o mode=755 root "$folder/root"
cd "$folder/root"
mkdir -p dev etc/systemd/system home mnt old opt proc root run srv sys tmp usr var
mount --rbind "$system/usr" usr
mount -o remount,bind,ro usr
for each in bin sbin; do mount -t tmpfs -o mode=755 programs "usr/local/$each"; done
for each in bin sbin lib lib64 lib32; do test ! -e "/usr/$each" || ln -s "usr/$each" "$each"; done
cp -a "$folder/etc/." etc
for each in ld.so.cache alternatives pam.d ssl; do test ! -e "$system/etc/$each" || cp -a "$system/etc/$each" etc; done
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 dev dev
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
mount -t tmpfs -o mode=1777 shm dev/shm
for each in null zero full random urandom tty; do : > "dev/$each"; mount --bind "/dev/$each" "dev/$each"; done
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s /proc/self/fd/1 dev/stdout
ln -s /proc/self/fd/2 dev/stderr
mount -t tmpfs -o mode=755 run run
mkdir wheels
mount --bind "$wheels" wheels
pivot_root . old
umount -l old
mount --make-rshared /
exec env -i container=namespaces "PATH=$path" /usr/lib/systemd/systemd --log-target=journal --unit=multi-user.target
"""

_REMOVE = (
    _CONTROL_GROUP
    + r"""
find "$folder/groups/$name" -depth -type d -exec rmdir {} +
umount "$folder/groups"
"""
)


def reason_not_to_run() -> str:
    """Why there can be no such machine here; empty if there can."""
    missing = [each for each in NEEDED if not (SYSTEM / "usr" / each).exists()]
    missing += [each for each in TOOLS if shutil.which(each, path=f"{PATH}:/sbin:/bin") is None]
    if missing:
        return f"no {', '.join(missing)} (make systemd, as root)"
    if os.geteuid() != 0:
        return "a machine of namespaces is made as root"
    try:
        _python("-c", "import ensurepip, sys; sys.exit(sys.version_info < (3, 9))")
    except subprocess.CalledProcessError:
        return "the system's python3 is older than 3.9, or lacks ensurepip (make systemd, as root)"
    trial = ["unshare", "--mount", "--pid", "--net", "--cgroup", "--fork", "mount", "-t", "cgroup2", "groups", "/mnt"]
    tried = subprocess.run(trial, capture_output=True, text=True)
    return f"no namespaces and control groups of its own: {tried.stderr.strip()}" if tried.returncode else ""


def _python(*arguments: str) -> str:
    """What the machine's Python prints, run as a program of the host."""
    command = ["chroot", str(SYSTEM), "/usr/bin/python3", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


class SystemdMachine:
    """
    Parameters:
        wheels: a folder that the machine sees at /wheels.
    """

    def __init__(self, wheels: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="scaler-machine-"))
        self._variables = {"folder": str(self._folder), "name": self._folder.name, "wheels": str(wheels)}
        self._variables.update(path=PATH, system=str(SYSTEM).rstrip("/"))

    def __enter__(self) -> SystemdMachine:
        etc = self._folder / "etc"
        units = etc / "systemd/system"
        units.mkdir(parents=True)
        (self._folder / "root").mkdir()
        files = {"passwd": _USERS, "group": _GROUPS, "machine-id": "", "hostname": "machine\n"}
        for name, text in {**files, "hosts": "127.0.0.1 localhost\n", "nsswitch.conf": "hosts: files\n"}.items():
            (etc / name).write_text(text)
        for name in _MASKED:
            (units / name).symlink_to("/dev/null")
        with open(self._folder / "output", "wb") as output:
            self._outer = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "private", "sh", "-c", _OUTSIDE],
                env={**os.environ, **self._variables, "inside": _INSIDE},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        try:
            self._wait_until_running()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _wait_until_running(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        said = ""
        while said != "running":
            assert self._outer.poll() is None, (self._folder / "output").read_text()
            assert time.monotonic() < deadline, f"systemd does not run: {said}"
            time.sleep(0.1)
            if self._first_process_is_systemd():
                command = self.command("systemctl", "is-system-running")
                said = subprocess.run(command, capture_output=True, text=True).stdout.strip()
                assert said != "degraded", self.run("systemctl", "--failed", "--no-pager").stdout

    def _first_process_is_systemd(self) -> bool:
        children = psutil.Process(self._outer.pid).children()
        return bool(children) and children[0].name() == "systemd"

    def _first_process(self) -> int:
        (first,) = psutil.Process(self._outer.pid).children()
        return int(first.pid)

    def _end(self) -> None:
        for first in psutil.Process(self._outer.pid).children() or [self._outer]:
            first.kill()  # and the kernel ends all that is in the machine, before the process outside hears of it
        self._outer.wait()
        subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", _REMOVE],
            env={**os.environ, **self._variables},
            check=True,
        )
        shutil.rmtree(self._folder)

    # What runs there ------------------------------------------------------------------------------------------------

    def command(self, *arguments: str, **variables: str) -> List[str]:
        """The command that runs a program there, as root, with these variables; it ends when the command does."""
        given = [f"{name}={value}" for name, value in variables.items()]
        enter = ["nsenter", f"--target={self._first_process()}", "--all"]
        with_it = ["setpriv", "--pdeathsig", "KILL"]
        return [*enter, *with_it, "env", "-i", f"PATH={PATH}", "LANG=C.UTF-8", *given, *arguments]

    def try_to_run(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a program there to its end."""
        options = {"stdin": subprocess.DEVNULL, "timeout": COMMAND_SECONDS, **options}
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, **options)

    def run(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Likewise, and it succeeds."""
        finished = self.try_to_run(*arguments, **options)
        assert finished.returncode == 0, f"{arguments}: {finished.stdout}{finished.stderr}\n{self.log()}"
        return finished

    def shell(self, text: str) -> str:
        """What commands of a shell print."""
        return self.run("sh", "-ec", text).stdout

    def path(self, inside: str) -> Path:
        """Where a path of the machine is, seen from the host; an absolute link on the way leads to the host's files."""
        return Path(f"/proc/{self._first_process()}/root{inside}")

    def add(self, source: Path, inside: str) -> None:
        """Copy a file of the host, with its mode."""
        target = self.path(inside)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)

    def write(self, inside: str, text: str) -> None:
        """Write a file that all can read."""
        target = self.path(inside)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def properties(self, unit: str, *names: str) -> Dict[str, str]:
        """What systemd says of a unit."""
        lines = self.run("systemctl", "show", unit, f"--property={','.join(names)}").stdout.splitlines()
        return dict(line.split("=", 1) for line in lines)

    def failed_units(self) -> List[str]:
        """Names of units that systemd calls failed."""
        lines = self.run("systemctl", "list-units", "--failed", "--plain", "--no-legend").stdout.splitlines()
        return [line.split()[0] for line in lines]

    def log(self, *options: str) -> str:
        """What is in the journal."""
        command = self.command("journalctl", "--no-pager", "--output=short-precise", *(options or ("--lines=60",)))
        return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS).stdout


def download(folder: Path, wheels: Path, *requirements: str) -> None:
    """What pip of the machine, which has no network, is to install."""
    version = _python("-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    pip = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check", "--python-version", version]
    command = [*pip, "--only-binary=:all:", "--find-links", str(wheels), "--dest", str(folder), *requirements]
    subprocess.run(command, check=True)
