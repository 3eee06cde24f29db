"""The literal references, by dialect: each decides of the octets of a file, an agent and a URL."""

from collections.abc import Callable
from typing import Final

from politesse.robots import Dialect
from tests.rules.properties import reference, reference_conner, reference_google, reference_koster, reference_perl
from tests.rules.properties.reference import Decision


def _decide_rfc9309(octets: bytes, name: bytes, url: bytes) -> Decision:
    return reference.decide(reference.records_for(octets, name), url)


REFERENCES: Final[dict[Dialect, Callable[[bytes, bytes, bytes], Decision]]] = {
    Dialect.RFC9309: _decide_rfc9309,
    Dialect.GOOGLE: reference_google.decide,
    Dialect.KOSTER_2019: reference_koster.decide_2019,
    Dialect.KOSTER_1996: reference_koster.decide_1996,
    Dialect.KOSTER_1994: reference_koster.decide_1994,
    Dialect.CONNER_2: reference_conner.decide,
    Dialect.PERL: reference_perl.decide,
}
