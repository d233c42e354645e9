"""The page's static files: the built page, or the plain one where it could not be built.

The files hold no data: the page asks for a token and reads the API with it.
"""

from __future__ import annotations

import gzip
from functools import cache
from importlib.resources import files

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from cede.server.api.route import CedeRoute

router = APIRouter(tags=["page"], route_class=CedeRoute)

NOT_BUILT = (
    "the page was not built, so the server serves the plain one; "
    "scripts/page builds it and says what is missing"
)


@router.get("/", include_in_schema=False)
async def index(request: Request) -> Response:
    return _file(request, "index.html", "text/html")


@router.get("/page.js", include_in_schema=False)
async def script(request: Request) -> Response:
    return _file(request, "page.js", "text/javascript")


@router.get("/page.css", include_in_schema=False)
async def style(request: Request) -> Response:
    return _file(request, "page.css", "text/css")


def is_built() -> bool:
    """Whether this installation has the built page."""
    return (files("cede.server.api") / "page" / "built" / "index.html").is_file()


def _file(request: Request, name: str, media_type: str) -> Response:
    folder = "built" if is_built() else "plain"
    plain, packed = _content(folder, name)
    headers = {"Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(plain, headers=headers, media_type=media_type)
    headers["Content-Encoding"] = "gzip"
    return Response(packed, headers=headers, media_type=media_type)


@cache
def _content(folder: str, name: str) -> tuple[bytes, bytes]:
    """Return a file as it is and compressed; both are made once, because they never change."""
    content = (files("cede.server.api") / "page" / folder / name).read_bytes()
    return content, gzip.compress(content, mtime=0)
