"""Runs in the peers' own environment: submits one job with one task, and prints its id."""

import sys

from hyperqueue import Client, Job

job = Job()
job.program(["true"])
print(Client(sys.argv[1]).submit(job).id)
