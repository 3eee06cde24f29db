"""RateLimit headers in all their forms, and what only looks like them."""

from __future__ import annotations

import pytest

from politesse._http.ratelimit import remaining_quota

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"ratelimit": '"default";r=50;t=30'}, (50, 30)),
        ({"ratelimit": '"default"; r=50; t=30'}, (50, 30)),
        ({"ratelimit": '"default";t=30;r=50'}, (50, 30)),
        ({"ratelimit": '"default";r=0;t=30'}, (0, 30)),
        ({"ratelimit": '"burst";r=9;t=3, "daily";r=2;t=600'}, (2, 600)),  # the slowest binds
        ({"ratelimit": '"daily";r=2;t=600, "burst";r=9;t=3'}, (2, 600)),
        ({"ratelimit": '"daily";r=1000;t=600, "burst";r=0;t=3'}, (0, 3)),
        ({"ratelimit": "limit=100, remaining=50, reset=30"}, (50, 30)),
        ({"ratelimit": "remaining=50,reset=30"}, (50, 30)),
        ({"ratelimit-limit": "100", "ratelimit-remaining": "50", "ratelimit-reset": "30"}, (50, 30)),
        ({"x-ratelimit-remaining": " 7 ", "x-ratelimit-reset": "60"}, (7, 60)),
        ({"x-ratelimit-remaining": "7", "x-ratelimit-reset": "1800000060"}, (7, 60)),  # a Unix time
        ({"x-ratelimit-remaining": "7", "x-ratelimit-reset": "1700000000"}, (7, 0)),
        # ... of the server's clock, which its Date shows
        (
            {
                "x-ratelimit-remaining": "7",
                "x-ratelimit-reset": "1799996460",
                "date": "Fri, 15 Jan 2027 07:00:00 GMT",
            },
            (7, 60),
        ),
        # What a policy grants, where nothing is said of what is left of it.
        ({"ratelimit-policy": '"default";q=100;w=60'}, (100, 60)),
        ({"ratelimit-policy": '"default";q=100;w=60;qu="requests"'}, (100, 60)),
        ({"ratelimit-policy": '"burst";q=10;w=1, "daily";q=100;w=600'}, (100, 600)),
        ({"ratelimit-policy": "10;w=1, 50;w=60"}, (50, 60)),
        ({"ratelimit": '"a";r=50;t=30', "ratelimit-policy": '"a";q=1;w=60'}, (50, 30)),
        ({"ratelimit": '"a";r=50;t=30', "ratelimit-policy": '"a";q=1;w=60, "b";q=1;w=7'}, (1, 7)),
        ({"ratelimit": '"a";r=50', "ratelimit-policy": '"a";q=100;w=60'}, (50, 60)),  # within the window
        ({"ratelimit": "limit=10, remaining=5, reset=3", "ratelimit-policy": "10;w=1, 50;w=60"}, (50, 60)),
        ({"ratelimit": '"default";r=5;t=1800000060'}, (5, 1_800_000_060)),  # that one is never a Unix time
        (
            {
                "ratelimit-remaining": "9",
                "ratelimit-reset": "9",
                "x-ratelimit-remaining": "1",
                "x-ratelimit-reset": "60",
            },
            (1, 60),
        ),
    ],
)
def test_remaining_quota_is_read_in_every_form(headers: dict[str, str], expected: tuple[float, float]) -> None:
    assert remaining_quota(headers, NOW) == expected


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/html", "server": "ratelimit"},
        {"ratelimit": ""},
        {"ratelimit": "garbage"},
        {"ratelimit": '"default";r=50'},
        {"ratelimit": '"default";t=50'},
        {"ratelimit": '"default";r=-5;t=30'},
        {"ratelimit": '"default";r=5;t=-30'},
        {"ratelimit": '"default";r=5.5;t=3.5'},
        {"ratelimit": '"default";r=nan;t=inf'},
        {"ratelimit": '"default";r=1e9;t=1e9'},
        {"ratelimit": '"default";r=5;t=9999999999999999'},
        {"ratelimit": "\0" * 2000},
        {"ratelimit": "x" * 2000 + ";r=0;t=60"},
        {"ratelimit": "remaining=५, reset=६"},
        {"ratelimit-policy": '"default";q=100'},
        {"ratelimit-policy": '"default";w=60'},
        {"ratelimit-policy": '"default";q=100;w=60;qu="content-bytes"'},
        {"ratelimit-policy": '"default";q=many;w=60'},
        {"ratelimit-policy": "100"},
        {"ratelimit": '"default";r=5', "ratelimit-policy": '"other";q=soon;w=60'},
        {"ratelimit-remaining": "5"},
        {"ratelimit-reset": "5"},
        {"ratelimit-remaining": "soon", "ratelimit-reset": "5"},
        {"ratelimit-remaining": "-1", "ratelimit-reset": "5"},
        {"x-ratelimit-remaining": "5", "x-ratelimit-reset": "Sat, 21 Nov 2026 03:45:00 GMT"},
        {"x-ratelimit-remaining": "\u0665", "x-ratelimit-reset": "5"},
        {"ratelimit-remaining": "5", "x-ratelimit-reset": "5"},
    ],
)
def test_unreadable_quota_is_ignored(headers: dict[str, str]) -> None:
    assert remaining_quota(headers, NOW) is None
