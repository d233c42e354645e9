"""A Slurm of its own on loopback: munge, one controller and some nodes with pretended GPUs, all of
them processes of this test and gone with it. The programs are the system's packages.

Nothing here depends on the pace of the machine: whoever does not come is started again, and Slurm
itself is told to be patient.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support import ports

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "srun")
PACKAGES = "slurmctld slurmd slurm-client munge"
# Only a test that fails waits so long; a daemon that has not come by then is started again.
READY_SECONDS = 240.0
AGAIN_SECONDS = 20.0
CALL_SECONDS = 120.0
GPUS = 4
CPUS = 8
MEMORY_MB = 8000

_CONF = """
ClusterName={name}
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={home}/munge.socket
CredType=cred/munge
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool.%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.%n.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=10000,max_rpc_cnt=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
ReturnToService=2
SlurmdTimeout={slurmd_timeout}
MessageTimeout=30
TCPTimeout=30
BatchStartTimeout=200
UnkillableStepTimeout=300
InactiveLimit=0
KillWait=5
MinJobAge={min_job_age}
DefMemPerCPU=100
Waittime=0
CompleteWait=0
JobAcctGatherType=jobacct_gather/none
DebugFlags=NO_CONF_HASH
TopologyPlugin=topology/tree
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def missing() -> str:
    """Why there can be no Slurm here; empty when there can."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    absent = [each for each in PROGRAMS if shutil.which(each, path=path) is None]
    if absent:
        return f"no {', '.join(absent)}: apt-get install -y {PACKAGES}"
    if os.geteuid() != 0:
        return "several slurmd on one host need root"
    with tempfile.TemporaryDirectory() as folder:
        try:
            _make_device(Path(folder) / "gpu0")
        except OSError as error:
            return f"devices cannot be made here: {error.strerror}"
    return ""


class Cluster:
    """Nodes n1 to n4 unless told otherwise, each with so many GPUs; `env` is what Slurm's commands
    need. Lines in `more` come after our own configuration and win; {home} is its folder.
    """

    def __init__(
        self,
        home: Path,
        gpus: Sequence[int] = (GPUS,) * 4,
        *,
        slurmd_timeout: int = 300,
        min_job_age: int = 300,
        cpus: int = CPUS,
        more: str = "",
    ) -> None:
        self.home, self.gpus = home, sum(gpus)
        nodes = len(gpus)
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        home.chmod(0o755)
        for each in ("state", "munge"):
            (home / each).mkdir()
        # Held as long as the cluster lives, so that nobody gets them while a daemon is away.
        self._ports = [ports.hold() for _ in range(nodes + 1)]
        numbers = [ports.number_of(each) for each in self._ports]
        lines = [
            f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs={cpus} "
            f"CoresPerSocket={cpus} ThreadsPerCore=1 Sockets=1 RealMemory={MEMORY_MB} "
            f"Gres=gpu:{count} Feature={'a100' if count == GPUS else 'small'}"
            for name, port, count in zip(self.names, numbers[1:], gpus, strict=True)
        ]
        conf = _CONF.format(
            name=f"c{secrets.token_hex(3)}",
            home=home,
            port=numbers[0],
            slurmd_timeout=slurmd_timeout,
            min_job_age=min_job_age,
            nodes="\n".join(lines),
        )
        (home / "slurm.conf").write_text(conf + more.replace("{home}", str(home)))
        for number in range(GPUS):
            _make_device(home / f"gpu{number}")
        (home / "gres.conf").write_text(
            "".join(
                f"NodeName={name} Name=gpu File={home}/gpu[0-{count - 1}] Flags=nvidia_gpu_env\n"
                for name, count in zip(self.names, gpus, strict=True)
                if count
            )
        )
        half = (nodes + 1) // 2
        racks = [self.names[:half], self.names[half:]]
        lines = [
            f"SwitchName=rack{at} Nodes={','.join(each)}"
            for at, each in enumerate(racks, 1)
            if each
        ]
        lines.append(f"SwitchName=spine Switches=rack[1-{len(lines)}]")
        (home / "topology.conf").write_text("\n".join(lines) + "\n")
        self.env = {**os.environ, "SLURM_CONF": str(home / "slurm.conf")}
        self.env["PATH"] = self.env.get("PATH", "") + ":/usr/sbin:/sbin"

    def start(self) -> None:
        key = self.home / "munge" / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        home = self.home
        self._run(
            "munged",
            [
                *("munged", "--foreground", "--force", f"--socket={home}/munge.socket"),
                *(f"--key-file={key}", f"--pid-file={home}/munge/pid"),
                *(f"--log-file={home}/munge/log", f"--seed-file={home}/munge/seed"),
            ],
        )
        _until(lambda: (home / "munge.socket").exists(), "munged listens")
        self.start_controller()
        for name in self.names:
            self.start_node(name)
        self.wait_ready()

    def wait_ready(self) -> None:
        """All nodes are registered and in service. Who is late is started again now and then."""
        late_at = time.monotonic() + AGAIN_SECONDS

        def ready() -> bool:
            nonlocal late_at
            found = self.try_run("sinfo", "-h", "-N", "-o", "%N %T")
            here = set(re.findall(r"^(\S+) (?:idle|mixed|allocated|completing)$", found, re.M))
            late = [name for name in self.names if name not in here]
            if late and found and time.monotonic() > late_at:
                for name in late:
                    self.start_again(name)
                self.try_run("scontrol", "update", f"NodeName={','.join(late)}", "State=RESUME")
                late_at = time.monotonic() + AGAIN_SECONDS
            return not late

        _until(ready, "all nodes are in service", lambda: self.try_run("sinfo", "-N", "-l"))

    def start_controller(self) -> None:
        self._run("slurmctld", ["slurmctld", "-D", "-i"])

        def answers() -> bool:
            if self._children["slurmctld"].poll() is not None:
                self._run("slurmctld", ["slurmctld", "-D", "-i"])
            return "UP" in self.try_run("scontrol", "ping")

        _until(answers, "slurmctld answers", lambda: self._tail("slurmctld.log"))

    def start_again(self, name: str) -> None:
        """A node that did not register. Its jobs go on under their own processes."""
        if name in self._children:
            self.kill(name)
        self.start_node(name)

    def stop_controller(self) -> None:
        self.kill("slurmctld", signal.SIGTERM)

    def start_node(self, name: str) -> None:
        self._run(name, ["slurmd", "-D", "-N", name])

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        child = self._children.pop(name)
        child.send_signal(number)
        try:
            child.wait(CALL_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def run(self, *command: str, **options: Any) -> str:
        """What one of Slurm's commands prints; it must succeed."""
        done = self._called(*command, **options)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout.strip()

    def try_run(self, *command: str) -> str:
        """What it prints, whether it succeeds or not; nothing if it does not answer in time."""
        try:
            return self._called(*command).stdout.strip()
        except subprocess.TimeoutExpired:
            return ""

    def _called(self, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=CALL_SECONDS,
            check=False,
            **options,
        )

    def jobs(self, *, states: str = "all") -> list[list[str]]:
        """Job id, name, state and nodes of every job that Slurm remembers."""
        text = self.run("squeue", "-h", "-t", states, "-o", "%i|%j|%T|%N")
        return [line.split("|") for line in text.splitlines()]

    def settle(self) -> None:
        """No job runs or waits, and every node is in service."""

        def is_empty() -> bool:
            left = self.run("squeue", "-h", "-o", "%A").split()
            if left:
                self.try_run("scancel", "--signal=KILL", "--full", *left)
                self.try_run("scancel", *left)
            return not left

        _until(is_empty, "no job is left", lambda: self.try_run("squeue"), pause=0.3)
        self.try_run("scontrol", "update", f"NodeName={','.join(self.names)}", "State=RESUME")
        self.wait_ready()

    def close(self) -> None:
        if "slurmctld" in self._children:
            with suppress(AssertionError, subprocess.TimeoutExpired):
                self.settle()
        for name in [*self.names, "slurmctld", "munged"]:
            if name in self._children:
                self.kill(name, signal.SIGTERM)
        for each in self._ports:
            each.close()

    def _tail(self, name: str) -> str:
        path = self.home / name
        return path.read_text(errors="replace")[-2000:] if path.exists() else f"no {name}"

    def _run(self, name: str, command: Sequence[str]) -> None:
        with (self.home / f"{name}.out").open("ab") as out:
            self._children[name] = subprocess.Popen(
                command,
                env=self.env,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )


@contextmanager
def cluster(home: Path, gpus: Sequence[int] = (GPUS,) * 4, **options: Any) -> Iterator[Cluster]:
    found = Cluster(home, gpus, **options)
    try:
        found.start()
        yield found
    finally:
        found.close()


def _make_device(path: Path) -> None:
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))  # as /dev/null is


def _until(
    found: Callable[[], bool],
    what: str,
    more: Callable[[], str] = lambda: "",
    pause: float = 0.05,
) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not found():
        assert time.monotonic() < deadline, f"not so within {READY_SECONDS:.0f} s: {what} {more()}"
        time.sleep(pause)
