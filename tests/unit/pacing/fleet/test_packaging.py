from __future__ import annotations

import pytest

from politesse._pacing.fleet.scripts import Script


@pytest.mark.parametrize("script", Script)
def test_each_script_is_packaged_and_follows_the_shared_functions(script: Script) -> None:
    shared, _, own = script.source.partition("redis.error_reply('FOREIGN")
    assert "local function serve" in shared
    assert "write()" in own
