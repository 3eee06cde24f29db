"""Reads the arguments of a Gatekeeper from TOML files; ``politesse.options`` exports ``load``.

Theory of operation. The values of a file are merged, key by key, into the values of the files that it extends.
``owners`` maps each key to the file that set it last, for errors. The keys of a table are the parameters of the class
that is made of it, so a new option of a class is a new key.

tomllib does not tell the lines of keys. The line of a key is found by parsing: the first lines of a file are valid TOML
if they end with a statement, and the statement that sets the key ends the shortest such beginning that has the key.
"""

from __future__ import annotations

import os
import re
import warnings
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, suppress
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Required, TypeAlias, TypeVar, cast

from politesse._base.checks import check_choice, checked_names
from politesse._base.text import shortened, type_name
from politesse._cache.options import CacheOptions, HostPolicy
from politesse._gate.gatekeeper import Gatekeeper
from politesse._gate.identity import warn_caller
from politesse._pacing.fleet.options import FleetOptions
from politesse._pacing.pace import Limit, PacingOptions
from politesse.errors import ConfigurationError, ConfigurationTypeError, InvalidURL, PolitesseWarning
from politesse.fetch._options import FetchOptions
from politesse.origin import paced_host
from politesse.robots import Dialect
from politesse.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Generator

    from typing_extensions import TypedDict

    from politesse._gate.assemble import Mode
    from politesse.ledger import Ledger
    from politesse.ports import Signer, Store
else:

    class TypedDict(dict):
        """Takes ``closed``, which typing.TypedDict takes from Python 3.15 on; pyright needs it (PEP 728)."""

        def __init_subclass__(cls, **_: bool) -> None: ...


Key: TypeAlias = tuple[str, ...]
Table: TypeAlias = dict[str, Any]
Made = TypeVar("Made")


class GateArguments(TypedDict, total=False, closed=True):
    """The arguments of a Gatekeeper that ``load`` returns: those that the file sets.

    >>> arguments: GateArguments = {"user_agent": "ExampleBot/1.0 (+https://example.com/bot)", "mode": "report"}
    >>> from politesse import Gatekeeper
    >>> Gatekeeper(**arguments)
    <Gatekeeper examplebot (report): 0 origins known, 0 being fetched>
    """

    user_agent: Required[str]
    token: str | list[str]
    dialect: Dialect
    mode: Mode
    enforce_usage: list[str]
    policy_tokens: dict[str, str]
    pacing: PacingOptions
    cache: CacheOptions
    fetch: FetchOptions
    policies: dict[str, HostPolicy]
    fleet: FleetOptions
    store: Store
    ledger: Ledger
    signer: Signer


_OPTIONS: Final = {"pacing": PacingOptions, "cache": CacheOptions, "fetch": FetchOptions, "fleet": FleetOptions}
_OTHERS: Final = ("policies", "store", "ledger", "signer")
_GATE: Final = [name for name in GateArguments.__annotations__ if name not in {*_OPTIONS, *_OTHERS}]
_TOP: Final = ("extends", "gate", *_OPTIONS, *_OTHERS)
_SECRETS: Final = (("fleet", "url"), ("store", "url"), ("signer", "key"), ("fetch", "proxy"))
_PATHS: Final = (("store", "path"), ("ledger", "path"), ("signer", "key"))
_TABLE_TYPES: Final = {"Limit | None": Limit}  # the types of options that are tables themselves, as they are annotated
_NOT_KEYS: Final = ("clock", "options")  # parameters that a file cannot give
_ENV: Final = f"an environment variable may replace only {', '.join(map('.'.join, _SECRETS))}, which may be secrets"
_AT_LINE: Final = re.compile(r" \(at line (\d+), column \d+\)")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_PASSWORD: Final = re.compile(r"//[^/?#]*:[^/?#]+@|[?&]\w*password=")


def load(path: str | os.PathLike[str], *, environ: Mapping[str, str] = os.environ) -> GateArguments:
    r"""Return the arguments of a Gatekeeper from a TOML file: ``Gatekeeper(**load("politesse.toml"))``.

    ``extends`` names one file or a list of files, whose values this file overrides, key by key; later files of the list
    override earlier ones. A path is relative to the folder of the file that states it. The ``url`` of ``fleet`` and
    ``store``, the ``key`` of ``signer`` and the ``proxy`` of ``fetch`` may come from an environment variable, as
    ``{env = "REDIS_URL"}``. A PolitesseWarning tells of a password in a file. The guide to settings shows all tables.

    The function reads files, so call it before the event loop runs. Call it for each gate, which closes its store.

    Args:
        path: the file.
        environ: the environment variables.

    Raises:
        ConfigurationError: a file cannot be read; a table, a key or a value is invalid; an environment variable or an
            extra is missing; or the arguments exclude each other. The message names the file, the key, and the line if
            it is known. It contains no value of an environment variable.

    >>> import tempfile
    >>> text = '[gate]\nuser_agent = "ExampleBot/1.0 (+https://example.com/bot)"\n[pacing]\nmin_delay_s = 2.5\n'
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(text.encode()), file.flush()
    ...     load(file.name)["pacing"].min_delay_s
    2.5
    """
    settings = _Settings(environ)
    settings.read(Path(path))
    return settings.arguments()


class _File:
    """A TOML file: its path, its text, and its content.

    Raises:
        ConfigurationError: the file cannot be read, or is not TOML.
    """

    def __init__(self, path: Path, extended_by: str) -> None:
        self.path = path
        try:
            self._text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror}{extended_by}") from error
        except ValueError as error:  # UnicodeDecodeError, or a path with a NUL
            raise ConfigurationError(f"{path}: the file is not in UTF-8, or its name is invalid ({error})") from None
        try:
            self.content: Table = _parsed(self._text)
        except (ValueError, RecursionError) as error:  # ValueError: also an integer of thousands of digits
            found = _AT_LINE.search(str(error))
            line = "" if found is None else f":{found[1]}"
            raise ConfigurationError(f"{path}{line}: no valid TOML: {error}") from None

    def place(self, key: Key) -> str:
        """Return the path, and if known the line of the statement that sets a key, or first sets a key of a table."""
        lines = self._text.split("\n")

        def whole(number: int) -> tuple[int, object]:
            """Return the end of the statement at a line, and the content of the file up to there."""
            for end in range(number, len(lines) + 1):
                with suppress(ValueError):  # raised if the statement goes on
                    return end, _parsed("\n".join(lines[:end]))
            return len(lines), {}

        def has_key(number: int) -> bool:
            value = whole(number)[1]
            for name in key:
                if not isinstance(value, dict) or name not in value:
                    return False
                value = value[name]
            return True

        line = bisect_left(range(1, len(lines) + 1), True, key=has_key) + 1  # noqa: FBT003
        if line > len(lines) or (whole(line)[0] > line and "{" in lines[line - 1]):
            return str(self.path)  # an inline table of several lines may have the key on any of them
        return f"{self.path}:{line}"


class _Settings:
    """The values of a file and of the files that it extends.

    Attributes:
        values: the merged values.
        owners: maps the key of each value and table to the file that stated it last.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.values: Table = {}
        self.owners: dict[Key, _File] = {}
        self._environ = environ
        self._secrets: list[str] = []  # the values of environment variables, which no error may show
        self._path = Path()

    def read(self, path: Path, extending: tuple[Path, ...] = (), extended_by: str = "") -> None:
        """Read a file, after the files that it extends."""
        file, extending = _File(path, extended_by), (*extending, path.resolve())
        place = file.place(("extends",))
        try:
            names = checked_names("extends", file.content.pop("extends", ()))
        except ConfigurationError as error:
            raise type(error)(f"{place}: {error}") from None
        for name in names:
            other = path.parent / name
            if other.resolve() in extending:
                raise ConfigurationError(f"{place}: extends={name!r}: that file is this one, or extends it")
            self.read(other, extending, f"; {place} extends it")
        self._path = path
        self._merge(self.values, file.content, (), file)

    def _merge(self, into: Table, new: Table, table: Key, file: _File) -> None:
        for name, value in new.items():
            self.owners[*table, name] = file
            if isinstance(value, dict):
                if not isinstance(into.get(name), dict):
                    into[name] = {}
                self._merge(into[name], value, (*table, name), file)
            else:
                into[name] = value

    def arguments(self) -> GateArguments:
        """Return the arguments; raises ConfigurationError."""
        self._check_known((), self.values, _TOP)
        made = self._gate() | {name: self._made((name,), _OPTIONS[name]) for name in self.values if name in _OPTIONS}
        others = {"policies": self._policies, "store": self._store, "ledger": self._ledger, "signer": self._signer}
        made |= {name: others[name]() for name in self.values if name in others}
        arguments = cast("GateArguments", made)
        # This gate opens nothing. It finds arguments that are invalid together, and the real gate repeats its warnings.
        with self._blaming(()), warnings.catch_warnings(action="ignore", category=PolitesseWarning):
            Gatekeeper(**arguments)
        return arguments

    def _gate(self) -> Table:
        given = self._table(("gate",))
        self._check_known(("gate",), given, _GATE)
        made = {name: self._value(("gate", name), given[name]) for name in given}
        if "user_agent" not in made:
            raise self._error(("gate",), "user_agent is missing, as in 'ExampleBot/1.0 (+https://example.com/bot)'")
        if "dialect" in made:
            with self._blaming(("gate",)):
                choices = [one.value for one in Dialect]
                check_choice("dialect", made["dialect"], choices, f"one of {', '.join(choices)}")
            made["dialect"] = Dialect(made["dialect"])
        return made

    def _policies(self) -> dict[str, HostPolicy]:
        policies: dict[str, HostPolicy] = {}
        for host in self._table(("policies",)):
            try:
                name = paced_host(host)
            except InvalidURL as error:
                raise self._error(("policies",), error, host) from None
            if name in policies:
                raise self._error(("policies",), f"{_shown(host)}: another table is for this host, too", host)
            policies[name] = self._made(("policies", host), HostPolicy)
        return policies

    def _store(self) -> Store:
        given, key = self._table(("store",)), ("store",)
        if ("path" in given) == ("url" in given):
            raise self._error(key, "path or url: give one of them, the path of a file or the URL of a Redis")
        if "path" in given:
            return self._made(key, SqliteStore)
        with self._blaming(key):
            from politesse.stores.redis import RedisStore  # noqa: PLC0415 - an extra
        return self._made(key, RedisStore)

    def _ledger(self) -> Ledger:
        from politesse.ledger import Ledger, LedgerOptions  # noqa: PLC0415 - loaded only if it is used

        def ledger(path: Path, **options: Any) -> Ledger:  # noqa: ANN401 - the options of a ledger
            return Ledger(path, LedgerOptions(**options))

        return self._made(("ledger",), ledger, [*_keys(Ledger), *_keys(LedgerOptions)])

    def _signer(self) -> Signer:
        with self._blaming(("signer",)):
            from politesse.signing import WebBotAuth  # noqa: PLC0415 - an extra
        return self._made(("signer",), WebBotAuth)

    def _table(self, key: Key) -> Table:
        value = self.values
        for name in key:
            value = value.get(name, {})
        if not isinstance(value, dict):
            raise self._error(key[:-1], f"{_shown(key[-1])}: give a table, no {type_name(value)}", key[-1])
        return value

    def _made(self, key: Key, kind: Callable[..., Made], known: Sequence[str] = ()) -> Made:
        """Return what ``kind`` makes of the values of a table; the keys are its parameters, or those of ``known``."""
        given, parameters = self._table(key), signature(kind).parameters
        self._check_known(key, given, known or _keys(kind))
        values = {}
        for name, value in given.items():
            annotation = str(parameters[name].annotation) if name in parameters else ""
            values[name] = self._value((*key, name), value, _TABLE_TYPES.get(annotation))
        for name, parameter in parameters.items():
            if name not in values and name not in _NOT_KEYS and parameter.default is parameter.empty:
                raise self._error(key, f"{name} is missing")
        with self._blaming(key):
            return kind(**values)

    def _value(self, key: Key, value: object, table_type: type | None = None) -> object:
        table, name, file = key[:-1], key[-1], self.owners[key]
        if isinstance(value, dict) and "env" in value:
            if key not in _SECRETS:
                raise self._error(table, f"{_shown(name)}: {_ENV}", name)
            variable = value["env"]
            if not isinstance(variable, str) or len(value) > 1:
                raise self._error(table, f'{name}: name the variable alone, as {{env = "REDIS_URL"}}', name)
            if not (value := self._environ.get(variable, "")):
                raise self._error(table, f"{name}: the environment variable {variable} is not set", name)
            self._secrets += (value, str(Path(value)))  # as it is given, and as an error names a file
        elif isinstance(value, dict) and table_type is not None:
            return self._made(key, table_type)
        elif isinstance(value, str) and key in _SECRETS and _PASSWORD.search(value):
            told = f'as {name} = {{env = "{"_".join(key).upper()}"}}'
            warn_caller(f"{file.place(key)}: [{key[0]}] {name} has a password: keep it in the environment, {told}")
        if key not in _PATHS or not isinstance(value, str):
            return value
        if "://" in value:  # may be a Redis with its password, which the error of a missing file would show
            raise self._error(table, f"{name}: give the path of a file, no URL", name)
        return file.path.parent / value

    def _check_known(self, table: Key, given: Table, known: Sequence[str]) -> None:
        import difflib  # noqa: PLC0415 - for errors only

        homes = {"gate": _GATE, **{home: _keys(kind) for home, kind in _OPTIONS.items()}}
        for name in [name for name in given if name not in known]:
            home = next((f"it belongs in [{home}]" for home, names in homes.items() if name in names), "")
            near = "".join(f"did you mean {one}?" for one in difflib.get_close_matches(name, known, 1))
            hint = _ENV if name == "env" else near or home or f"known are {', '.join(known)}"
            if table[:1] == ("policies",) and isinstance(given[name], dict):
                hint = 'the name of a host needs quotes, as [policies."example.com"]'
            noun = "key" if table or not isinstance(given[name], dict) else "table"
            raise self._error(table, f"{_shown(name)}: unknown {noun}; {hint}", name)

    @contextmanager
    def _blaming(self, table: Key) -> Generator[None, None, None]:
        """Raise errors of the block as errors of the table."""
        try:
            yield
        except (ConfigurationError, InvalidURL, ImportError) as error:
            raise self._error(table, error) from None

    def _error(self, table: Key, problem: Exception | str, name: str = "") -> ConfigurationError:
        """Return the error for a key of a table: ``name``, or the word that the problem begins with, or the table."""
        text = str(problem)
        name = name or text[: len(text) - len(text.lstrip("abcdefghijklmnopqrstuvwxyz_"))]
        places = ((*table, name), (name,), table) if table else ((name,), ("gate", name))
        key = next((key for key in places if key in self.owners), ())
        place = self.owners[key].place(key) if key else str(self._path)
        where = ".".join(map(_shown, key[:-1] if key[-1:] == (name,) else table))
        for secret in self._secrets:
            text = text.replace(secret, "***").replace(repr(secret)[1:-1], "***")
        kind = ConfigurationTypeError if isinstance(problem, ConfigurationTypeError) else ConfigurationError
        return kind(f"{place}: {f'[{where}] ' if where else ''}{text}")


def _parsed(text: str) -> Table:
    import tomllib  # noqa: PLC0415 - most programs load no settings

    return tomllib.loads(text)


def _keys(kind: Callable[..., object]) -> list[str]:
    """Return the keys of the table of which an object of this class is made."""
    return [name for name in signature(kind).parameters if name not in _NOT_KEYS]


def _shown(name: str) -> str:
    return name if _BARE.fullmatch(name) else f'"{shortened(name)}"'
