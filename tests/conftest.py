"""Fixtures that every test may use: a real PostgreSQL, a fresh database of either kind, and a real
Slurm.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from sqlalchemy.engine import make_url

from tests.slurm import cluster
from tests.support import postgres, second_try
from tests.support.properties import Properties, in_ci

PROPERTIES = Properties.of()
PROPERTIES.load()

# A server's logs have plain tracebacks; those that structlog draws by itself take seconds.
structlog.configure(
    processors=[structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
)

# What a background shell starts ignores these, and so would every process that a test interrupts.
for _number, _usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)

NO_POSTGRES = pytest.StashKey[str]()
NO_SLURM = pytest.StashKey[str]()


@pytest.fixture(scope="session", autouse=True)
def state_directory() -> Iterator[None]:
    """A server of root keeps its agent's data where services do; that of tests goes with them."""
    with tempfile.TemporaryDirectory(prefix="cede-state-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("STATE_DIRECTORY", folder)
            yield


@pytest.fixture(scope="session")
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a PostgreSQL server that lives as long as the test run."""
    try:
        with postgres.running_server(postgres.find_binaries()) as url:
            yield url.render_as_string(hide_password=False)
    except postgres.Unavailable as reason:
        if in_ci():
            pytest.fail(f"PostgreSQL is required here: {reason}")
        request.config.stash[NO_POSTGRES] = str(reason)
        pytest.skip(f"no PostgreSQL: {reason}")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A fresh empty database; a test that takes it runs once on each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'cede.db'}"
        return
    server = make_url(request.getfixturevalue("postgres_url"))
    with postgres.fresh_database(server) as url:
        yield url.render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def slurm(request: pytest.FixtureRequest) -> Iterator[cluster.Cluster]:
    """One Slurm for everybody."""
    if reason := cluster.missing():
        request.config.stash[NO_SLURM] = reason
        pytest.skip(f"no Slurm: {reason}")
    # Not below pytest's own directory, where other accounts' work could not come by.
    home = Path(tempfile.mkdtemp(prefix="cede-slurm-"))
    try:
        with cluster.cluster(home) as made:
            yield made
    finally:
        shutil.rmtree(home, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    PROPERTIES.hold_for(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    return (in_ci() and second_try.run(item, nextitem)) or None


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    return second_try.status(report)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """What must not pass for a green run: what was not there was not tested, or luck helped."""
    second_try.report(terminalreporter)
    for name, key in (("POSTGRESQL", NO_POSTGRES), ("SLURM", NO_SLURM)):
        reason = config.stash.get(key, None)
        if reason is not None:
            terminalreporter.section(f"{name} WAS NOT TESTED", red=True, bold=True)
            terminalreporter.line(reason, red=True)
