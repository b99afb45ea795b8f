"""Runs the jobs of a Snakemake workflow on a Scaler cluster.

    Snakemake ── run_job ──▶ Executor ── submit(_run_command) ──▶ scheduler ──▶ worker: snakemake for this job
    Snakemake ◀─ success, error ─ check_active_jobs ◀─ future ──────────────────┘

Rules:
- A job runs once: Snakemake decides about retries, because it knows what an incomplete job leaves.
- The function that workers run is sent by value: workers need Snakemake, and not this plugin.
- All output of a job is in a file in `.snakemake/scaler_logs`, named after rule and job.
- Annotations are types and not texts: Snakemake makes command line options of those of `ExecutorSettings`.
"""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, AsyncGenerator, Dict, List, Optional

import cloudpickle
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

from scaler import Client, ScalerFuture
from scaler.exceptions import ScalerError

LOG_FOLDER = ".snakemake/scaler_logs"
LOOK_INTERVAL_SECONDS = 0.1
"""Futures are in this process, so looking at them costs nothing."""
LAST_LINES = 20
_CANCEL_SECONDS = 10.0


@dataclass
class ExecutorSettings(ExecutorSettingsBase):  # type: ignore[misc]  # untyped where types are checked
    """The plugin's options, `--scaler-ADDRESS` and so on."""

    address: Optional[str] = field(
        default=None,
        metadata={"help": "The scheduler's address, such as tcp://HOST:PORT; by default found as Client() finds it."},
    )
    key_file: Optional[str] = field(
        default=None, metadata={"help": "The key of a client (scaler keys new --role client); by default found."}
    )
    capabilities: List[str] = field(
        default_factory=list,
        metadata={
            "help": "Resources of rules that a worker must offer, as NAME or RESOURCE=CAPABILITY: 'gpu threads=cpu'.",
            "nargs": "+",
        },
    )
    enforce_limits: bool = field(
        default=False,
        metadata={"help": "Stop jobs that take more memory than mem_mb, or run longer than runtime."},
    )


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_envvar_declarations_to_cmd=True,
    auto_deploy_default_storage_provider=True,
)


def _run_command(command: str, folder: str, log: str, last_lines: int) -> str:
    """Run a job's command in a shell; returns "" or why it has failed, with the end of its output."""
    import collections
    import os
    import subprocess

    os.makedirs(os.path.dirname(log), exist_ok=True)
    with open(log, "wb") as output:
        code = subprocess.call(command, shell=True, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    if code == 0:
        return ""
    with open(log, errors="replace") as written:
        end = "".join(collections.deque(written, last_lines))
    why = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"The job {why}. Its output ends with:\n{end}"


class Executor(RemoteExecutor):  # type: ignore[misc]  # likewise
    """Snakemake's interface to a Scaler cluster."""

    def __post_init__(self) -> None:
        settings: ExecutorSettings = self.workflow.executor_settings or ExecutorSettings()
        self._capabilities = _mapping(settings.capabilities)
        self._enforces_limits = settings.enforce_limits
        try:
            self._client = Client(settings.address, key_file=settings.key_file)
        except (ScalerError, OSError, ValueError) as error:
            raise WorkflowError(f"cannot use a Scaler cluster: {error}") from error
        cloudpickle.register_pickle_by_value(sys.modules[__name__])
        self.next_seconds_between_status_checks = LOOK_INTERVAL_SECONDS
        text = f"The Scaler cluster at {self._client.info().address} runs the jobs."
        self.logger.info(text)  # its interface takes one text

    def run_job(self, job: JobExecutorInterface) -> None:
        """Submit a job."""
        log = Path(LOG_FOLDER, *_words_of(job), f"{job.jobid}.log").absolute()
        try:
            client = self._client.options(at_most_once=True, **self._options_of(job))
            future = client.submit(_run_command, self.format_job_exec(job), os.getcwd(), str(log), LAST_LINES)
        except (ScalerError, ValueError, TypeError) as error:
            raise WorkflowError(f"job {job.jobid} cannot be submitted to Scaler: {error}") from error
        info = SubmittedJobInfo(job, external_jobid=str(future.task_id), aux={"future": future, "log": str(log)})
        self.report_job_submission(info)

    def _options_of(self, job: JobExecutorInterface) -> Dict[str, Any]:
        """What Scaler has to know about a job."""
        resources = {**job.resources, "threads": job.threads}
        options: Dict[str, Any] = {}
        capabilities = {
            capability: resources[resource]
            for resource, capability in self._capabilities.items()
            if isinstance(resources.get(resource), (int, float)) and resources[resource] > 0
        }
        if capabilities:
            options["capabilities"] = capabilities
        if self._enforces_limits:
            if resources.get("mem_mb"):
                options["memory_limit"] = int(resources["mem_mb"]) * 1_000_000
            if resources.get("runtime"):  # in minutes
                options["timeout"] = 60.0 * float(resources["runtime"])
        return options

    async def check_active_jobs(self, active_jobs: List[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Report the jobs that have ended, and yield the others."""
        for info in active_jobs:
            future: ScalerFuture[str] = (info.aux or {})["future"]
            if not future.done():
                yield info
                continue
            why = _why_failed(future)
            if why:
                self.report_job_error(info, msg=f"{why}\n", aux_logs=[(info.aux or {})["log"]])
            else:
                self.report_job_success(info)

    def cancel_jobs(self, active_jobs: List[SubmittedJobInfo]) -> None:
        """Stop jobs, and what they have started."""
        for info in active_jobs:
            (info.aux or {})["future"].cancel(0.0)
        for info in active_jobs:
            (info.aux or {})["future"].cancel(_CANCEL_SECONDS)

    def shutdown(self) -> None:
        """The workflow is over."""
        super().shutdown()
        self._client.disconnect()


def _why_failed(future: ScalerFuture[str]) -> str:
    """Why a job that has ended has failed; empty if it has not."""
    if future.cancelled():
        return "The job was cancelled."
    error = future.exception()
    return future.result() if error is None else f"The job was lost: {type(error).__name__}: {error}"


def _mapping(texts: List[str]) -> Dict[str, str]:
    """Capabilities of workers by resources of rules.

    Raises WorkflowError.
    """
    found: Dict[str, str] = {}
    for text in texts:
        resource, _, capability = text.partition("=")
        if not resource or ("=" in text and not capability):
            raise WorkflowError(f"--scaler-capabilities: {text!r} is not NAME or RESOURCE=CAPABILITY")
        found[resource] = capability or resource
    return found


def _words_of(job: JobExecutorInterface) -> List[str]:
    """Names of folders for a job's output: its rule, or its group."""
    return [f"group_{job.groupid}" if job.is_group() else f"rule_{job.rule.name}"]
