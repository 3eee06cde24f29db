from politesse import CacheOptions
from politesse.robots import Dialect
from politesse.robots.traits import Grace, Outcomes
from politesse.verdict import AccessResult

DAY = 86_400.0


def test_options_reach_the_policy() -> None:
    options = CacheOptions(
        min_lifetime_s=1.0,
        refresh_after=0.5,
        on_too_many_requests="allow",
        stale_if_unreachable_s=2 * DAY,
        retry_min_s=2.0,
        retry_max_s=3.0,
    )
    policy = options.policy(Dialect.RFC9309)
    assert policy.options is options
    assert policy.outcomes == (
        Outcomes(
            lifetimes=Dialect.RFC9309.traits.outcomes.lifetimes,
            forbidden_disallows=False,
            too_many_requests=AccessResult.UNAVAILABLE,
            too_many_redirects=AccessResult.UNAVAILABLE,
            unavailable_copy_s=0.0,
            grace=Grace(stale_s=2 * DAY),
            max_redirects=5,
        )
    )


def test_options_stand_above_every_dialect() -> None:
    for dialect in Dialect:
        policy = CacheOptions(on_too_many_requests="defer", stale_if_unreachable_s=3 * DAY).policy(dialect)
        assert policy.outcomes.too_many_requests is AccessResult.TOO_MANY_REQUESTS
        assert (policy.outcomes.grace.stale_s, policy.outcomes.grace.stale_from_failure) == (3 * DAY, False)
        assert policy.outcomes.grace.closed_s == dialect.traits.outcomes.grace.closed_s
        assert CacheOptions().policy(dialect).outcomes.grace == dialect.traits.outcomes.grace
