"""A root folder with nothing in it but a few devices, to run a program in as on a machine without anything.

    root = EmptyRoot(tmp_path / "root")
    root.add(Path("dist/pypy/scaler_scheduler"), "/scaler_scheduler")
    process = root.start("/scaler_scheduler", "tcp://127.0.0.1:2345")

Rules:
- The process that is started becomes the program (chroot and unshare replace themselves by it), so that its signals,
  its exit code and its process id are the program's.
- The network is the host's, so that peers outside reach the program. There is no /proc, no /etc, no other user.
- The environment is empty but for HOME and PATH, unless a test says otherwise.
- With the C library, it has /bin/sh too.
- Nothing is mounted, so that removing the folder is all there is to clean up.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

SHELL = "/bin/sh"
HOME = "/root"
FOLDERS = {"dev": 0o755, "dev/shm": 0o1777, "tmp": 0o1777, "root": 0o700, "bin": 0o755}
DEVICES = {"null": (1, 3), "zero": (1, 5), "urandom": (1, 9)}
# All of the C library that programs are linked with, whatever the shell itself needs of it.
C_LIBRARY = re.compile(r"(ld-linux.*|lib(c|m|dl|pthread|rt|util|resolv|nss_files|nss_dns|anl|nsl|mvec))\.so\.\d+")
TRIAL_SECONDS = 60.0


@functools.cache
def why_not() -> str:
    """Why no program can be run in an empty root here; empty when it can."""
    for tool in ("chroot", "ldd", *(() if os.geteuid() == 0 else ("unshare",))):
        if _tool(tool) is None:
            return f"no empty root: there is no {tool} here"
    with tempfile.TemporaryDirectory() as folder:
        try:
            trial = EmptyRoot(Path(folder) / "root", with_c_library=True).run(
                SHELL, "-c", "exit 7", timeout=TRIAL_SECONDS
            )
        except (OSError, subprocess.SubprocessError) as error:
            return f"no empty root: {error}"
    if trial.returncode != 7:
        return f"no empty root: neither root nor a user namespace: {trial.stderr.strip() or trial.returncode}"
    return ""


class EmptyRoot:
    """An empty root, made in `folder`, which must not be there yet."""

    def __init__(self, folder: Path, with_c_library: bool = False) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        for name, mode in FOLDERS.items():
            (folder / name).mkdir()
            (folder / name).chmod(mode)
        for name, (major, minor) in DEVICES.items():
            self._add_device(folder / "dev" / name, major, minor)
        if with_c_library:
            self._add_c_library()

    def _add_c_library(self) -> None:
        self.add(Path(SHELL), SHELL)
        for library in _libraries_of(SHELL):
            self.add(library, str(library))
            if library.name.startswith("libc."):
                for part in library.resolve().parent.iterdir():
                    if C_LIBRARY.fullmatch(part.name):
                        self.add(part, f"{library.parent}/{part.name}")

    def add(self, source: Path, inside: str) -> Path:
        """Copy a file to a path of the root; links are followed. Returns where it is now, seen from outside."""
        target = self.outside(inside)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
        return target

    def outside(self, inside: str) -> Path:
        """Where a path of the root is, seen from outside."""
        return self.folder / inside.lstrip("/")

    def command(self, *arguments: str, user: Optional[int] = None) -> List[str]:
        """The command that runs a program in the root, as the caller's user or, where that is root, as another."""
        chroot = [_tool("chroot") or "chroot"]
        if user is not None:
            chroot.append(f"--userspec={user}:{user}")
        namespace = [] if os.geteuid() == 0 else [_tool("unshare") or "unshare", "--user", "--map-root-user"]
        return [*namespace, *chroot, str(self.folder), *arguments]

    def start(
        self, *arguments: str, user: Optional[int] = None, env: Optional[Mapping[str, str]] = None, **options: Any
    ) -> subprocess.Popen[str]:
        """Start a program in the root; `env` is added to HOME and PATH, the rest is as for `subprocess.Popen`."""
        return subprocess.Popen(
            self.command(*arguments, user=user), env={**_environment(), **(env or {})}, text=True, **options
        )

    def run(
        self, *arguments: str, user: Optional[int] = None, env: Optional[Mapping[str, str]] = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in the root to its end, as `subprocess.run` does, with its output captured."""
        return subprocess.run(
            self.command(*arguments, user=user),
            env={**_environment(), **(env or {})},
            text=True,
            stdin=options.pop("stdin", subprocess.DEVNULL),
            capture_output=True,
            **options,
        )

    @staticmethod
    def _add_device(path: Path, major: int, minor: int) -> None:
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
        except PermissionError:
            path.touch()  # in a user namespace: a file that swallows what is written does for /dev/null
        path.chmod(0o666)


def _environment() -> Dict[str, str]:
    return {"HOME": HOME, "PATH": "/bin"}


def _tool(name: str) -> Optional[str]:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")


def _libraries_of(program: str) -> List[Path]:
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return [Path(path) for path in re.findall(r"(/\S+) \(0x", listing)]
