"""The application that Airflow's api-server mounts. It opens no connection before the first request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from airflow.api_fastapi.core_api.security import get_user
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.routing import Route

from frazil.errors import FrazilError
from frazil_airflow.page import letters_routes, pipeline_routes, rendering
from frazil_airflow.page.rendering import render

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self';"
    " frame-ancestors 'self'; base-uri 'none'"
)
"""Nothing but our own files, no script or style within a page, shown in no frame but Airflow's."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def create_app() -> FastAPI:
    """Make the application. Every route, including static files and unknown paths, requires an Airflow login."""
    app = FastAPI(title="Frazil", docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(get_user)])
    for routes in (pipeline_routes, letters_routes, rendering):
        app.include_router(routes.router)
    app.router.routes.append(Route("/connect", _rest_api))  # whose login the REST API takes, in its own ways
    app.add_api_route("/{path:path}", _unknown, methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
    app.middleware("http")(_with_headers)
    app.add_exception_handler(StarletteHTTPException, _refused)  # FastAPI's own are of this kind, too
    app.add_exception_handler(RequestValidationError, _misread)
    app.add_exception_handler(FrazilError, _failed)
    return app


def _rest_api(request: Request) -> RedirectResponse:
    """The root of the REST API, for clients that leave out its slash."""
    return RedirectResponse(f"{request.scope.get('root_path', '')}/connect/")


def _unknown(path: str) -> None:  # noqa: ARG001 - FastAPI gives it
    raise HTTPException(HTTPStatus.NOT_FOUND, "There is no such page")


async def _with_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await call_next(request)
    for name, value in HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault("Cache-Control", "no-store")  # what is shown depends on who asks
    return response


def _refused(request: Request, error: Exception) -> HTMLResponse:
    assert isinstance(error, StarletteHTTPException)  # noqa: S101 - it is registered for this class
    title = HTTPStatus(error.status_code).phrase
    page = render(request, "problem.html.j2", title=title, detail=str(error.detail), status=error.status_code)
    page.status_code = error.status_code
    return page


def _misread(request: Request, error: Exception) -> HTMLResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - it is registered for this class
    detail = "\n".join(f"{problem['loc'][-1]}: {problem['msg']}" for problem in error.errors())
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    page = render(request, "problem.html.j2", title="This address can't be read", detail=detail, status=status)
    page.status_code = status
    return page


def _failed(request: Request, error: Exception) -> HTMLResponse:
    page = render(
        request, "problem.html.j2", title="This can't be read now", detail=str(error), status=HTTPStatus.BAD_GATEWAY
    )
    page.status_code = HTTPStatus.BAD_GATEWAY
    return page
