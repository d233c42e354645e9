"""A server with a long history: what its reads cost beside those of a small one, what the history
takes on disk, and what who submits notices while retention removes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from time import perf_counter, sleep
from typing import NamedTuple

from sqlalchemy import create_engine, text

from benchmarks.load import Calls, Result
from benchmarks.reads import CALLS, Read, beside_health, best, growth, paths_to
from benchmarks.report import Figure
from benchmarks.scale.filling import POOL_ID, Site, fill, pass_time, request_id, team_name
from benchmarks.scale.measure import Serving, serving_site, size_of
from benchmarks.service import Service
from cede.model.bounds import DAY, KEEP_REQUESTS_DEFAULT, PAGE_MAX
from cede.store import schema

FEW = Site(nodes=100, running=500, waiting=500, ended=1_000)
MANY = Site(nodes=100, running=50_000, waiting=50_000, ended=1_000_000)
PEOPLE = 32
# One caller that submits rests so many seconds after each answer.
PAUSE = 0.02
TOLD_APART = 10.0  # microseconds: no answer of the server takes less
NOISE = "not told apart from the submissions"
FAR = 200  # pages, or as many as there are

Cells = dict[str, str]


class Database(NamedTuple):
    """Where it is, and a folder for its server's own files."""

    url: str
    folder: Path


def measure(
    small: Database,
    large: Database,
    sites: tuple[Site, Site] = (FEW, MANY),
    seconds: float = 60,
    calls: int = CALLS,
) -> tuple[list[Figure], Cells]:
    """The figures that have a bound, and all of them for the table."""
    many = sites[1]
    keys_few, keys_many = (
        fill(each.url, site, PEOPLE) for each, site in zip((small, large), sites, strict=True)
    )
    size = size_of(large.url)
    with (
        serving_site(*small, keys_few) as of_few,
        serving_site(*large, keys_many) as of_many,
    ):
        figures, cells = _reads((of_few, of_many), sites, calls)
        usual = _submitted(of_many.service, seconds)
        cells |= _reports(of_few.service, of_many.service)
    pass_time(large.url, KEEP_REQUESTS_DEFAULT + 2 * DAY)
    before = _ended(large.url)
    with serving_site(*large, keys_many) as of_many:
        removing = _submitted(of_many.service, seconds)
    removed = before - _ended(large.url)
    figures.append(
        Figure(
            "the longest submission while retention removes",
            removing.times[-1],
            most=0.5,
            unit=" s",
            detail=f"{removed:,} removed in {removing.seconds:.0f} s; {removing}",
        )
    )
    cells["database; for each request"] = (
        f"{size / 2**30:.2f} GiB; {size / (many.ended + many.alive):,.0f} bytes"
    )
    cells["submit, nothing is removed: p50; p99; longest"] = _times(usual)
    cells["submit while ended requests are removed: p50; p99; longest"] = _times(removing)
    cells["requests removed a second"] = f"{removed / removing.seconds:,.0f}"
    return figures, cells


def about(few: Site = FEW, many: Site = MANY) -> str:
    return f"{_said(many)}; beside it a server with {_said(few)}."


def _said(site: Site) -> str:
    ended = f" and {site.ended:,} ended" if site.ended else ""
    return f"{site.alive:,} alive{ended}"


def _reads(
    servers: tuple[Serving, Serving], sites: tuple[Site, Site], calls: int
) -> tuple[list[Figure], Cells]:
    """Those with bounds, and lists that are narrowed, of both servers."""
    with_few, with_many = map(_said, sites)
    few, many = (
        best(each.service, paths_to(request_id(site.ended + site.running // 2)), calls)
        for each, site in zip(servers, sites, strict=True)
    )
    figures = beside_health(many, with_many) + growth(few, with_few, many, with_many)
    some = [_lists(each.service, site) for each, site in zip(servers, sites, strict=True)]
    lists_few, lists_many = (
        best(each.service, paths, max(1, calls // 10))
        for each, paths in zip(servers, some, strict=True)
    )
    cells = _costs(few | lists_few, many | lists_many)
    return figures, cells


def _costs(few: dict[str, Read], many: dict[str, Read]) -> Cells:
    """Of calls that take long enough for many submissions beside them, the rest is noise."""
    return {
        f"GET of {name}: server, small; large; times": (
            f"{few[name].cost:,.0f} us; {read.cost:,.0f} us; {read.cost / few[name].cost:.2f}"
            if min(few[name].cost, read.cost) > TOLD_APART
            else NOISE
        )
        for name, read in many.items()
    }


def _lists(service: Service, site: Site) -> dict[str, str]:
    """Lists of other kinds. A page looks at 10,000 requests at most, so those that find little cost
    more with many than with a thousand, and no more with ten times as many.
    """
    place = "/api/v1/requests"
    team = f"component={team_name(3)}&component_type=team"
    over = f"{place}?status=released"
    return {
        "ended requests": over,
        f"ended requests, {FAR} pages behind": _far(service, over, FAR),
        "a team's": f"{place}?{team}",
        "a team's failed ones": f"{place}?{team}&status=failed",
        "a label that one has": f"{place}?label.run=1",
        "a pool's ended ones": f"{place}?pool={POOL_ID}&status=released",
        "events of one request": f"/api/v1/events?request_id={request_id(site.ended // 2)}",
        "the last events of a pool": f"/api/v1/events?before={2**52}&pool={POOL_ID}",
    }


def _far(service: Service, path: str, pages: int) -> str:
    """The page behind so many others, or the last one."""
    for _ in range(pages):
        page = service.get(f"{path}&limit={PAGE_MAX}")
        if page["next"] is None:
            break
        path = f"{path.split('&')[0]}&cursor={page['next']}"
    return path


def _reports(*services: Service) -> Cells:
    """Last of all: who asks for them pays for them, and may ask for little else then."""
    cells = {}
    for by in ("team", "label"):
        took = [_report(each, f"/api/v1/usage?by={by}") for each in services]
        cells[f"usage by {by}, since ever: small; large"] = "; ".join(
            f"{each:.2f} s" for each in took
        )
    return cells


def _report(service: Service, path: str) -> float:
    """Seconds until a report is there that nobody has asked for."""
    with closing(service.load(1)) as load:
        return load.run(islice(service.calls("GET", path), 1)).times[0]


def _submitted(service: Service, seconds: float) -> Result:
    """One caller that submits for so long, beside the agents."""
    with closing(service.load(1)) as load:
        return load.run(_paced(service.submissions(), seconds))


def _paced(calls: Calls, seconds: float) -> Iterator[bytes]:
    until = perf_counter() + seconds
    for call in calls:
        if perf_counter() > until:
            return
        sleep(PAUSE)
        yield call


def _times(result: Result) -> str:
    longest = 1e3 * result.times[-1]
    return f"{result.within(0.5):.1f} ms; {result.within(0.99):.0f} ms; {longest:.0f} ms"


def _ended(url: str) -> int:
    engine = create_engine(url)
    with engine.connect() as connection:
        found = connection.execute(text(f"SELECT COUNT(*) FROM requests WHERE {schema.ENDED}"))
        count = int(found.scalar_one())
    engine.dispose()
    return count
