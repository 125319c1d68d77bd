"""`Guard`: when a run stops before deduplication removes nearly all documents of a group."""

from collections.abc import Iterable
from typing import Annotated, Final

from pydantic import Field, field_validator

from etl import storage
from etl.errors import RecipeError, nearest_names
from etl.settings_files.settings import Settings
from etl.text import language_id

LANGUAGE: Final = "lang="
"""The prefix of a group of documents in one language, as in ``lang=is``."""


class Guard(Settings):
    """When a run stops before it commits what deduplication removes.

    A group is an input file, a folder of input files with all folders below it, or a language. The documents
    that a run decides on are counted, without exact copies of documents in other files: those lose nothing.

    >>> guard = Guard(exempt=["s3://raw/mirror", "lang=is"])
    >>> guard.is_exempt("s3://raw/mirror/a.jsonl"), guard.is_exempt("s3://raw/mirrors.jsonl")
    (True, False)
    """

    max_share: Annotated[float, Field(gt=0, le=1)] = 0.9
    """The largest share of the documents of a group, or of their bytes, that deduplication may remove. With
    1, no run stops. The default is where FineWeb met the fault: a crawl of 2013 lost nine tenths as copies of
    other crawls, and the tenth that was left was worse than what went (Penedo et al. 2024)."""
    min_documents: Annotated[int, Field(ge=1)] = 1000
    """Smaller groups are not judged: of a few pages, all may well be copies."""
    exempt: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Groups that may lose more: files, folders, or languages as in ``lang=is``. Their documents do not count
    in other groups either. A group that is not in the input is an error."""

    @field_validator("exempt")
    @classmethod
    def _check_languages(cls, exempt: tuple[str, ...]) -> tuple[str, ...]:
        for group in exempt:
            if group.startswith(LANGUAGE):
                language_id.check_language(group.removeprefix(LANGUAGE))
        return exempt

    @property
    def exempt_languages(self) -> list[str]:
        """The codes of the languages that may lose more."""
        return [g.removeprefix(LANGUAGE) for g in self.exempt if g.startswith(LANGUAGE)]

    @property
    def _exempt_urls(self) -> list[str]:
        return [storage.normalize(g) for g in self.exempt if not g.startswith(LANGUAGE)]

    def is_exempt(self, source: str) -> bool:
        """Return whether an input file, or a folder that it is in, may lose more."""
        return any(source == url or source.startswith(f"{url}/") for url in self._exempt_urls)

    def check_exempt(self, sources: Iterable[str], *, has_languages: bool) -> None:
        """Raise RecipeError for an exempt group without documents, given all input files."""
        if self.exempt_languages and not has_languages:
            group = f"{LANGUAGE}{self.exempt_languages[0]}"
            raise RecipeError(
                f"guard.exempt names the group {group}, but no stage of the recipe identifies languages",
                hint="remove it, or add the stage `language`",
            )
        unknown = {*self._exempt_urls}
        if not unknown:
            return
        known: dict[str, None] = {}
        for source in sources:
            groups = [*groups_of(source)]
            known |= dict.fromkeys(groups)
            unknown -= {group.rstrip("/") for group in groups}
        if unknown:
            raise RecipeError(
                f"guard.exempt names the group {min(unknown)}, but no input file is in it",
                hint=nearest_names(min(unknown), known),
            )


def groups_of(source: str) -> list[str]:
    """Return the groups of an input file: the folders that it is in, outermost first, and the file.

    >>> groups_of("s3://raw/books/a.jsonl")
    ['s3://raw/', 's3://raw/books/', 's3://raw/books/a.jsonl']
    """
    scheme, separator, path = source.rpartition("://")
    parts = path.split("/")
    folders = ("/".join(parts[:stop]) for stop in range(1, len(parts)))
    return [*(f"{scheme}{separator}{folder}/" for folder in folders), source]
