"""An orchestrator for one machine: each step with resource settings in a process of its own.

ZenML's `local` orchestrator runs steps inside the pipeline's process, where they send no heartbeats
and cannot be preempted. This one is for trying preemption without Kubernetes, and for a workstation
that several people share. It is not for clusters: steps run where the pipeline runs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING
from uuid import UUID

from zenml.client import Client
from zenml.enums import ExecutionStatus
from zenml.orchestrators import BaseOrchestratorFlavor, utils
from zenml.orchestrators.local.local_orchestrator import LocalOrchestrator, LocalOrchestratorConfig
from zenml.step_operators.step_operator_entrypoint_configuration import (
    StepOperatorEntrypointConfiguration,
)
from zenml.utils import source_utils

from cede.client import clock

if TYPE_CHECKING:
    from zenml.config.step_run_info import StepRunInfo
    from zenml.models import StepRunResponse

log = logging.getLogger(__name__)

# The time that the step's own heartbeat thread has to interrupt it before the orchestrator does.
INTERRUPT_AFTER = 5.0
# How often ZenML is asked whether a child was told to stop.
LOOK_EVERY = 3.0

_TOLD = (ExecutionStatus.CANCELLING, ExecutionStatus.STOPPING)


class OneMachineOrchestratorConfig(LocalOrchestratorConfig):
    """`stop_seconds`: how long a step that was told to stop may take before it is killed."""

    stop_seconds: float = 30.0


class OneMachineOrchestrator(LocalOrchestrator):
    """Runs isolated steps as child processes of the pipeline's process."""

    @property
    def config(self) -> OneMachineOrchestratorConfig:
        config = self._config
        assert isinstance(config, OneMachineOrchestratorConfig), type(config)
        return config

    @property
    def run_init_cleanup_at_step_level(self) -> bool:
        return True

    def submit_isolated_step(self, step_run_info: StepRunInfo, environment: dict[str, str]) -> None:
        command, arguments = utils.get_step_entrypoint_command(
            invocation_id=step_run_info.pipeline_step_name,
            config=step_run_info.config,
            entrypoint_config_class=StepOperatorEntrypointConfiguration,
            snapshot_id=step_run_info.snapshot.id,
            step_run_id=str(step_run_info.step_run_id),
        )
        root = source_utils.get_source_root()
        child = subprocess.Popen(
            [_this_python(command[0]), *command[1:], *arguments],
            env={**os.environ, **environment, "PYTHONPATH": _with_root(root)},
            cwd=root,
            stdin=subprocess.DEVNULL,
            # A group of its own: a signal reaches the processes that the step started as well, and
            # Ctrl-C in the terminal reaches the pipeline only, which then stops its steps.
            start_new_session=True,
            preexec_fn=_restore_sigint,
        )
        _children.add(step_run_info.step_run_id, child)

    def get_isolated_step_status(self, step_run: StepRunResponse) -> ExecutionStatus:
        child = _children.get(step_run.id)
        if child is None:
            # Another process started it; only ZenML's row is known.
            return Client().get_run_step(step_run.id, hydrate=False).status
        code = child.process.poll()
        if code is None:
            self._see_to_its_end(child, step_run.id)
            return ExecutionStatus.RUNNING
        return ExecutionStatus.COMPLETED if code == 0 else ExecutionStatus.FAILED

    def wait_for_isolated_step(self, step_run: StepRunResponse) -> ExecutionStatus:
        """Wait for the child itself, whose end is known at once; ZenML's own wait polls less and
        less often."""
        child = _children.get(step_run.id)
        if child is None:
            return super().wait_for_isolated_step(step_run)
        while not (status := self.get_isolated_step_status(step_run)).is_finished:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(LOOK_EVERY)
        return status

    def stop_isolated_step(self, step_run: StepRunResponse) -> None:
        child = _children.get(step_run.id)
        if child is not None:
            child.interrupt()

    def cleanup_isolated_step(self, step_run: StepRunResponse) -> None:
        """Kill whatever the step left running."""
        child = _children.pop(step_run.id)
        if child is not None:
            child.kill()

    def _see_to_its_end(self, child: Child, step_run_id: UUID) -> None:
        """Interrupt, then kill, a step that was told to stop and does not.

        Its heartbeat thread asks the main thread to stop, which a long call in C does not notice.
        """
        try:
            told = Client().get_run_step(step_run_id, hydrate=False).status in _TOLD
        except Exception as error:
            # The caller takes an error for the end of the step, and kills it. The ZenML server may
            # be away for a while, and the step goes on without it.
            log.debug("whether step run %s was told to stop is not known: %s", step_run_id, error)
        else:
            if told:
                child.insist(self.config.stop_seconds)


def _restore_sigint() -> None:
    """Restore the default of SIGINT, by which ZenML asks steps to stop: processes that a shell
    started with & or nohup ignore it, and so would their steps.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Child:
    """A step's process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._told_at: float | None = None
        self._interrupted = False

    def insist(self, seconds: float) -> None:
        """Interrupt a child that was told to stop after a while, and kill it when its time is
        over."""
        if self._told_at is None:
            self._told_at = clock.now()
        elapsed = clock.now() - self._told_at
        if elapsed >= seconds:
            log.warning("step process %s did not stop in time and is killed", self.process.pid)
            self.kill()
        elif elapsed >= min(INTERRUPT_AFTER, seconds / 2):
            self.interrupt()

    def interrupt(self) -> None:
        """Interrupt once, since a second interrupt would break into what the first one started;
        only the main process, which stops what it started itself."""
        if not self._interrupted:
            self._interrupted = True
            self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


class _Children:
    """Children by step run, for threads: the pipeline launches from several."""

    def __init__(self) -> None:
        self._found: dict[UUID, Child] = {}
        self._lock = threading.Lock()

    def add(self, step_run_id: UUID, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._found[step_run_id] = Child(process)

    def get(self, step_run_id: UUID) -> Child | None:
        with self._lock:
            return self._found.get(step_run_id)

    def pop(self, step_run_id: UUID) -> Child | None:
        with self._lock:
            return self._found.pop(step_run_id, None)


# A global, because ZenML makes a new orchestrator object whenever it loads a stack.
_children = _Children()


class OneMachineOrchestratorFlavor(BaseOrchestratorFlavor):
    """The flavor, registered by `zenml orchestrator flavor register`."""

    @property
    def name(self) -> str:
        return "one_machine"

    @property
    def config_class(self) -> type[OneMachineOrchestratorConfig]:
        return OneMachineOrchestratorConfig

    @property
    def implementation_class(self) -> type[OneMachineOrchestrator]:
        return OneMachineOrchestrator


def _this_python(command: str) -> str:
    """Return this interpreter for `python`, which ZenML says and which may be another one here."""
    return sys.executable if command in ("python", "python3") else command


def _with_root(root: str) -> str:
    rest = os.environ.get("PYTHONPATH")
    return f"{root}{os.pathsep}{rest}" if rest else root
