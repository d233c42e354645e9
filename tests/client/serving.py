"""A real server in a process of its own, for tests of whatever talks to it."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import yaml

from cede import CedeClientError, Client, Conflict, NotFound
from tests.support import ports
from tests.support.sources import HERE, Source

BIN = Path(sys.executable).parent
# What takes a second takes many on a busy machine; only a test that fails waits so long.
START_SECONDS = 200.0
WAIT_SECONDS = 60.0


class Serving:
    """One server and its data folder. It can be killed and started again on the same port."""

    program: tuple[str, ...] = (str(BIN / "cede"),)

    def __init__(
        self,
        data: Path,
        database: str | None = None,
        options: tuple[str, ...] = ("--no-agent",),
        source: Source = HERE,
    ) -> None:
        self.data = data
        self.source = source  # another one takes effect at the next start
        self._database = database
        self._options = options
        self._log = data.parent / f"{data.name}.log"
        self._commands: list[subprocess.Popen[str]] = []
        self._held: socket.socket | None = None
        self.port = 0
        self.url = ""
        self.start()
        found = yaml.safe_load((data / "client.yaml").read_text())
        self.token: str = found["token"]

    def start(self) -> None:
        command = [*self.program, "up", "--data", self.data, "--port", str(self.port)]
        command += self._options
        if self._database is not None:
            command += ["--database", self._database]
        with self._log.open("ab") as log:
            before = self._log.stat().st_size
            self.process = subprocess.Popen(
                [str(each) for each in command],
                env={**os.environ, **self.source.variables()},
                stdout=log,
                stderr=log,
                cwd=self.data.parent,
            )
        try:
            self._wait_until_serving(before)
        except BaseException:
            self._end()  # whoever made us has nobody to stop
            raise
        finally:
            self._let_port_go()

    def _wait_until_serving(self, since: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            said = self._log.read_bytes()[since:].decode()
            if found := re.search(r"cede is serving on (https?://\S+:(\d+))", said):
                self.url, self.port = found[1], int(found[2])
                return
            assert self.process.poll() is None, said
            time.sleep(0.05)
        raise AssertionError(f"the server did not start: {self._log.read_text()}")

    def kill(self) -> None:
        self._end()
        self.hold_port()

    def end(self) -> int:
        """Tell it to end, wait, and keep its port; the result is its exit code."""
        self.process.terminate()
        code = self.process.wait(WAIT_SECONDS)
        self.hold_port()
        return code

    def _end(self) -> None:
        self.process.kill()
        self.process.wait()

    def hold_port(self) -> None:
        """Keep the port for the next start."""
        self._held = ports.hold(self.port)

    def _let_port_go(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def stop(self) -> None:
        self.end_commands()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(WAIT_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        self._let_port_go()

    def client(self, token: str | None = None) -> Client:
        return Client(self.url, token or self.token)

    def environment(self, token: str | None = None, **extra: str) -> dict[str, str]:
        """For a command: this server, this token, and nothing of the user's own configuration."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("CEDE_")}
        own = {"CEDE_SERVER": self.url, "CEDE_TOKEN": token or self.token}
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        return {**kept, **own, "PATH": path, "HOME": str(self.data.parent), **extra}

    def cede(
        self, *arguments: object, token: str | None = None, **options: object
    ) -> subprocess.CompletedProcess[str]:
        """Run one command to its end."""
        return subprocess.run(
            [str(BIN / "cede"), *map(str, arguments)],
            env=self.environment(token),
            capture_output=True,
            text=True,
            timeout=2 * WAIT_SECONDS,
            **options,
        )

    def pace(self) -> float:
        """Seconds that a command takes to start here and now, as a measure for what is soon."""
        begun = time.monotonic()
        self.cede("--version")
        return time.monotonic() - begun

    def completes(self, words: str) -> str:
        """What a shell is offered for the last of these words, once it is offered anything.

        A server that answers late is not waited for, so on a busy machine once is not enough.
        """
        typed = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        asked = {"_CEDE_COMPLETE": "bash_complete", **typed}

        def offered() -> str:
            command, environment = [str(BIN / "cede")], self.environment(**asked)
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            return done.stdout

        return str(eventually(offered))

    def start_cede(
        self,
        *arguments: object,
        token: str | None = None,
        stderr: object = subprocess.PIPE,
        source: Source = HERE,
    ) -> subprocess.Popen[str]:
        """Start one command, to be watched while it runs."""
        process = subprocess.Popen(
            [str(BIN / "cede"), *map(str, arguments)],
            env=self.environment(token, **source.variables()),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        self._commands.append(process)
        return process

    def end_commands(self) -> None:
        """Whatever a failed test left running."""
        for process in self._commands:
            if process.poll() is None:
                process.kill()
            process.communicate()
        self._commands.clear()


def clean(client: Client) -> None:
    """Nothing is left but what the first start made: cheaper than a server for every test."""
    for each in list(client.requests.list()):
        with contextlib.suppress(CedeClientError):
            client.requests.cancel(each["id"])
            client.requests.release(each["id"], outcome="stopped")
        eventually(partial(_delete, client, each["id"]))  # an agent may still be stopping it
    for each in reversed(list(client.policies.list())):  # those below before those above
        if each["pool"] != "local":
            client.policies.detach(each["id"])
    for each in list(client.pools.list()):
        if each["name"] != "local":
            client.pools.delete(each["id"])
    for each in list(client.tenants.list()):
        client.tenants.delete(each["id"])


def _delete(client: Client, request_id: str) -> bool:
    try:
        return client.requests.delete(request_id)
    except NotFound:
        return True
    except Conflict:
        return False


def eventually(look: Callable[[], object], seconds: float = WAIT_SECONDS) -> object:
    """What `look` finds once it finds something."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"still {found!r} after {seconds} seconds"
        time.sleep(0.05)
    return found


def two_teams(client: Client, pool: str = "gpus", gpus: int = 2, grace: float = 30) -> None:
    """A pool that belongs to blue; red may borrow all of it and must give it back.

    Whoever obeys has all the time it may need on a busy machine.
    """
    client.pools.create(pool, {"gpu": gpus}, settings={"grace": grace})
    for team, reserved in (("red", 0), ("blue", gpus)):
        client.policies.attach(
            pool,
            team,
            component_type="team",
            priority=10,
            reserved={"gpu": reserved},
            limit={"gpu": gpus},
        )
