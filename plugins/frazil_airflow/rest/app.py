"""The REST API's application, which Airflow's api-server mounts. It opens no connection before the first request."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from airflow.api_fastapi.core_api.security import get_user
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from frazil import __version__
from frazil.errors import FrazilError, Terminal
from frazil_airflow.rest import connector_plugins, connectors, offsets
from frazil_airflow.rest.request import ConnectApp, refuse_forged

HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_METHODS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def create_app() -> FastAPI:
    """Make the application. Every route, also an unknown path, requires an Airflow login and refuses forged changes (CSRF)."""
    app = ConnectApp(
        title="Frazil",
        version=__version__,
        description="Kafka Connect's REST API over pipelines. Errors are `{error_code, message}`.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(get_user), Depends(refuse_forged)],
    )
    app.add_api_route("/openapi.json", openapi, methods=["GET"], include_in_schema=False)
    for routes in (connectors, offsets, connector_plugins):
        app.include_router(routes.router)
    app.add_api_route("/admin/{path:path}", _refuse_admin, methods=_METHODS, include_in_schema=False)
    app.add_api_route("/{path:path}", _refuse_unknown, methods=_METHODS, include_in_schema=False)
    app.add_exception_handler(StarletteHTTPException, _http_error)  # of which FastAPI's own exceptions are subclasses
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(FrazilError, _frazil_error)
    return app


def openapi(request: Request) -> dict[str, Any]:
    """This API's own OpenAPI document."""
    document: dict[str, Any] = {**request.app.openapi(), "servers": [{"url": request.scope.get("root_path", "")}]}
    return document


def _refuse_admin(path: str) -> None:
    raise HTTPException(
        HTTPStatus.NOT_IMPLEMENTED, f"/admin/{path[:100]} has no counterpart: log levels are Airflow's own setting"
    )


def _refuse_unknown(path: str) -> None:  # noqa: ARG001 - FastAPI passes it
    raise HTTPException(HTTPStatus.NOT_FOUND, "HTTP 404 Not Found")


def _http_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, StarletteHTTPException)  # noqa: S101 - it is registered for this class
    return _answer(error.status_code, str(error.detail))


def _invalid_request(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - it is registered for this class
    problems = "; ".join(f"{problem['loc'][-1]}: {problem['msg']}" for problem in error.errors())
    return _answer(HTTPStatus.BAD_REQUEST, problems)


def _frazil_error(_: Request, error: Exception) -> JSONResponse:
    status = HTTPStatus.BAD_REQUEST if isinstance(error, Terminal) else HTTPStatus.SERVICE_UNAVAILABLE
    return _answer(status, str(error))


def _answer(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error_code": int(status), "message": message}, status_code=int(status), headers=HEADERS)
