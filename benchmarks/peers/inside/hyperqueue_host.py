"""Runs in the peers' own environment: HyperQueue with one worker, told what to do by lines.

`jobs N` submits a job of N tasks; `wait ID…` waits for these jobs. Answers are lines of
JSON. Ends with its standard input.
"""

import json
import os
import sys
import time
from pathlib import Path

import hyperqueue
from hyperqueue.cluster import WorkerConfig
from hyperqueue.ffi.client import ClientConnection


def jobs(client: hyperqueue.Client, home: Path, number: int) -> float:
    """Seconds until all have ended. Its own waiting looks once a second, so a last task that
    depends on all others says when that was.
    """
    over = home / f"over-{time.monotonic_ns()}"
    started = time.perf_counter()
    job = hyperqueue.Job()
    tasks = [job.program(["true"]) for _ in range(number)]
    job.program(["touch", str(over)], deps=tasks)
    submitted = client.submit(job)
    while not over.exists() and time.perf_counter() - started < 900:
        time.sleep(0.005)
    took = time.perf_counter() - started
    client.wait_for_jobs([submitted])  # raises if a task failed
    return took


def main() -> None:
    home, slots = Path(sys.argv[1]), int(sys.argv[2])
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the library prints a table there
    cluster = hyperqueue.LocalCluster(str(home / "server"), WorkerConfig(cores=slots))
    client = cluster.client()
    print(json.dumps({"directory": cluster.cluster.server_dir}), file=said, flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "jobs":
            answer: object = jobs(client, home, int(rest[0]))
        else:
            failed = ClientConnection(cluster.cluster.server_dir).wait_for_jobs(
                [int(each) for each in rest], lambda _: None
            )
            answer = len(failed)
        print(json.dumps(answer), file=said, flush=True)
    cluster.stop()


if __name__ == "__main__":
    main()
