import ssl

import aiohttp
import pytest

from politesse import FetchOptions
from politesse.errors import ConfigurationError
from politesse.fetch import AiohttpFetcher


@pytest.mark.parametrize("proxy", ["ftp://user:secret@127.0.0.1", "http://user:secret@[::1"])
def test_error_about_a_proxy_does_not_quote_its_password(proxy: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        FetchOptions(proxy=proxy)
    assert "secret" not in str(caught.value)


def test_verification_cannot_be_switched_off() -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with pytest.raises(ConfigurationError, match="does not verify certificates"):
        FetchOptions(ssl_context=context)


def test_private_addresses_cannot_be_denied_behind_a_proxy_which_resolves_names_itself() -> None:
    with pytest.raises(ConfigurationError, match="behind a proxy"):
        FetchOptions(private_addresses="deny", proxy="http://127.0.0.1:3128")


async def test_private_addresses_cannot_be_denied_over_a_borrowed_connector() -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(ConfigurationError, match="borrowed connector"):
            AiohttpFetcher("ExampleBot/1.0", FetchOptions(private_addresses="deny"), session=session)
