from collections.abc import Callable, Sequence
from typing import final

@final
class Dialect:
    def __new__(
        cls,
        *,
        tables: tuple[bytes, bytes, bytes, bytes, bytes],
        query_as_written: bool,
        escaped_dots: bool,
        most_octets: int,
        work: tuple[int, int, int, int, int],
        names: tuple[tuple[str, int], ...],
        starts: tuple[tuple[str, int], ...],
        odd_blanks: bytes,
        missing_colon: bool,
        most_line_octets: int,
        forms_of: Callable[[str], tuple[str, str]],
        implied_allow: Callable[[str], str | None] | None,
    ) -> Dialect: ...
    def scan(self, body: bytes, /) -> File: ...

@final
class File:
    def named(self, crawler: str, /) -> list[tuple[int, int]]: ...
    def others(self) -> list[tuple[int, str, str, bool, bool]]: ...
    def rules(self, spans: Sequence[tuple[int, int, str, object]], /) -> Rules: ...

@final
class Rules:
    def decide(self, url: str, /) -> int: ...
    def decide_normal(self, normal: str, written: str | None, /) -> int: ...
    def allows(self, url: str, /) -> bool | None: ...
    def rule(self, place: int, /) -> tuple[int, str, str, str, bool]: ...
    def octets(self) -> int: ...
    def __len__(self) -> int: ...
