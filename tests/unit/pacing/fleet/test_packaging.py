from __future__ import annotations

import importlib
import sys

import pytest

from politesse._pacing.fleet.scripts import Script


@pytest.mark.parametrize("script", Script)
def test_each_script_is_packaged_and_follows_the_shared_functions(script: Script) -> None:
    shared, _, own = script.source.partition("redis.error_reply('FOREIGN")
    assert "local function serve" in shared
    assert "write()" in own


def test_without_redis_py_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "redis" or name.startswith("redis.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "politesse._pacing.fleet.wire", raising=False)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ImportError, match=r"needs the extra 'redis'.*pip install '\.\[redis\]'"):
        importlib.import_module("politesse._pacing.fleet.wire")
