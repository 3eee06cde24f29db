from pathlib import Path

import pytest

from tests.support.signatures import Key, key_file
from tests.wire.conftest import gate, polite

__all__ = ["gate", "polite"]


@pytest.fixture
def key() -> Key:
    return Key()


@pytest.fixture
def path(key: Key, tmp_path: Path) -> Path:
    return key_file(tmp_path / "bot.pem", key)
