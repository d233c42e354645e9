"""gRPC for a process that forks: whoever holds work forks a supervisor for it.

gRPC's own support for forking starts its threads anew in whoever is forked; a supervisor closes
what they wait for, and they end it. Without that support the forked process simply has none of
them. It is told by the environment while gRPC starts, and the environment is then as it was: what
we start may want it otherwise.
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

        grpc.insecure_channel("unix:/nowhere").close()  # it reads the switch when it starts
    except ImportError as error:
        raise ImportError('the protocol grpc needs: pip install "cede[grpc]"') from error
    finally:
        if before is None:
            del os.environ[SWITCH]
        else:
            os.environ[SWITCH] = before
    return grpc


grpc = _load()
