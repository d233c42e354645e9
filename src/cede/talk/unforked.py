"""gRPC for a process that forks supervisors.

gRPC's own support for forking restarts its threads in the forked process; a supervisor closes the
descriptors that they wait for, and they end it. Without that support the forked process has none of
them. gRPC reads the switch from the environment while it starts; the environment is restored
afterwards, because started work may need another value.
"""

from __future__ import annotations

import os
from typing import Any

SWITCH = "GRPC_ENABLE_FORK_SUPPORT"


def _load() -> Any:
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = "0"
    try:
        import grpc

        grpc.insecure_channel("unix:/nowhere").close()  # gRPC reads the switch when it starts
    except ImportError as error:
        raise ImportError('the protocol grpc needs: pip install "cede[grpc]"') from error
    finally:
        if before is None:
            del os.environ[SWITCH]
        else:
            os.environ[SWITCH] = before
    return grpc


grpc = _load()
