"""Cards as mails: a text part first, then HTML. No image, no style sheet, no script: nothing is loaded from anywhere.

What users and models have written is escaped, and stands apart: in the text part each of its lines is indented, and in the HTML it is
in a table. Mail programs make links of what looks like an address. In the HTML the marks of addresses stand in elements of their own,
so that most do not; where one does, the link says where it leads.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from email import policy
from email.headerregistry import Address as Header
from email.message import EmailMessage
from email.utils import formatdate
from typing import Final

from phronomy.chat.channel import Button, Card
from phronomy.chat.email.addresses import Address
from phronomy.foundation.dataclasses import dataclass

_SUBJECT: Final = 160
_INDENT: Final = "    "
_AUTOLINK: Final = re.compile(r"(?<=\S)([.:/@])(?=\S)")

_PAGE: Final = "margin:0;padding:16px;font:16px/1.5 system-ui,sans-serif"
_NAME: Final = "text-align:left;vertical-align:top;padding:4px 12px 4px 0;font-weight:600"
_VALUE: Final = (
    "vertical-align:top;padding:4px 0;font-family:ui-monospace,monospace;white-space:pre-wrap;word-break:break-word"
)
_BUTTON: Final = (
    "display:inline-block;margin:0 8px 8px 0;padding:10px 18px;border:1px solid #1a56db;text-decoration:none;"
)
_YES: Final = "background:#1a56db;color:#ffffff"
_OTHER: Final = "background:#ffffff;color:#1a56db"
_SMALL: Final = "font-size:13px;color:#555555"


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """What a mail needs besides its card. `id` is its Message-ID; `thread` is that of the mail that it follows, if it follows one.

    `url` is where the inbox is. `said` stands above all else, such as "Still waiting".
    """

    sender: Address
    name: str
    to: Address
    id: str
    url: str
    thread: str | None = None
    said: str = ""


def mail_of(card: Card, letter: Letter) -> EmailMessage:
    """The mail about a card."""
    rules = policy.SMTP.clone(utf8=True) if letter.to.needs_utf8 else policy.SMTP
    mail = EmailMessage(policy=rules)
    mail["From"] = _header(letter.sender, letter.name)
    mail["To"] = _header(letter.to)
    mail["Subject"] = ("Re: " if letter.thread else "") + _subject(card.title)
    mail["Message-ID"] = letter.id
    if letter.thread is not None:
        mail["In-Reply-To"] = letter.thread
        mail["References"] = letter.thread
    mail["Date"] = formatdate(usegmt=True)
    # RFC 3834, and what Exchange reads: no note about a holiday comes back.
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Auto-Response-Suppress"] = "All"
    mail.set_content(_sendable("\n".join(_text(card, letter))), cte="quoted-printable")
    mail.add_alternative(_sendable("\n".join(_html(card, letter))), subtype="html", cte="quoted-printable")
    return mail


def link_to(url: str, button: Button) -> str:
    """The address of the page that a button opens."""
    return f"{url}/mail/{button.data}"


def _header(address: Address, name: str = "") -> Header:
    return Header(display_name=name, username=address.local, domain=address.ascii_domain)


def _text(card: Card, letter: Letter) -> Iterator[str]:
    if letter.said:
        yield letter.said
    yield _line(card.title)
    yield _line(card.status)
    yield ""
    for line in card.lines:
        yield _indented(f"{line.name}: {line.value}")
    for note in card.notes:
        yield ""
        yield _indented(note)
    yield ""
    for button in card.buttons:
        yield f"{button.label}: {link_to(letter.url, button)}"
    if card.link is not None:
        yield f"In the inbox: {card.link}"
    if card.buttons:
        yield ""
        yield from _warning(letter)


def _warning(letter: Letter) -> Iterator[str]:
    yield "Each link opens a page. Nothing is decided before you press the button there."
    yield f"The links are for {letter.to.shown} alone: whoever has them can decide in your name. Do not forward this mail."


def _html(card: Card, letter: Letter) -> Iterator[str]:
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield f"<title>{html.escape(_line(card.title))}</title></head>"
    yield f'<body style="{_PAGE}">'
    if letter.said:
        yield f"<p>{html.escape(letter.said)}</p>"
    yield f'<h1 style="font-size:20px;margin:0 0 8px">{_plain(card.title)}</h1>'
    yield f"<p><strong>{_plain(card.status)}</strong></p>"
    if card.lines:
        yield "<table>"
        for line in card.lines:
            yield f'<tr><th scope="row" style="{_NAME}">{_plain(line.name)}</th><td style="{_VALUE}">{_plain(line.value)}</td></tr>'
        yield "</table>"
    for note in card.notes:
        yield f'<p style="white-space:pre-wrap">{_plain(note)}</p>'
    if card.buttons:
        yield "<p>"
        for button in card.buttons:
            style = _BUTTON + (_YES if button.action == "approve" else _OTHER)
            yield f'<a href="{html.escape(link_to(letter.url, button))}" style="{style}">{html.escape(button.label)}</a>'
        yield "</p>"
    if card.link is not None:
        yield f'<p><a href="{html.escape(card.link)}">Open in the inbox</a></p>'
    if card.buttons:
        yield f'<p style="{_SMALL}">{"<br>".join(_plain(each) for each in _warning(letter))}</p>'
    yield "</body></html>"


def _plain(text: str) -> str:
    """Text of others as HTML, with nothing in it that looks like an address."""
    return _AUTOLINK.sub(r"<span>\1</span>", html.escape(text))


def _line(text: str) -> str:
    """The text in one line, without control characters: what stands in a header can begin no other."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def _subject(title: str) -> str:
    """The title as a subject. A header of Python's reads an encoded word (RFC 2047), in which line breaks could hide."""
    return _line(title)[:_SUBJECT].replace("=?", "= ?")


def _indented(text: str) -> str:
    """Lines of others: none of them begins where the lines of the mail do."""
    return "\n".join(_INDENT + each for each in text.splitlines())


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
