"""Slack's client of the Web API, for answers that are not Slack's.

The SDK follows redirects, and sends the token of the bot along to wherever they lead. It reads an answer to its end, however long that
takes and however much there is. This client follows nothing, and stops to read.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from http.client import HTTPMessage, HTTPResponse
from typing import IO, Any, Final
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, ProxyHandler, Request

from slack_sdk import WebClient

from phronomy.chat.http import limited

LARGEST: Final = 4 * 1_024 * 1_024
"""Bytes of the largest answer that is read."""


class Client(WebClient):
    """`WebClient` that follows no redirect, and reads no answer that is too large or too slow."""

    def _perform_urllib_http_request_internal(self, url: str, req: Request) -> dict[str, Any]:
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect(), HTTPSHandler(context=self.ssl)]
        if self.proxy is not None:
            handlers.append(ProxyHandler({"http": self.proxy, "https": self.proxy}))
        try:
            response = urllib.request.build_opener(*handlers).open(req, timeout=self.timeout)
        except HTTPError as error:
            response = error
        with response:
            body = limited(_chunks(response), most=LARGEST, seconds=self.timeout)
            return {"status": response.code, "headers": response.headers, "body": body.decode("utf-8", "replace")}


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        return None


def _chunks(response: HTTPResponse | HTTPError) -> Iterator[bytes]:
    while chunk := response.read1(65_536):
        yield chunk
