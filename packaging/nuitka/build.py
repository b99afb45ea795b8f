"""Build the nuitka binary: one file with the appliance, compiled, and CPython's library. It takes minutes.

    .venv-packaging/bin/python packaging/nuitka/build.py dist/wheels dist/nuitka/scaler_scheduler

Rules:
- The program is what the wheels install, in a folder of its own: nothing else of the building environment gets in.
- It unpacks itself below the user's cache, into a folder whose name tells its contents, and finds them there when it is
  started again.
- What the scheduler never imports is left out by name. A module that turns out to be needed fails at the start of the
  test, not at a user's.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import List

HERE = Path(__file__).resolve().parent
TREE = HERE.parents[1]
WORK = TREE / "build/nuitka"
DISTRIBUTIONS = ("scaler_protocol", "scaler_appliance")
DEBIAN_TOOLS = ("gcc", "patchelf", "ccache")
# What libzmq and CPython are linked with, and nuitka takes to be on every machine.
C_LIBRARIES = ("libstdc++.so.6", "libgcc_s.so.1", "libz.so.1")
# Also what is imported by a name that is only known when the program runs.
INCLUDED = (*DISTRIBUTIONS, "zmq.backend.cython", "anyio._backends", "jinxed", "uvicorn")
INCLUDED_MODULES = ("nacl._sodium", "_cffi_backend")  # libsodium, and what it is called through
# Of the builder's Python, the program takes over whether its locale makes it use UTF-8 for everything.
ALIKE = {"LC_ALL": "C.UTF-8", "PYTHONUTF8": "0", "PYTHONHASHSEED": "0"}
STAND_IN = HERE.parent / "pypy/stand_ins/ssl.py"
OTHER_PROGRAMS = ("scaler_top", "scaler_ui")
LEFT_OUT = (
    # Of pyzmq: what other kinds of programs need.
    *("zmq.asyncio", "zmq.auth", "zmq.backend.cffi", "zmq.devices", "zmq.eventloop", "zmq.green", "zmq.log", "zmq.ssh"),
    *("zmq.tests", "cffi", "nacl.bindings", "pycparser", "gevent", "tornado", "uvloop"),
    # Of what scaler_ui uses: for other ways to use it.
    *("anyio._backends._trio", "anyio.pytest_plugin", "uvicorn.workers", "uvloop", "httptools"),
    *("prometheus_client.twisted", "prometheus_client.aiohttp", "prometheus_client.django", "pytest", "trio"),
    # Of the standard library: what asyncio, argparse and logging could use and do not here.
    *("ssl", "_hashlib", "bz2", "lzma", "sqlite3", "tkinter", "xml", "xmlrpc", "doctest"),
    *("pdb", "pydoc", "decimal", "_decimal", "tarfile"),
    *("_codecs_cn", "_codecs_hk", "_codecs_iso2022", "_codecs_jp", "_codecs_kr", "_codecs_tw"),
)


def main(wheel_folder: Path, output: Path) -> None:
    missing = [tool for tool in DEBIAN_TOOLS if shutil.which(tool) is None]
    if missing:
        sys.exit(f"error: nuitka needs {' and '.join(missing)} (Debian: apt-get install {' '.join(missing)})")
    wheels = [wheel for name in DISTRIBUTIONS for wheel in sorted(wheel_folder.glob(f"{name}-*.whl"))]
    if len(wheels) != len(DISTRIBUTIONS):
        sys.exit(f"error: {wheel_folder} has not one wheel each of {', '.join(DISTRIBUTIONS)}: make dist-wheels")
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    site = WORK / "site"
    install = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--target", str(site)]
    run([*install, *map(str, wheels), "-r", str(HERE.parent / "pins.txt")], {})
    shutil.copyfile(STAND_IN, site / "scaler_without_tls.py")
    copy_licenses(site, WORK / "licenses")
    run(nuitka_command(output.name, contents_name(wheels)), {"PYTHONPATH": str(site), **ALIKE})
    output.parent.mkdir(parents=True, exist_ok=True)
    os.replace(WORK / output.name, output)
    for name in OTHER_PROGRAMS:
        link = output.with_name(name)
        link.unlink(missing_ok=True)
        link.symlink_to(output.name)
    print(f"{output}: {output.stat().st_size / 1e6:.1f} MB")


def nuitka_command(name: str, contents: str) -> List[str]:
    command = [sys.executable, "-m", "nuitka", "--onefile", "--assume-yes-for-downloads", "--no-progressbar"]
    command += [f"--output-dir={WORK}", f"--output-filename={name}", f"--report={WORK / 'report.xml'}"]
    command += [f"--include-package={package}" for package in INCLUDED]
    command += [f"--include-module={module}" for module in INCLUDED_MODULES]
    command += [f"--nofollow-import-to={module}" for module in LEFT_OUT]
    command += ["--include-package-data=scaler_appliance"]
    command += [f"--include-data-dir={WORK / 'licenses'}=licenses"]
    command += [f"--include-data-files={library_path(library)}={library}" for library in C_LIBRARIES]
    command += ["--python-flag=no_site", "--python-flag=isolated"]
    command += [f"--onefile-tempdir-spec={{CACHE_DIR}}/scaler/nuitka-{contents}"]
    # The file's own process hands signals on to the program's; how long that then takes is the program's business.
    command += ["--onefile-child-grace-time=infinity"]
    return [*command, str(HERE / "scaler_scheduler.py")]


def copy_licenses(site: Path, licenses: Path) -> None:
    """The licences of all packages, of the libraries in their wheels, and of CPython, as the PyPy file has them."""
    for path in site.glob("*.dist-info/**/LICEN[CS]E*"):
        if path.is_file():
            target = licenses / path.relative_to(site).parts[0].partition("-")[0] / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    for path in Path(sysconfig.get_path("stdlib")).glob("LICENSE*"):
        shutil.copyfile(path, licenses / "python")


def library_path(name: str) -> str:
    """Where the compiler has a library."""
    found = subprocess.run(
        ["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True
    ).stdout.strip()
    if not os.path.isabs(found):
        sys.exit(f"error: gcc knows no {name}")
    return os.path.realpath(found)


def contents_name(wheels: List[Path]) -> str:
    """A name for what is in the binary: another for other contents."""
    contents = hashlib.sha256()
    for path in [
        *wheels,
        HERE.parent / "pins.txt",
        STAND_IN,
        *sorted(HERE.glob("*.py")),
        TREE / ".ci/requirements-nuitka.txt",
    ]:
        contents.update(path.read_bytes())
    contents.update(f"{platform.python_version()} {sysconfig.get_platform()}".encode())
    return contents.hexdigest()[:16]


def run(command: List[str], environment: dict[str, str]) -> None:
    """Run a program, which is heard only when it fails."""
    finished = subprocess.run(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if finished.returncode != 0:
        sys.exit(f"{finished.stdout}\nerror: {' '.join(command[1:3])} failed (see above)")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
