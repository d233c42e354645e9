"""The list of pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cede.cli.lists import Columns, Listing

if TYPE_CHECKING:
    from cede.client.client import Client

POOLS = Columns(
    ("id", "name", "capacity", "occupied_resources", "queued", "active"),
    ("free", "earmarked", "preset", "created", "description"),
    ("occupied", "nodes", "settings", "own_settings"),
)


def print_pools(client: Client, listing: Listing) -> None:
    rows = map(_with_old_name, client.pools.list())
    listing.print(rows, empty="no pools; make one with `cede pool create`")


def _with_old_name(found: dict[str, Any]) -> dict[str, Any]:
    """Add `occupied_resources`, as document 002's lists name what is occupied."""
    return {**found, "occupied_resources": found.get("occupied", {})}
