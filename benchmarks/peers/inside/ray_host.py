"""Runs in the peers' own environment: Ray on one node, told what to do by lines.

`jobs N` calls a remote function N times. Answers are lines of JSON. Ends with its standard input.
"""

import json
import os
import subprocess
import sys
import time

import ray


@ray.remote(num_cpus=1, max_retries=0)
def program(*argv: str) -> int:
    return subprocess.run(argv, check=True).returncode


def main() -> None:
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what it prints goes to the log
    ray.init(
        num_cpus=int(sys.argv[2]),
        include_dashboard=False,
        object_store_memory=100 << 20,
        log_to_driver=False,
        _temp_dir=sys.argv[1],
        _node_ip_address="127.0.0.1",
    )
    print(json.dumps({"version": ray.__version__}), file=said, flush=True)
    for line in sys.stdin:
        _, number = line.split()
        started = time.perf_counter()
        ray.get([program.remote("true") for _ in range(int(number))])
        print(json.dumps(time.perf_counter() - started), file=said, flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()
