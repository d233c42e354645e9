"""The output of work that a landed version started is read by this one, before and after its agent
is replaced: its supervisor wrote no order, so the streams come one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.cluster import Cluster
from tests.agent.crew import restart
from tests.client.serving import WAIT_SECONDS
from tests.support.sources import HERE
from tests.upgrade.test_rolling_upgrade import replace_server
from tests.upgrade.versions import VERSIONS, name

pytestmark = [pytest.mark.system, pytest.mark.slow]


WITHOUT_ORDER = [each for each in VERSIONS if each.protocol == 1]


@pytest.mark.parametrize("version", WITHOUT_ORDER, indirect=True, ids=name)
def test_old_output_is_read_stream_after_stream(cluster: Cluster, tmp_path: Path) -> None:
    agent = cluster.agent()
    script = (
        "echo err 1 >&2; echo out 1; "
        f"while ! test -e {tmp_path}/go; do sleep 0.05; done; echo out 2; echo err 2 >&2; exit 3"
    )
    request = cluster.submit("sh", "-c", script)
    home = agent.attempt(request)
    cluster.until(lambda: (home / "stdout.log").exists() and (home / "stdout.log").read_text())
    assert not (home / "order.log").exists(), "this version has an order, too"
    replace_server(cluster)
    cluster.until_ready(agent.name)

    def shown(*options: str) -> str:
        done = cluster.server.cede("logs", request, *options)
        assert done.returncode == 0, done.stderr
        said = done.stderr.count("keeps no order")
        assert said == (0 if set(options) & {"--stdout", "--stderr"} else 1), done.stderr
        return str(done.stdout)

    assert shown() == "out 1\nerr 1\n"
    assert shown("--stderr") == "err 1\n"
    restart(cluster, agent, HERE)
    cluster.until_ready(agent.name)
    assert shown() == "out 1\nerr 1\n"
    errors = tmp_path / "errors"
    with errors.open("w") as stream:
        follower = cluster.server.start_cede("logs", "-f", request, stderr=stream)
    cluster.until(lambda: "keeps no order" in errors.read_text(), about=request)
    (tmp_path / "go").touch()
    printed, _ = follower.communicate(timeout=WAIT_SECONDS)
    assert printed == "out 1\nout 2\nerr 1\nerr 2\n"
    waited = cluster.server.cede("wait", request)
    assert waited.returncode == 3
    assert waited.stderr.endswith("out 1\nout 2\nerr 1\nerr 2\n")
    # Work that the new agent starts has an order.
    fresh = cluster.submit("sh", "-c", "echo err >&2; echo out")
    cluster.ended(fresh)
    assert cluster.printed(fresh, stream="both") == b"err\nout\n"
