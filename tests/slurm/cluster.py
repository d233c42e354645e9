"""A Slurm of its own on loopback: munge, one controller and some nodes with pretended GPUs, all of
them processes of this test and gone with it. The programs are the system's packages.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "srun")
PACKAGES = "slurmctld slurmd slurm-client munge"
READY_SECONDS = 60.0
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
    return ""


class Cluster:
    """Four nodes n1 to n4 unless told otherwise; `env` is what Slurm's commands need."""

    def __init__(
        self, home: Path, nodes: int = 4, *, slurmd_timeout: int = 10, min_job_age: int = 300
    ) -> None:
        self.home = home
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        home.chmod(0o755)
        for each in ("state", "munge"):
            (home / each).mkdir()
        ports = _ports(nodes + 1)
        lines = [
            f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} "
            f"CoresPerSocket={CPUS} ThreadsPerCore=1 Sockets=1 RealMemory={MEMORY_MB} "
            f"Gres=gpu:{GPUS} Feature=a100"
            for name, port in zip(self.names, ports[1:], strict=True)
        ]
        conf = _CONF.format(
            name=f"c{secrets.token_hex(3)}",
            home=home,
            port=ports[0],
            slurmd_timeout=slurmd_timeout,
            min_job_age=min_job_age,
            nodes="\n".join(lines),
        )
        (home / "slurm.conf").write_text(conf)
        for number in range(GPUS):
            os.mknod(home / f"gpu{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))  # /dev/null
        (home / "gres.conf").write_text(
            f"Name=gpu File={home}/gpu[0-{GPUS - 1}] Flags=nvidia_gpu_env\n"
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
        def ready() -> bool:
            found = self.try_run("sinfo", "-h", "-N", "-o", "%N %T").split("\n")
            idle = [each for each in found if re.search(r" (idle|mixed|allocated)$", each)]
            return len(idle) == len(self.names)

        _until(ready, "all nodes are idle", lambda: self.try_run("sinfo", "-N", "-l"))

    def start_controller(self) -> None:
        self._run("slurmctld", ["slurmctld", "-D", "-i"])
        _until(lambda: "UP" in self.try_run("scontrol", "ping"), "slurmctld answers")

    def stop_controller(self) -> None:
        self.kill("slurmctld", signal.SIGTERM)

    def start_node(self, name: str) -> None:
        self._run(name, ["slurmd", "-D", "-N", name])

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        child = self._children.pop(name)
        child.send_signal(number)
        child.wait(30)

    def run(self, *command: str, **options: Any) -> str:
        """What one of Slurm's commands prints; it must succeed."""
        done = subprocess.run(
            command,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **options,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout.strip()

    def try_run(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self.env, capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout.strip()

    def jobs(self, *, states: str = "all") -> list[list[str]]:
        """Job id, name, state and nodes of every job that Slurm remembers."""
        text = self.run("squeue", "-h", "-t", states, "-o", "%i|%j|%T|%N")
        return [line.split("|") for line in text.splitlines()]

    def settle(self) -> None:
        """No job runs or waits, and every node is in service."""
        for ids in [self.try_run("squeue", "-h", "-o", "%A").split()]:
            if ids:
                self.try_run("scancel", "--signal=KILL", "--full", *ids)
                self.try_run("scancel", *ids)
        _until(lambda: not self.try_run("squeue", "-h"), "no job is left")
        self.try_run("scontrol", "update", f"NodeName={','.join(self.names)}", "State=RESUME")
        self.wait_ready()

    def close(self) -> None:
        if "slurmctld" in self._children:
            with suppress(AssertionError):
                self.settle()
        for name in [*self.names, "slurmctld", "munged"]:
            if name in self._children:
                self.kill(name, signal.SIGTERM)

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
def cluster(home: Path, **options: Any) -> Iterator[Cluster]:
    found = Cluster(home, **options)
    try:
        found.start()
        yield found
    finally:
        found.close()


def _ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for each in held:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in held]
    for each in held:
        each.close()
    return ports


def _until(found: Any, what: str, more: Any = lambda: "") -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not found():
        assert time.monotonic() < deadline, f"not so within {READY_SECONDS:.0f} s: {what} {more()}"
        time.sleep(0.05)
