"""Made-up records and logs, the same ones for the same draws."""

from __future__ import annotations

from typing import Any

from draftwood.tasks._seeded import Draw

_GIVEN = ("Ada", "Bela", "Carla", "Dmitri", "Elif", "Femi", "Greta", "Hugo", "Ines", "Jonas", "Kaya", "Lena")
_FAMILY = ("Brandt", "Costa", "Dahl", "Engel", "Fischer", "Garnet", "Holm", "Ibsen", "Jansen", "Kowal", "Lund")
_TOWNS = ("Alderhaven", "Brell", "Carne", "Estrup", "Fennick", "Lindholm", "Marden", "Oakmere", "Tolmere")
_GOODS = (
    ("bicycle bell", 9.5),
    ("rear light", 17.9),
    ("inner tube", 6.25),
    ("chain oil", 7.8),
    ("hand pump", 24.0),
    ("brake pads", 12.4),
    ("water bottle", 8.9),
    ("saddle bag", 31.5),
)
_PATHS = (
    "/",
    "/catalogue",
    "/catalogue/lights",
    "/catalogue/pumps",
    "/basket",
    "/basket/checkout",
    "/static/style.css",
    "/static/logo.svg",
    "/account/orders",
    "/favicon.ico",
)
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X)",
    "curl/8.5.0",
)
_JOBS = ("import-orders", "resize-images", "send-invoices", "update-search", "clean-uploads")
_EVENTS = (
    ("INFO", "started"),
    ("INFO", "finished in {n} ms"),
    ("INFO", "{n} records read"),
    ("INFO", "{n} records written"),
    ("WARNING", "queue holds {n} entries, more than 10"),
    ("WARNING", "retry {m} of 5 after timeout"),
    ("ERROR", "connection to database refused, giving up after {m} attempts"),
    ("ERROR", "record {n} has no customer"),
)


def orders(draw: Draw, count: int) -> list[dict[str, Any]]:
    """Return orders of a shop."""
    number = 20000 + draw.below(9000)
    rows = []
    for i in range(count):
        item, price = draw.pick(_GOODS)
        quantity = 1 + draw.below(4)
        rows.append(
            {
                "order": number + i,
                "customer": f"{draw.pick(_GIVEN)} {draw.pick(_FAMILY)}",
                "item": item,
                "qty": quantity,
                "total": round(quantity * price, 2),
                "status": draw.pick(("paid", "paid", "shipped", "cancelled")),
            }
        )
    return rows


def sensors(draw: Draw, count: int) -> list[dict[str, Any]]:
    """Return readings of weather stations, ten minutes apart."""
    station, day = draw.pick(_TOWNS).lower(), 10 + draw.below(20)
    return [
        {
            "station": f"{station}-{1 + i % 2}",
            "time": f"2024-03-{day}T{6 + i // 6:02d}:{i % 6 * 10:02d}:00Z",
            "temperature": round(4 + i * 0.3 + draw.below(10) / 10, 1),
            "humidity": 70 + draw.below(20),
            "status": draw.pick(("ok", "ok", "ok", "stale")),
        }
        for i in range(count)
    ]


def people(draw: Draw, count: int) -> list[dict[str, Any]]:
    """Return members of a club."""
    rows = []
    for i in range(count):
        given, family, town = draw.pick(_GIVEN), draw.pick(_FAMILY), draw.pick(_TOWNS)
        rows.append(
            {
                "id": 101 + i,
                "name": f"{given} {family}",
                "email": f"{given}.{family}@example.org".lower(),
                "town": town,
                "member_since": 2008 + draw.below(15),
                "active": draw.below(4) > 0,
            }
        )
    return rows


def access_log(draw: Draw, count: int) -> list[str]:
    """Return lines of the log of a web server."""
    second, lines = draw.below(30), []
    hosts = [f"192.0.2.{10 + draw.below(200)}" for _ in range(4)]
    for _ in range(count):
        second += draw.below(5)
        status = draw.pick((200, 200, 200, 200, 304, 404))
        size = 0 if status == 304 else 400 + draw.below(9000)
        moment = f"12/May/2024:08:{14 + second // 60:02d}:{second % 60:02d} +0000"
        request = f'"GET {draw.pick(_PATHS)} HTTP/1.1" {status} {size}'
        lines.append(f'{draw.pick(hosts)} - - [{moment}] {request} "{draw.pick(_AGENTS)}"')
    return lines


def job_log(draw: Draw, count: int) -> list[str]:
    """Return lines of the log of a program that works through jobs."""
    milliseconds, lines = draw.below(5000), []
    for _ in range(count):
        milliseconds += 3 + draw.below(1700)
        level, message = draw.pick(_EVENTS)
        moment = (
            f"2024-05-12 03:0{milliseconds // 60000}:{milliseconds // 1000 % 60:02d},{milliseconds % 1000:03d}"
        )
        told = message.format(n=12 + draw.below(900), m=2 + draw.below(4))
        lines.append(f"{moment} {level:<7} [{draw.pick(_JOBS)}] {told}")
    return lines


def inserts(draw: Draw, count: int) -> list[str]:
    """Return statements of SQL that fill a table."""
    return [
        "INSERT INTO member (id, name, email, town, member_since) VALUES "
        f"({row['id']}, '{row['name']}', '{row['email']}', '{row['town']}', {row['member_since']});"
        for row in people(draw, count)
    ]
