"""Every link from one of our pages to another leads somewhere."""

from __future__ import annotations

from tests.tidy.links import broken_links
from tests.tidy.tree import ROOT, text_of, tracked_files

FILES = {"README.md", "docs/start.md", "docs/explain/laws.md", "docs/a b.md"}

BROKEN = {
    "a page that is not there": ("README.md", "[x](docs/missing.md)"),
    "a page in the wrong folder": ("docs/explain/laws.md", "[x](start.md)"),
    "a heading of a page that is not there": ("README.md", "[x](missing.md#laws)"),
    "a reference": ("README.md", "see [x].\n\n[x]: missing.md\n"),
    "a picture": ("README.md", "![x](missing.png)"),
    "a path from the root of the disk": ("README.md", "[x](/docs/start.md)"),
}

SOUND = {
    "a page": ("README.md", "[x](docs/start.md)"),
    "a page one folder up": ("docs/explain/laws.md", '[x](../start.md "title")'),
    "a heading": ("README.md", "[x](docs/explain/laws.md#one-fit), [y](#here)"),
    "another site": ("README.md", "[x](https://example.org/missing.md)"),
    "code": ("README.md", "`[x](missing.md)`\n\n```\n[x](missing.md)\n```\n"),
    "a space in the name": ("README.md", "[x](docs/a%20b.md)"),
}


def test_a_broken_link_is_found() -> None:
    found = {
        case: list(broken_links(*sample, FILES.__contains__)) for case, sample in BROKEN.items()
    }
    assert [case for case, links in found.items() if not links] == []


def test_a_sound_link_passes() -> None:
    found = {
        case: list(broken_links(*sample, FILES.__contains__)) for case, sample in SOUND.items()
    }
    assert {case: links for case, links in found.items() if links} == {}


def test_every_link_of_ours_leads_somewhere() -> None:
    broken = [
        f"{page}: {target}"
        for page in tracked_files()
        if page.endswith(".md") and (page.startswith("docs/") or "/" not in page)
        for target in broken_links(page, text_of(page) or "", lambda path: (ROOT / path).exists())
    ]
    assert not broken, "\n" + "\n".join(broken)
