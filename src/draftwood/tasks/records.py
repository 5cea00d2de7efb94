"""Made-up records and logs, the same ones for the same seed."""

from __future__ import annotations

from typing import Any

from draftwood.tasks._seeded import Draw
from draftwood.tasks.datafiles import table


def _pick(draw: Draw, what: str) -> Any:
    return draw.pick(table("records")[what])


def orders(draw: Draw, count: int) -> list[dict[str, Any]]:
    """Return orders of a shop."""
    number = 20000 + draw.below(9000)
    rows = []
    for i in range(count):
        item, price = _pick(draw, "goods")
        quantity = 1 + draw.below(4)
        rows.append(
            {
                "order": number + i,
                "customer": f"{_pick(draw, 'given')} {_pick(draw, 'family')}",
                "item": item,
                "qty": quantity,
                "total": round(quantity * price, 2),
                "status": draw.pick(("paid", "paid", "shipped", "cancelled")),
            }
        )
    return rows


def sensors(draw: Draw, count: int) -> list[dict[str, Any]]:
    """Return readings of weather stations, ten minutes apart."""
    station, day = _pick(draw, "towns").lower(), 10 + draw.below(20)
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
        given, family, town = _pick(draw, "given"), _pick(draw, "family"), _pick(draw, "towns")
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
        path, host, agent = _pick(draw, "paths"), draw.pick(hosts), _pick(draw, "agents")
        lines.append(f'{host} - - [{moment}] "GET {path} HTTP/1.1" {status} {size} "{agent}"')
    return lines


def job_log(draw: Draw, count: int) -> list[str]:
    """Return lines of the log of a program that works through jobs."""
    milliseconds, lines = draw.below(5000), []
    for _ in range(count):
        milliseconds += 3 + draw.below(1700)
        level, message = _pick(draw, "events")
        seconds, thousandths = divmod(milliseconds, 1000)
        moment = f"2024-05-12 03:0{seconds // 60}:{seconds % 60:02d},{thousandths:03d}"
        told = message.format(n=12 + draw.below(900), m=2 + draw.below(4))
        lines.append(f"{moment} {level:<7} [{_pick(draw, 'jobs')}] {told}")
    return lines


def inserts(draw: Draw, count: int) -> list[str]:
    """Return statements of SQL that fill a table."""
    return [
        "INSERT INTO member (id, name, email, town, member_since) VALUES "
        f"({row['id']}, '{row['name']}', '{row['email']}', '{row['town']}', {row['member_since']});"
        for row in people(draw, count)
    ]
