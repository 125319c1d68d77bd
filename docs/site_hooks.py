"""Hooks of MkDocs: pages of files outside docs/, links between both, the repository, the search, diagrams."""

import posixpath
import re
import subprocess
from functools import partial
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = {
    "CHANGELOG.md": "about/changelog.md",
    "CONTRIBUTING.md": "about/contributing.md",
    "SECURITY.md": "about/security.md",
    "benchmarks/RESULTS.md": "about/measurements.md",
    "k8s/README.md": "guides/kubernetes.md",
    "pipelines/sample/README.md": "reference/sample.md",
}
"""File of the repository -> its page."""

_BOOSTS: Final = {
    **dict.fromkeys(("tutorial.md", "guides/", "reference/stages/"), 2),
    **dict.fromkeys(("reference/python.md", "about/"), 0.5),
    **dict.fromkeys(("about/measurements.md", "about/changelog.md", "reference/modules.md"), 0.1),
}
"""Beginning of a page's path -> its weight in the search, by default 1; the last one that fits counts."""

_FILES: Final = {page: file for file, page in PAGES.items()}
_CODE: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK: Final = re.compile(r"(?<!!)\[([^\]\n]+)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_DIAGRAM: Final = re.compile(r'<p><img alt="([^"]*)" src="([^"]+\.svg)" ?/?></p>')


_REMOTE: Final = re.compile(
    r"(?:(?:https|ssh)://)?(?:[^@/]+@)?([\w-]+\.[\w.-]+)(?::\d+)?[:/](.+?)(?:\.git)?/?"
)


def on_config(config: MkDocsConfig) -> None:
    """Link the repository that this checkout is a clone of, if it is on a server."""
    git = ["git", "-C", str(ROOT), "config", "--get", "remote.origin.url"]
    origin = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    if remote := _REMOTE.fullmatch(origin):
        config.repo_url = f"https://{remote[1]}/{remote[2]}"
        config.repo_name = remote[2]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of files outside docs/."""
    for file, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / file)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Let links between files of the repository lead to their pages; other files are in the repository."""
    uri = page.file.src_uri
    boosts = [boost for start, boost in _BOOSTS.items() if uri.startswith(start)]
    page.meta["search"] = {"boost": boosts[-1]} if boosts else {}
    link = partial(_link_pages, uri=uri, repository=config.repo_url)
    prose, position = [], 0
    for code in _CODE.finditer(markdown):
        prose += [link(markdown[position : code.start()]), code[0]]
        position = code.end()
    return "".join([*prose, link(markdown[position:])])


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Put diagrams into the page, so that they have its colors."""
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def inline(image: re.Match[str]) -> str:
        return f'<figure aria-label="{image[1]}">{(folder / image[2]).read_text("utf-8")}</figure>'

    return _DIAGRAM.sub(inline, html)


def on_post_build(config: MkDocsConfig, **_: Any) -> None:
    """Let the search understand words in all their forms."""
    (worker,) = Path(config.site_dir).glob("assets/javascripts/workers/search.*.js")
    query = (ROOT / "docs" / "assets" / "search-query.js").read_text("utf-8")
    worker.write_text(query + worker.read_text("utf-8"), encoding="utf-8")


def on_post_page(output: str, **_: Any) -> str:
    """Keep the theme from asking the repository's server for its stars."""
    return output.replace(' data-md-component="source"', "")


def _link_pages(markdown: str, *, uri: str, repository: str | None) -> str:
    here = posixpath.dirname(_FILES.get(uri, f"docs/{uri}"))

    def relink(link: re.Match[str]) -> str:
        text, target, anchor = link[1], posixpath.normpath(posixpath.join(here, link[2])), link[3]
        page = target.removeprefix("docs/") if target.startswith("docs/") else PAGES.get(target)
        if page is None:
            return f"[{text}]({repository}/blob/HEAD/{target})" if repository else text
        return f"[{text}]({posixpath.relpath(page, posixpath.dirname(uri))}{anchor or ''})"

    return _LINK.sub(relink, markdown)
