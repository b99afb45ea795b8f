"""What the tests of the single file with PyPy share: how it is built, and ways to run it.

Rules: what `make dist-pypy` has built is tested, built again if what it is made of has changed. Where it has built
nothing, the file is one that is hardly compressed, and which is otherwise the same.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import pytest
from empty_root import EmptyRoot

from scaler import Client

TREE = Path(__file__).resolve().parents[2]
BUILD = TREE / "packaging/pypy/build.py"
RELEASED = TREE / "dist/pypy/scaler_scheduler"
IS_QUICK = not RELEASED.exists()
WORK = TREE / ("build/pypy-quick" if IS_QUICK else "build/pypy")
FILE = WORK / RELEASED.name if IS_QUICK else RELEASED
OPTIONS = ["--quick"] if IS_QUICK else []
EXIT_CODE_MISSING_TOOL = 3

NOBODY = 65534
DEADLINE_SECONDS = 120.0


def build(script: Path, work: Path, output: Path, options: Sequence[str] = OPTIONS) -> None:
    """Build the file, or skip where a tool is missing. Several test runs may ask for the same one at once."""
    command = [sys.executable, str(script), *options, "--work", str(work), "--output", str(output)]
    work.mkdir(parents=True, exist_ok=True)
    with open(work / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        finished = subprocess.run(command, capture_output=True, text=True)
    if finished.returncode == EXIT_CODE_MISSING_TOOL:
        pytest.skip("the single file with PyPy: " + finished.stderr.strip().replace("\n", "; "))
    assert finished.returncode == 0, finished.stdout + finished.stderr


def build_again(folder: Path, work: Path, options: Sequence[str] = OPTIONS) -> Path:
    """Build the file a second time, from a copy of the sources in an empty folder; where it is.

    PyPy itself, when it is the same, is found compressed in `work`, which is most of the time; all else is made again.
    """
    shutil.copytree(work / "compressed", folder / "work/compressed")
    for sources in ("packaging/pypy", "protocol-spec/python/src", "appliance/src"):
        shutil.copytree(TREE / sources, folder / "tree" / sources)
    shutil.copyfile(TREE / "LICENSE", folder / "tree/LICENSE")
    kept = {path.name for path in (folder / "work/compressed").iterdir()}
    build(folder / "tree/packaging/pypy/build.py", folder / "work", folder / "scaler_scheduler", options)
    assert {path.name for path in (folder / "work/compressed").iterdir()} == kept
    return folder / "scaler_scheduler"


def run(file: Path, *arguments: str, as_user: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the file to its end with this environment and no other."""
    return subprocess.run(
        [str(file), *arguments],
        env={"PATH": "/usr/bin:/bin", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        **another_user() if as_user else {},
    )


def another_user() -> Dict[str, Any]:
    """Options of subprocess for a user to whom the modes of files apply."""
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


def user_id() -> int:
    return NOBODY if os.geteuid() == 0 else os.geteuid()


def copies(cache: Path) -> List[Path]:
    return sorted(cache.iterdir())


def check_ran_from(finished: subprocess.CompletedProcess[str], cache: Path) -> None:
    """The program ran, was unpacked to the cache, which was said in one line, and nothing else is there."""
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith("scaler_scheduler ")
    [line] = finished.stderr.splitlines()
    [copy] = copies(cache)
    assert line.startswith(f"scaler_scheduler: unpacking, this once, to {copy}: ") and line.endswith(" MB")


def wait_for_address(scheduler: subprocess.Popen[str]) -> str:
    assert scheduler.stdout is not None
    for line in scheduler.stdout:
        if "listening at " in line:
            return line.split("listening at ")[1].strip()
    raise AssertionError(scheduler.stderr and scheduler.stderr.read())


def assert_serves_outside(command: List[str]) -> None:
    """A scheduler starts, serves a client and workers of this environment, and stops when it is asked to."""
    with subprocess.Popen(
        [*command, "tcp://127.0.0.1:0", "--insecure"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as scheduler:
        address = wait_for_address(scheduler)
        workers = subprocess.Popen(
            [sys.executable, "-m", "scaler.worker", "-n", "2", "-ll", "ERROR", "--insecure", address]
        )
        with Client(address=address, insecure=True) as client:
            assert client.map(abs, range(-1000, 0)) == list(range(1000, 0, -1))
            # An object in memory, which cannot be shared with one who sees no /dev/shm in common.
            assert client.submit(len, bytes(5_000_000)).result() == 5_000_000
        scheduler.send_signal(signal.SIGTERM)
        output, errors = scheduler.communicate(timeout=DEADLINE_SECONDS)
        assert scheduler.returncode == 0, errors
        assert workers.wait(DEADLINE_SECONDS) == 0
    assert "stopped: all peers have left" in output
    [line] = errors.splitlines()
    assert "unpacking, this once, to /" in line


def mounted(commands: List[str], command: List[str]) -> List[str]:
    """A command that runs after others in a mount namespace of its own, which ends with it."""
    namespace = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    mounting = [*namespace, "sh", "-c", " && ".join([*commands, 'exec "$@"']), "sh"]
    if shutil.which("unshare") is None or subprocess.run([*mounting, "true"], capture_output=True).returncode:
        pytest.skip("no mount namespace here")
    return [*mounting, *command]


def run_with_mount(options: str, folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command where an empty file system in memory is mounted in a folder, with options of mount."""
    mount = f"mount -t tmpfs -o {options} none {shlex.quote(str(folder))}"
    return subprocess.run(
        mounted([mount], list(command)), env={**os.environ, **environment}, capture_output=True, text=True
    )


# Systems without the C library that PyPy was built against, as arguments of `command_in`.
SYSTEMS: Dict[str, Dict[str, Any]] = {
    "nothing": {},
    "nothing, and no user of this number": {"user": 1234567},
    "/proc": {"mounts": ["-t proc none proc"]},
    "another C library": {"has_musl": True},
    "a root that cannot be written to, and no home": {
        "mounts": ["--bind . .", "-o remount,bind,ro .", "-t tmpfs none tmp"],
        "home": "",
    },
}


def command_in(
    root: EmptyRoot,
    file: Path,
    mounts: Sequence[str] = (),
    user: Optional[int] = None,
    has_musl: bool = False,
    home: str = "/home",
) -> List[str]:
    """The command that runs the file in a root.

    Parameters:
        mounts: arguments of mount, in the root's folder; user: who runs it, else root.
        has_musl: the root has Alpine's C library, and a shell.
    """
    root.add(file, "/scaler_scheduler")
    root.outside("/proc").mkdir()
    root.outside("/home").mkdir(mode=0o700)
    command = ["/scaler_scheduler"]
    if has_musl:
        musl = Path(f"/lib/ld-musl-{platform.machine()}.so.1")
        if not musl.exists() or shutil.which("busybox") is None:
            pytest.skip("no musl or no busybox here")
        root.add(musl, str(musl))
        root.add(Path(str(shutil.which("busybox"))), "/bin/sh")
        command = ["/bin/sh", "-c", 'exec /scaler_scheduler "$@"', "sh"]
    if user is not None:
        if os.geteuid() != 0:
            pytest.skip("only root can be another user")
        os.chown(root.outside("/home"), user, user)
    command = ["env", f"HOME={home}" if home else "--unset=HOME", *root.command(*command, user=user)]
    if mounts:
        command = mounted([f"cd {shlex.quote(str(root.folder))}", *(f"mount {each}" for each in mounts)], command)
    return command
