"""Puts the files of the repository on the site: the guides, CHANGELOG, .docs/pages, and a page for each public module.

Each file keeps its path in the repository as its source, so that the links between the files work on the site as they
work in the repository. Only the address of its page is shorter.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import griffe
from mkdocs.structure.files import File, Files, InclusionLevel

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

ROOT: Final = Path(__file__).parents[1]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages whose text is in the repository or in docstrings."""
    sources = list(_sources(config.nav or []))
    package = griffe.load("politesse", search_paths=[ROOT / "src"])
    exports = {module: _exports(package.modules_collection[module]) for module in map(_module_of, sources) if module}
    for source in sources:
        if module := _module_of(source):
            files.append(_page(config, source, content=_reference(module, exports)))
        elif source == "LICENSE.md":
            text = (ROOT / "LICENSE").read_text(encoding="utf-8")
            files.append(_page(config, source, content=f"# Licence\n\n```text\n{text}```\n"))
        else:
            files.append(_page(config, source, abs_src_path=str(ROOT / source)))
    return files


def _sources(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from _sources(part)


def _page(config: MkDocsConfig, source: str, **content: str) -> File:
    file = File.generated(config, source, inclusion=InclusionLevel.INCLUDED, **content)
    for folder in ("src/politesse/", ".github/", ".docs/pages/"):
        file.dest_uri = file.dest_uri.removeprefix(folder)
    file.dest_uri = file.dest_uri.lower()
    return file


def _module_of(source: str) -> str | None:
    return source.removeprefix("reference/").removesuffix(".md") if source.startswith("reference/") else None


def _exports(module: griffe.Module) -> dict[str, str]:
    """Return the public names of a module, each with the path of its definition."""
    return {
        name: member.canonical_path
        for name, member in module.members.items()
        if member.is_public and not member.is_module and name != "__version__"
    }


def _reference(module: str, exports: dict[str, dict[str, str]]) -> str:
    """Return the page of a module. What two modules export is documented once, in the module further down."""
    elsewhere = {
        name: home
        for home, others in exports.items()
        for name in others
        if home > module and others[name] == exports[module].get(name)
    }
    members = "".join(f"\n        - {name}" for name in exports[module] if name not in elsewhere) or " false"
    text = f"# {module}\n\n::: {module}\n    options:\n      members:{members}\n"
    if elsewhere:
        links = "".join(f"- [`{name}`][{elsewhere[name]}.{name}]\n" for name in sorted(elsewhere))
        text += f"\n## Documented in another module {{ #elsewhere }}\n\n`{module}` exports these names too:\n\n{links}"
    return text
