from pathlib import Path

import pytest

from politesse.signing._keys import SigningKey, new_key
from tests.support.signatures import key_file


@pytest.fixture
def key() -> SigningKey:
    return new_key(0, days=36_500)


@pytest.fixture
def path(key: SigningKey, tmp_path: Path) -> Path:
    return key_file(tmp_path / "bot.pem", [key])
