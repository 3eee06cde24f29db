from __future__ import annotations

import pytest

from politesse._pacing.fleet.scripts import Script, source_of


@pytest.mark.parametrize("script", Script)
def test_each_script_is_packaged_and_follows_the_shared_functions(script: Script) -> None:
    shared, _, own = script.source.partition("redis.error_reply('FOREIGN")
    assert "local function serve" in shared
    assert "write()" in own


def test_script_that_reads_the_state_writes_nothing() -> None:
    shared, _, own = source_of("status").partition("redis.error_reply('FOREIGN")
    assert "local function read" in shared
    assert "return found" in own
    assert not any(word in own for word in ("write()", "claim()", "redis.call"))
