import pytest

from politesse.errors import ConfigurationError
from politesse.options import FleetOptions


@pytest.mark.parametrize(("interval_s", "slack_s"), [(0.0, 0.0), (0.1, 0.01), (0.5, 0.05), (60.0, 0.05)])
def test_slack_is_a_tenth_of_the_interval_and_50_ms_at_most(interval_s: float, slack_s: float) -> None:
    assert FleetOptions().slack_s(interval_s) == pytest.approx(slack_s)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lease_s": 0.5}, "lease_s=0.5: give 1 to 86400"),
        ({"timeout_s": 0}, "timeout_s=0: give 0.01 to 60"),
        ({"slack": 0.0}, "slack=0.0: give 0.001 to 1"),
        ({"max_slack_s": float("nan")}, "max_slack_s=nan"),
        ({"prefix": ""}, "prefix=''"),
        ({"prefix": "a\nb"}, "give printable text"),
        ({"prefix": "{a}:"}, "without '{'"),
        ({"prefix": 7}, "prefix=7: give a text"),
        ({"url": 7}, "url: give a text, as 'redis://host:6379/0', no int"),
    ],
)
def test_invalid_option_is_an_error_that_names_it(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        FleetOptions(**options)  # type: ignore[arg-type]
    assert message in str(raised.value)
