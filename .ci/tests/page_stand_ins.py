"""Stand-ins for programs that the commands of pages need, and that cannot run on any machine: one program, many names.

    page_stand_ins.py NAME ARGUMENTS    does what is left of NAME; without arguments, lists the names

Rules: a stand-in checks what it is given, and ends with an error if the real program would: a target that is not in the
Makefile, a file that is not there, a package that is not known, a unit that is not installed. Where the real
program is here and can check its arguments without doing anything, it is asked.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, List, NoReturn

TREE = Path(__file__).resolve().parents[2]
PLACE = Path("/mnt")
UNITS = Path("/etc/systemd/system")
ENABLED = Path("/etc/scaler/.enabled")
WITH_AN_ARGUMENT = {f"-{letter}" for letter in "bcDEeFIiJLlmOopQRSWw"}
"""Options of ssh."""


def fail(reason: str) -> NoReturn:
    sys.exit(f"{os.path.basename(sys.argv[1])}: {reason}")


def real(name: str) -> str:
    """The program itself, if it is on this machine."""
    path = os.pathsep.join(each for each in os.environ["PATH"].split(os.pathsep) if not each.endswith(".stand-ins"))
    return shutil.which(name, path=path) or ""


def make(arguments: List[str]) -> None:
    """The targets exist, and variables are some that the Makefile reads. What is built is what is installed."""
    text = (TREE / "Makefile").read_text()
    for target in arguments:
        name, is_variable, _ = target.partition("=")
        known = rf"^{name}\s*\?=|\$\({name}\)" if is_variable else rf"^{re.escape(target)}:"
        if not re.search(known, text, re.MULTILINE):
            fail(f"*** No rule to make target '{target}'.  Stop.")
        if target in ("dist", "dist-wheels"):
            Path("dist/wheels").mkdir(parents=True, exist_ok=True)
        for form in ("pypy", "pex", "nuitka"):
            if target in ("dist", f"dist-{form}"):
                built = Path("dist", form, "scaler_scheduler" + (".pex" if form == "pex" else ""))
                built.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(Path(os.environ["PAGE_PYTHON"]).with_name("scaler_scheduler"), built)


def pip(arguments: List[str]) -> None:
    command, *rest = arguments
    if command not in ("install", "uninstall"):
        fail(f"unknown command {command}")
    if "--find-links" in rest:
        place = rest.index("--find-links")
        if not Path(rest[place + 1]).is_dir():
            fail(f"there is no {rest[place + 1]}")
        del rest[place : place + 2]
    own = {"scaler-sdk": "sdk", "scaler-appliance": "appliance", "scaler-conformance": "conformance-tests"}
    own["scaler-protocol"] = "protocol-spec/python"
    lists = [*(TREE / ".ci").glob("requirements*.txt"), TREE / ".ci/dropin/__main__.py"]
    known = "\n".join(path.read_text() for path in lists).lower()
    for requirement in rest:
        if Path(requirement, "pyproject.toml").exists():
            continue
        match = re.fullmatch(r"([A-Za-z][\w.-]*)(?:\[([\w,-]+)\])?", requirement)
        if match is None:
            fail(f"invalid requirement {requirement!r}")
        name, extras = match[1].lower(), (match[2] or "").split(",")
        if name in own:
            metadata = (TREE / own[name] / "pyproject.toml").read_text()
            table = metadata.partition("[project.optional-dependencies]\n")[2]
            if any(extra and not re.search(rf"^{extra} = ", table, re.MULTILINE) for extra in extras):
                fail(f"{name} has no extra of {match[2]}")
            if Path(sys.argv[1]).is_absolute():  # in an environment of the page's own
                for program in Path(os.environ["PAGE_PYTHON"]).parent.glob("scaler*"):
                    target = Path(sys.argv[1]).with_name(program.name)
                    target.unlink(missing_ok=True)
                    target.symlink_to(program)
        elif command == "install" and not re.search(rf"^[ \"(]*{re.escape(name)}\b", known, re.MULTILINE):
            fail(f"no list of requirements of this tree has {name}")


def python3(arguments: List[str]) -> None:
    """`python3 -m venv FOLDER`, without what pip would install; anything else is Python's."""
    if arguments[:2] != ["-m", "venv"]:
        os.execv(os.environ["PAGE_PYTHON"], ["python3", *arguments])
    folder = Path(arguments[2])
    program = folder / "bin/pip"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -SE {__file__} {program} "$@"\n')
    program.chmod(0o755)


def systemctl(arguments: List[str]) -> None:
    command, *rest = arguments
    units = [name if "." in name else f"{name}.service" for name in rest if not name.startswith("-")]
    missing = [name for name in units if not (UNITS / name).exists()]
    if missing and command != "daemon-reload":
        fail(f"Unit {missing[0]} could not be found.")
    enabled = ENABLED.read_text().split() if ENABLED.exists() else []
    if command == "enable":
        for name in units:
            unit = (UNITS / name).read_text()
            program = re.search(r"^ExecStart=(\S+)", unit, re.MULTILINE)
            if program is None or not shutil.which(program[1]):
                fail(f"{name}: there is no {program and program[1]}")
        ENABLED.write_text(" ".join([*enabled, *units]))
    elif command in ("status", "restart", "start", "reload"):
        if command == "status" and not set(units) <= set(enabled):
            fail(f"{units[0]} is not active")
    elif command not in ("stop", "disable", "daemon-reload"):
        fail(f"Unknown command verb {command}.")


def ssh(arguments: List[str]) -> None:
    """Run a command on another machine of the page, in the home of the user there; `-N` waits."""
    if real("ssh"):
        checked = subprocess.run([real("ssh"), "-G", *arguments], capture_output=True, text=True)
        if checked.returncode:
            fail(checked.stderr)
    position = 0
    while arguments[position].startswith("-"):
        position += 2 if arguments[position] in WITH_AN_ARGUMENT else 1
    user, _, host = arguments[position].rpartition("@")
    if "-N" in arguments[:position]:
        print("forwards", flush=True)
        signal.pause()
    if host == "localhost":
        host = os.environ["PAGE_MACHINE"]
    keeper = PLACE / ".machines" / host
    if not keeper.exists():
        fail(f"Could not resolve hostname {host}")
    home = PLACE / host
    if user not in ("", "root"):
        home = home / user
        home.mkdir(exist_ok=True)
    script = f"cd {home}\n{' '.join(arguments[position + 1 :])}"
    environment = {**os.environ, "HOME": str(home), "PAGE_MACHINE": home.resolve().relative_to(PLACE).parts[0]}
    namespaces = [f"--target={keeper.read_text()}", "--net", "--uts", "--mount"]
    os.execvpe("nsenter", ["nsenter", *namespaces, "bash", "-euc", script], environment)


def scp(arguments: List[str]) -> None:
    """Copy between homes of the page's machines."""
    options = [each for each in arguments if each.startswith("-")]
    if set("".join(options)) - set("-rpq"):
        fail(f"unknown option in {options}")
    paths = []
    for each in arguments:
        if not each.startswith("-"):
            host, colon, path = each.rpartition(":")
            if colon and not (PLACE / ".machines" / host).exists():
                fail(f"Could not resolve hostname {host}")
            paths.append(str(PLACE / host / path) if colon else each)
    done = subprocess.run(["cp", *options, *paths])
    sys.exit(done.returncode)


def sbatch(arguments: List[str]) -> None:
    """The script is there, and a shell can read it; its options are those of Slurm's job."""
    script = next((each for each in arguments if not each.startswith("-")), "")
    if not script:
        return
    lines = Path(script).read_text().splitlines()
    if not lines[0].startswith("#!") or subprocess.run(["bash", "-n", script]).returncode:
        fail("This does not look like a batch script.")
    wrong = [line for line in lines if line.startswith("#SBATCH") and not re.match(r"#SBATCH --[a-z-]+(=\S+)?", line)]
    if wrong:
        fail(f"invalid option: {wrong[0]}")
    print("Submitted batch job 1")


def kubectl(arguments: List[str]) -> None:
    """Files are there; where kubectl is, it also says what it would send."""
    for number, argument in enumerate(arguments):
        path = argument.partition("--from-file=")[2] or (arguments[number - 1] == "-f" and argument) or ""
        if path and not Path(path.rpartition("=")[2]).exists():
            fail(f"the path {path!r} does not exist")
    program = real("kubectl")
    if arguments[:1] == ["kustomize"]:
        if not (Path(arguments[1]) / "kustomization.yaml").exists():
            fail(f"no kustomization.yaml in {arguments[1]}")
    elif arguments[:2] == ["create", "secret"]:
        arguments = [*arguments, "--dry-run=client", "--output=yaml"]
    elif arguments[:2] == ["config", "set-context"]:
        arguments = ["config", "set-context", "here", *arguments[3:]]
    elif arguments[:1] == ["apply"] and arguments[1] in ("-f", "-k") and len(arguments) == 3:
        if arguments[1] == "-f" or not program:
            return
        arguments = ["kustomize", arguments[2]]
    else:
        fail(f"unknown command {arguments}")
    if program:
        os.execv(program, ["kubectl", *arguments])


def systemd_run(arguments: List[str]) -> None:
    """Run the command, with the variables that it is to have; a unit for a moment is systemd's matter."""
    position = 0
    while arguments[position].startswith("-"):
        option = arguments[position]
        if option not in ("--quiet", "--wait", "--pipe", "-p", "-E"):
            fail(f"unknown option {option}")
        if option == "-E":
            name, _, value = arguments[position + 1].partition("=")
            os.environ[name] = value
        position += 2 if option in ("-p", "-E") else 1
    os.execvp(arguments[position], arguments[position:])


def podman(arguments: List[str]) -> None:
    """What an image is built from is there; what is run was built, and its program accepts the arguments."""
    state = Path(".podman")
    done = state.read_text().splitlines() if state.exists() else []
    command, *rest = arguments
    if command == "build":
        options = dict(zip(rest[:-1:2], rest[1:-1:2]))
        for line in Path(options["-f"]).read_text().splitlines():
            for source in re.findall(r"^COPY (?!--from)(?:--\S+ )*(\S+) \S+$", line):
                if not list((TREE if not Path(source).exists() else Path()).glob(source)) and "dist" not in source:
                    fail(f"{options['-f']}: there is no {source}")
        made = [f"image {options['-t']}"]
    elif (command, rest[0]) == ("network", "create"):
        made = [f"network {rest[1]}"]
    elif (command, rest[0]) == ("secret", "create"):
        if not sys.stdin.read().startswith("#"):
            fail("the secret is no key")
        made = [f"secret {rest[1]}"]
    elif command == "exec":
        if f"container {rest[0]}" not in done:
            fail(f"no container {rest[0]}")
        os.execvp(rest[1], rest[1:])
    elif command == "run":
        position, given = 0, {}
        while rest[position].startswith("-"):
            is_flag = rest[position] in ("-d", "--rm", "--read-only")
            given[rest[position]] = "" if is_flag else rest[position + 1]
            position += 1 if is_flag else 2
        image, *words = rest[position:]
        for needed in (f"image {image}", f"network {given['--network']}"):
            if needed not in done:
                fail(f"there is no {needed}")
        if "--secret" in given and f"secret {given['--secret'].partition(',')[0]}" not in done:
            fail("there is no such secret")
        if words:
            program = {"scaler-workers": "scaler_cluster"}.get(image, "scaler_scheduler")
            subprocess.run([program, *words, "--check"], check=True)
        made = [f"container {given.get('--name', image)}"]
    else:
        fail(f"unknown command {arguments}")
    state.write_text("\n".join([*done, *made]))


def snakemake(arguments: List[str]) -> None:
    if arguments[:1] != ["--executor"]:
        fail("which executor?")
    module = f"snakemake_executor_plugin_{arguments[1].replace('-', '_')}"
    if not list((TREE / "packaging/snakemake").rglob(f"{module}*")):
        fail(f"there is no {module}")


def pkill(arguments: List[str]) -> None:
    """The real one, for the processes of this machine of the page.

    It kills one after the other: on a busy machine, those that are still there could say why they leave, so all of them
    are halted first.
    """
    own = [real("pkill"), "--ns", str(os.getpid()), "--nslist", "net"]
    subprocess.run([*own, "-STOP", arguments[-1]], check=True)
    os.execv(own[0], [*own, *arguments])


def quiet(arguments: List[str]) -> None:
    """A command of Slurm that lists nothing."""


STAND_INS: Dict[str, Callable[[List[str]], None]] = {
    "make": make,
    "pip": pip,
    "python3": python3,
    "systemctl": systemctl,
    "ssh": ssh,
    "scp": scp,
    "sbatch": sbatch,
    "squeue": quiet,
    "scancel": quiet,
    "kubectl": kubectl,
    "systemd-run": systemd_run,
    "podman": podman,
    "snakemake": snakemake,
    "pkill": pkill,
}


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print("\n".join(STAND_INS))
    else:
        STAND_INS[os.path.basename(sys.argv[1])](sys.argv[2:])
