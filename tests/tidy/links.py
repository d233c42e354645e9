"""Links between our own pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from posixpath import normpath
from urllib.parse import unquote

FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"`[^`\n]*`")
INLINE_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
REFERENCE = re.compile(r"^\s*\[[^\]]+\]:\s+<?([^\s>]+)", re.MULTILINE)
SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def broken_links(page: str, text: str, exists: Callable[[str], bool]) -> Iterator[str]:
    """The targets in a page (its path relative to the root) that name no file or folder."""
    text = INLINE_CODE.sub("", FENCED.sub("", text))
    for target in INLINE_LINK.findall(text) + REFERENCE.findall(text):
        file = unquote(target.partition("#")[0])
        if not file or SCHEME.match(target):
            continue  # a heading of the same page, or another site
        if not exists(normpath(str(PurePosixPath(page).parent / file))):
            yield target
