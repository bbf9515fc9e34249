"""The page's application, which Airflow's api-server mounts. It opens no connection before the first request."""

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
"""Content security policy: only files of this server, no inline scripts or styles, no frames of other sites."""

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
    app.router.routes.append(Route("/connect", _redirect_to_rest_api))  # without login: the REST API has its own
    app.add_api_route(
        "/{path:path}", _refuse_unknown, methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    )
    app.middleware("http")(_with_headers)
    app.add_exception_handler(StarletteHTTPException, _http_error)  # of which FastAPI's own exceptions are subclasses
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(FrazilError, _frazil_error)
    return app


def _redirect_to_rest_api(request: Request) -> RedirectResponse:
    """Redirect clients that leave out the slash at the end of the REST API's root."""
    return RedirectResponse(f"{request.scope.get('root_path', '')}/connect/")


def _refuse_unknown(path: str) -> None:  # noqa: ARG001 - FastAPI passes it
    raise HTTPException(HTTPStatus.NOT_FOUND, "There is no such page")


async def _with_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await call_next(request)
    for name, value in HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault("Cache-Control", "no-store")  # the content depends on the user
    return response


def _http_error(request: Request, error: Exception) -> HTMLResponse:
    assert isinstance(error, StarletteHTTPException)  # noqa: S101 - it is registered for this class
    return _problem(request, error.status_code, HTTPStatus(error.status_code).phrase, str(error.detail))


def _invalid_request(request: Request, error: Exception) -> HTMLResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - it is registered for this class
    detail = "\n".join(f"{problem['loc'][-1]}: {problem['msg']}" for problem in error.errors())
    return _problem(request, HTTPStatus.UNPROCESSABLE_ENTITY, "This address can't be read", detail)


def _frazil_error(request: Request, error: Exception) -> HTMLResponse:
    return _problem(request, HTTPStatus.BAD_GATEWAY, "This can't be read now", str(error))


def _problem(request: Request, status: int, title: str, detail: str) -> HTMLResponse:
    page = render(request, "problem.html.j2", title=title, detail=detail, status=status)
    page.status_code = status
    return page
