"""The reference pages and the code name the same things."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cede.cli import exit_codes
from cede.cli.commands import COMMANDS, cli
from cede.model import bounds, lifecycle
from cede.model.node import NODE_MOVES
from cede.model.reason import SENTENCES, Code
from cede.model.settings import Settings
from cede.server import config
from cede.server.api.permissions import API, PERMISSIONS
from cede.snapshot import configuration
from cede.snapshot import fields as snapshot_fields
from cede.snapshot import nodes as snapshot_nodes
from cede.snapshot import reader as snapshot_reader
from cede.snapshot import tenants as snapshot_tenants
from tests.client.serving import Serving
from tests.docs.names import rows

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


COMMAND_PAGES = (
    "cli.md",
    "cli-lists.md",
    "cli-nodes.md",
    "tenants.md",
    "audit.md",
    "apply.md",
    "contexts.md",
)


def page(name: str) -> str:
    return (REFERENCE / name).read_text()


def codes_of(text: str) -> set[str]:
    """Everything that a page writes as code, outside its fenced blocks."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return {each for code in re.findall(r"`([^`]+)`", text) for each in (code, *code.split())}


def test_every_reason_has_its_sentence_and_its_fix() -> None:
    shown = {row[0].strip("`"): (row[1], row[2]) for row in rows(page("reasons.md"), r"`\w+`")}
    wanted = {
        str(code): tuple(re.sub(r"\{(\w+)\}", lambda m: m[1].upper(), each) for each in sentences)
        for code, sentences in SENTENCES.items()
    }
    assert shown == wanted
    assert set(wanted) == {str(code) for code in Code}


def test_every_reason_has_an_example() -> None:
    examples = {row[0].strip("`"): row[3] for row in rows(page("reasons.md"), r"`\w+`")}
    for code, (text, _) in SENTENCES.items():
        parts = (re.escape(each) for each in re.split(r"\{\w+\}", text))
        assert re.fullmatch("(.+?)".join(parts), examples[str(code)]), code


def test_every_setting_has_its_default() -> None:
    shown = {row[0].strip("`"): row[1].strip("`") for row in rows(page("settings.md"), r"`\w+`")}
    for each in fields(Settings):
        value = Settings().shown(each.name)
        told = json.dumps(value).strip('"').removesuffix(".0")
        assert shown[each.name] == told, each.name


def _moves(text: str, title: str) -> dict[str, set[str]]:
    part = text.split(f"## {title}")[1].split("| what happens")[0].split("## ")[0]
    return {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[1])) for row in rows(part, r"`\w+`")}


@pytest.mark.parametrize(
    ("title", "moves"),
    [
        ("Requests", lifecycle.REQUEST_MOVES),
        ("Allocations", lifecycle.ALLOCATION_MOVES),
        ("Nodes", NODE_MOVES),
    ],
)
def test_the_lifecycle_is_the_table(title: str, moves: dict[str, frozenset[str]]) -> None:
    wanted = {str(state): {str(each) for each in to} for state, to in moves.items()}
    assert _moves(page("lifecycle.md"), title) == wanted


def test_a_missing_edge_is_found() -> None:
    text = page("lifecycle.md").replace("`queued` | `allocated`, ", "`queued` | ", 1)
    wanted = {str(each) for each in lifecycle.REQUEST_MOVES[lifecycle.RequestStatus.QUEUED]}
    assert _moves(text, "Requests")["queued"] != wanted


def test_every_bound_is_on_its_page() -> None:
    names = [name for name in vars(bounds) if name.isupper()]
    assert len(names) > 30
    assert [name for name in names if f"`{name}`" not in page("bounds.md")] == []
    for cells in rows(page("bounds.md"), r"`[A-Z_]+`"):
        value = getattr(bounds, cells[0].strip("`"))
        assert any(shown in cells[1] for shown in _shown(value)), cells


def _shown(value: int) -> list[str]:
    """A bound as its page may write it: a number, or a time or a size in some unit."""
    units = {" s": 1_000, " hour": bounds.HOUR, " days": 24 * bounds.HOUR, " MiB": 1024**2}
    return [f"{value:,}", *(f"{value // unit:,}{name}" for name, unit in units.items())]


@pytest.mark.system
def test_every_metric_is_on_its_page_with_its_labels(server: Serving) -> None:
    with server.client() as client:
        client.requests.create({"resources": {"mcpu": 1}, "kind": "work", "lease": "none"})
    text = _scrape(server)
    shown = {row[0].strip("`"): row for row in rows(page("metrics.md"), r"`cede_\w+`")}
    found = {}
    for task_group in text_string_to_metric_families(text):
        name = task_group.name + ("_total" if task_group.type == "counter" else "")
        if not name.endswith("_created"):
            found[name] = task_group
    assert set(found) == set(shown)
    for name, task_group in found.items():
        assert shown[name][1] == task_group.type, name
        labels = {label for sample in task_group.samples for label in sample.labels} - {"le"}
        assert labels <= codes_of(shown[name][2]), name


def test_every_route_is_on_its_page() -> None:
    shown = {code.partition("?")[0] for code in codes_of(page("http-api.md"))}
    assert len(PERMISSIONS) > 40
    assert [path for _, path in PERMISSIONS if path.removeprefix(API) not in shown] == []


def _scrape(server: Serving) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    asked = urllib.request.Request(
        f"{server.url}/metrics", headers={"Authorization": f"Bearer {server.token}"}
    )
    with opener.open(asked, timeout=60) as answer:
        return str(answer.read().decode())


def _commands(group: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(group, click.Group):
        yield path, group
        return
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from _commands(command, f"{path} {name}".strip())


def test_every_command_is_on_its_page() -> None:
    text = "".join(map(page, COMMAND_PAGES))
    for top in COMMANDS:
        assert f"cede {top}" in text, top
    for path, _ in _commands(cli, ""):
        top, _, rest = path.partition(" ")
        if rest:
            own = rf"{top} [^`]*\b{rest}\b"
            short = {"pool": "resource-pool", "request": "resource-request"}.get(top, top)
            assert re.search(own, text) or re.search(rf"{short} [^`]*\b{rest}\b", text), path


def test_every_option_is_on_its_page() -> None:
    text = "".join(map(page, COMMAND_PAGES))
    missing = {
        f"{path} {longest}"
        for path, command in _commands(cli, "")
        for option in command.params
        if isinstance(option, click.Option) and option.name != "help"
        for longest in (max(option.opts, key=len), *option.secondary_opts)
        if not re.search(rf"(?<![\w-]){longest}(?![\w-])", text)
    }
    assert missing == set()


def test_every_exit_code_is_on_its_page() -> None:
    shown = {int(row[0]) for row in rows(page("cli.md"), r"\d+")}
    codes = {
        value
        for name, value in vars(exit_codes).items()
        if name.isupper() and isinstance(value, int) and name != "SIGNAL_BASE"
    }
    assert codes == shown


def test_every_key_of_the_server_is_on_its_pages() -> None:
    for text in (page("server.md"), page("configuration.md")):
        shown = codes_of(text)
        for key in config._FIELDS:
            assert key in shown, key
            assert f"CEDE_{key.upper()}" in shown, key
    assert config.FILE_VARIABLE in codes_of(page("server.md"))


def test_every_variable_that_is_read_is_on_its_page() -> None:
    source = Path(__file__).parents[2] / "src"
    read = {
        name
        for path in source.rglob("*.py")
        for name in re.findall(r"\"(CEDE_[A-Z_]*[A-Z])\"", path.read_text())
    }
    assert len(read) > 5
    assert read - codes_of(page("configuration.md")) == set()


def test_every_field_of_a_declared_file_is_on_its_pages() -> None:
    shown = codes_of(page("apply.md") + page("settings.md") + page("tenants.md"))
    known = (configuration.POOL, configuration.POLICY, configuration.TENANT)
    assert [name for names in known for name in names if name not in shown] == []


def test_every_field_of_a_snapshot_is_on_its_page() -> None:
    shown = codes_of(page("snapshot.md"))
    parts = ("_TOP", "_POOL", "_POLICY", "_RUNNING", "_WAITING", "_STATES")
    known = {part: set(getattr(snapshot_reader, part)) for part in parts}
    known |= {"parting": {*snapshot_fields.STOP_PROGRESS}, "asked": {*snapshot_fields.ASKED}}
    known |= {"tenant": {*snapshot_tenants.TENANT}}
    known |= {"node": {*snapshot_nodes.NODE}, "member": {*snapshot_nodes.MEMBER}}
    for part, names in known.items():
        missing = {str(each) for each in names} - shown
        assert not missing - {"shrunk", "work", "nowhere_else"}, (part, missing)
    for name in ("shrunk", "work", "nowhere_else"):
        assert f"`{name}: true`" in page("snapshot.md")
