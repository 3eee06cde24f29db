from collections.abc import Callable, Sequence
from typing import final

@final
class Dialect:
    def __new__(
        cls,
        *,
        plain: bytes,
        kept: bytes,
        decoded_in_path: bytes,
        decoded_in_query: bytes,
        query_as_written: bool,
        escaped_dots: bool,
        most_octets: int,
        work: tuple[int, int, int, int, int],
        names: tuple[tuple[str, int], ...],
        starts: tuple[tuple[str, int], ...],
        missing_colon: bool,
        most_line_octets: int,
        forms_of: Callable[[str], tuple[str, str]],
        implied_allow: Callable[[str], str | None] | None,
    ) -> Dialect: ...
    def scan(self, body: bytes, /) -> File: ...

@final
class File:
    def rows(self) -> list[tuple[int, str | None, str, bool]]: ...
    def rules(self, lines: Sequence[int], /) -> Rules: ...

@final
class Rules:
    def decide(self, url: str, /) -> int: ...
    def decide_normal(self, normal: str, written: str | None, /) -> int: ...
    def allows(self, url: str, /) -> bool | None: ...
    def rule(self, place: int, /) -> tuple[int, str, str, str, bool]: ...
    def octets(self) -> int: ...
    def __len__(self) -> int: ...
