"""A real Slurm for tests: munged, slurmctld and a slurmd for each node, all on this host, in a folder of their own.

    sbatch, squeue, scancel ──SLURM_CONF──▶ slurmctld ──▶ slurmd n1, slurmd n2 ──▶ jobs

Rules:
- It takes root, and the programs of Slurm and munge (`make slurm` installs them). Elsewhere, tests are skipped and say
  so.
- Nothing of it is the host's: neither its configuration, nor its keys, ports or services.
- What is started here ends here, jobs included.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Tuple

import psutil

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo")
NODES = ("n1", "n2")
CPUS = 2  # of each node
KILL_WAIT_SECONDS = 15
READY_SECONDS = 60.0
_END_SECONDS = 30.0

_CONFIGURATION = """\
ClusterName=scaler
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/socket/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
KillWait={kill_wait}
SlurmdTimeout=10
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
{nodes}
PartitionName=cpu Nodes=ALL Default=YES State=UP PriorityTier=1 GraceTime=2
PartitionName=abrupt Nodes=ALL State=UP PriorityTier=1 GraceTime=0
PartitionName=requeued Nodes=ALL State=UP PriorityTier=1 GraceTime=0 PreemptMode=REQUEUE
PartitionName=urgent Nodes=ALL State=UP PriorityTier=9 PreemptMode=OFF
"""


def reason_not_to_run() -> str:
    """Why there can be no Slurm here; empty if there can."""
    missing = [each for each in PROGRAMS if shutil.which(each, path=_path()) is None]
    if missing:
        return f"{', '.join(missing)} not installed (make slurm, as root)"
    return "" if os.geteuid() == 0 else "Slurm's daemons are started as root"


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


class SlurmCluster:
    """
    Parameters:
        folder: empty; others can enter it and those above it, as munge wants it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: Dict[str, subprocess.Popen[bytes]] = {}
        self._configuration = folder / "slurm.conf"

    @property
    def environment(self) -> Dict[str, str]:
        """Variables with which Slurm's commands reach it."""
        return {"SLURM_CONF": str(self._configuration)}

    def __enter__(self) -> SlurmCluster:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def call(self, *command: str) -> str:
        """What a command of Slurm prints."""
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **self.environment})
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout.strip()

    def jobs(self, *options: str) -> List[Tuple[str, str, str]]:
        """Id, state and name of each job; the id of one in an array has its index, as in `12_3`."""
        lines = self.call("squeue", "--noheader", "--array", "--format=%i|%T|%j", *options).splitlines()
        return [(job, state, name) for job, state, name in (line.split("|", 2) for line in lines)]

    def state_of(self, job: str) -> str:
        return self.call("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T")

    def own_id_of(self, job: str) -> str:
        """The id that a job has besides that of its array."""
        return self.call("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%A")

    def node_of(self, job: str) -> str:
        return self.call("squeue", "--noheader", f"--jobs={job}", "--format=%N")

    def fail(self, node: str) -> None:
        """A node is gone, with all that runs on it."""
        daemon = self._processes.pop(node)
        marks = {("SLURMD_NODENAME", node), ("SLURM_CONF", str(self._configuration))}
        daemon.kill()
        daemon.wait()
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if marks <= set(process.environ().items()):
                    found.append(process)
        parents = [each for process in found for each in process.parents() if each.name() == "slurmstepd"]
        for process in [*parents, *found]:  # in this order: nothing reports an end to Slurm
            with contextlib.suppress(psutil.Error):
                process.kill()

    def hang(self) -> None:
        """The controller answers no more."""
        self._processes["slurmctld"].send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """The controller answers again."""
        self._processes["slurmctld"].send_signal(signal.SIGCONT)

    # Start and end --------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        for name in ("socket", "state", "log"):
            (self._folder / name).mkdir(mode=0o755)
        key = self._folder / "munge"
        key.mkdir(mode=0o700)
        (key / "key").write_bytes(os.urandom(128))
        (key / "key").chmod(0o600)
        controller_port, *ports = _free_ports(1 + len(NODES))
        host = socket.gethostname().partition(".")[0]
        nodes = [
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} RealMemory=500"
            for node, port in zip(NODES, ports)
        ]
        self._configuration.write_text(
            _CONFIGURATION.format(
                folder=self._folder,
                host=host,
                controller_port=controller_port,
                nodes="\n".join(nodes),
                kill_wait=KILL_WAIT_SECONDS,
            )
        )
        munge = self._folder / "socket" / "munge"
        files = {"key-file": key / "key", "pid-file": key / "pid", "seed-file": key / "seed", "log-file": key / "log"}
        options = [f"--{name}={path}" for name, path in files.items()]
        self._spawn("munged", "munged", "--foreground", f"--socket={munge}", *options)
        self._wait(munge.exists, "munged")
        self._spawn("slurmctld", "slurmctld", "-D", "-f", str(self._configuration))
        for node in NODES:
            self._spawn(node, "slurmd", "-D", "-N", node, "-f", str(self._configuration))
        self._wait_for_nodes()

    def _spawn(self, name: str, *command: str) -> None:
        with open(self._folder / "log" / name, "ab") as log:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "PATH": _path()}
            )

    def _wait_for_nodes(self) -> None:
        def are_idle() -> bool:
            command = ["sinfo", "--noheader", "--Node", "--partition=cpu", "--format=%T"]
            done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **self.environment})
            return done.returncode == 0 and done.stdout.split() == ["idle"] * len(NODES)

        self._wait(are_idle, "all nodes")

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not is_so():
            if time.monotonic() > deadline:
                logs = [path.read_text(errors="replace")[-1000:] for path in (self._folder / "log").iterdir()]
                raise AssertionError("\n".join([f"{what} cannot be reached", *logs]))
            time.sleep(0.05)

    def _end(self) -> None:
        if "slurmctld" in self._processes:
            self.go_on()
            with contextlib.suppress(AssertionError):
                self.call("scancel", f"--user={os.getuid()}")
                self.call("scancel", f"--user={os.getuid()}", "--full", "--signal=KILL")
                deadline = time.monotonic() + _END_SECONDS
                while self.jobs() and time.monotonic() < deadline:
                    time.sleep(0.05)
        for process in reversed(list(self._processes.values())):
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_ports(count: int) -> List[int]:
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in opened]


@contextlib.contextmanager
def slurm_cluster() -> Iterator[SlurmCluster]:
    """A cluster, in a folder that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="scaler-slurm-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        with SlurmCluster(folder) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)
