"""Build the pex: one file with the appliance and pyzmq, for a Python or PyPy that the machine has.

    .venv-packaging/bin/python packaging/pex/build.py dist/wheels dist/pex/scaler_scheduler.pex

Rules:
- It holds the wheels of pyzmq, PyNaCl and cffi for every interpreter of TARGETS. Nothing is compiled, and it does not
  matter what interpreter builds it: the same wheels make the same bytes on any machine. All files in it have one date.
- PyPy is preferred. pex's own start script takes whatever CPython with a version in its name it finds before a plain
  `pypy3`, so a function of ours chooses in its place. The rest of that script stays: it finds what an earlier start
  unpacked.
- A name of the file that is the name of a program starts that program.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Dict, List, NamedTuple

HERE = Path(__file__).resolve().parent
DEFAULT_PROGRAM = "scaler_scheduler"
# The C libraries that wheels are built for, newest first.
C_LIBRARIES = ("manylinux_2_28", "manylinux_2_26", "manylinux_2_17", "manylinux2014")
OLDEST_STABLE_INTERFACE_MINOR = 2
# PyPy has cffi built in, and there are no wheels. What asks for it gets what is here anyway.
CFFI_OF_PYPY = "cffi=typing-extensions; platform_python_implementation == 'PyPy'"
# pex's start script asks here which interpreter to use; ours is defined just before.
PLACE_OF_THE_CHOICE = b'if [ -f "${DEFAULT_PYTHON}" -a -x "${DEFAULT_PYTHON}" ]; then\n'
FIRST_LINE = b"#!/bin/sh\n"


class Target(NamedTuple):
    """An interpreter that the pex runs on, 3.MINOR."""

    implementation: str
    minor: int

    @property
    def command(self) -> str:
        """The name of its program."""
        return f"{'pypy' if self.implementation == 'PyPy' else 'python'}3.{self.minor}"

    def wheel_tags(self, machine: str) -> List[str]:
        """Which wheels it can use, best first."""
        if self.implementation == "PyPy":
            interfaces = [f"pp3{self.minor}-pypy3{self.minor}_pp73"]
        else:
            stable = [f"cp3{minor}-abi3" for minor in range(self.minor, OLDEST_STABLE_INTERFACE_MINOR - 1, -1)]
            interfaces = [f"cp3{self.minor}-cp3{self.minor}", *stable]
        return [f"{one}-{library}_{machine}" for one in interfaces for library in C_LIBRARIES] + ["py3-none-any"]

    def platform_description(self, machine: str) -> str:
        """What pex wants to know of an interpreter that is not here."""
        environment: Dict[str, str] = {
            "implementation_name": self.implementation.lower(),
            "implementation_version": f"3.{self.minor}.0",
            "os_name": "posix",
            "platform_machine": machine,
            "platform_python_implementation": self.implementation,
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"3.{self.minor}.0",
            "python_version": f"3.{self.minor}",
            "sys_platform": "linux",
        }
        return json.dumps({"marker_environment": environment, "compatible_tags": self.wheel_tags(machine)})


# In order of preference.
TARGETS = [Target("PyPy", minor) for minor in (11, 10, 9)] + [Target("CPython", minor) for minor in range(14, 8, -1)]


def main(wheel_folder: Path, output: Path) -> None:
    wheels = [one_wheel(wheel_folder, name) for name in ("scaler_protocol", "scaler_appliance")]
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_name(f".{output.name}.unfinished")
    build(wheels, unfinished)
    header, archive = split(unfinished.read_bytes())
    unfinished.write_bytes(with_our_choices(header, programs_of(wheels[1]), young_generation_size(wheels[1])) + archive)
    os.replace(unfinished, output)
    for name in programs_of(wheels[1]):
        link = output.with_name(f"{name}.pex")
        if link != output:
            link.unlink(missing_ok=True)
            link.symlink_to(output.name)
    print(f"{output}: {output.stat().st_size / 1e6:.1f} MB")


def one_wheel(folder: Path, distribution: str) -> Path:
    found = list(folder.glob(f"{distribution}-*.whl"))
    if len(found) != 1:
        sys.exit(f"error: {folder} has {len(found)} wheels of {distribution} instead of one: make dist-wheels")
    return found[0]


def build(wheels: List[Path], output: Path) -> None:
    machine = platform.machine()
    command = [sys.executable, "-m", "pex", *map(str, wheels), "-r", str(HERE.parent / "pins.txt")]
    command += ["--no-build", "--override", CFFI_OF_PYPY, "--exclude", "pycparser"]  # the parser is for development
    for target in TARGETS:
        command += ["--complete-platform", target.platform_description(machine)]
    command += [
        "--venv",
        "--sh-boot",
        "--no-emit-warnings",
        "--disable-cache",
        "--script",
        DEFAULT_PROGRAM,
        "--output-file",
        str(output),
    ]
    # As a program of its own, and heard only when it fails.
    finished = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if finished.returncode != 0:
        sys.exit(f"{finished.stdout}\nerror: pex failed (see above). Is there a way to a package index?")
    output.chmod(0o755)


def programs_of(wheel: Path) -> List[str]:
    """The programs that a wheel installs."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt"))
        lines = archive.read(name).decode().splitlines()
    section = lines[lines.index("[console_scripts]") + 1 :]
    return sorted(line.partition("=")[0].strip() for line in section if "=" in line)


def young_generation_size(appliance: Path) -> str:
    """The default size that the appliance sets before it restarts PyPy (see ADR 0009)."""
    sys.path.insert(0, str(appliance))
    from scaler_appliance.__main__ import NURSERY_SIZE

    return NURSERY_SIZE


def split(pex: bytes) -> tuple[bytes, bytes]:
    """The start script and the zip archive behind it."""
    start = pex.index(b"PK\x03\x04")
    return pex[:start], pex[start:]


def with_our_choices(header: bytes, programs: List[str], young_generation: str) -> bytes:
    """The start script with the choice of a program before it and the choice of an interpreter in it.

    Readers of zip archives find them from the end of the file, so the script may have any length.
    """
    if not header.startswith(FIRST_LINE) or header.count(PLACE_OF_THE_CHOICE) != 1:
        sys.exit("error: this version of pex writes a start script that packaging/pex/build.py does not support")
    program_choice = (HERE / "choose_program.sh").read_text(encoding="utf-8")
    program_choice = program_choice.replace("@PROGRAMS@", "|".join(programs)).replace("@NURSERY@", young_generation)
    interpreter_choice = (HERE / "choose_interpreter.sh").read_text(encoding="utf-8")
    interpreter_choice = interpreter_choice.replace("@INTERPRETERS@", " ".join(interpreters()))
    return (
        FIRST_LINE
        + program_choice.encode()
        + header[len(FIRST_LINE) :].replace(PLACE_OF_THE_CHOICE, interpreter_choice.encode() + PLACE_OF_THE_CHOICE)
    )


def interpreters() -> List[str]:
    """Names of interpreters, the preferred first; those without a version are what most machines call theirs."""
    pypys = [target.command for target in TARGETS if target.implementation == "PyPy"]
    cpythons = [target.command for target in TARGETS if target.implementation == "CPython"]
    return [*pypys, "pypy3", "pypy", "python3", *cpythons]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
