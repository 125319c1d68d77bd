"""All stages that a recipe can use: the union ``AnyStage`` and the classes by kind."""

from typing import Annotated

from pydantic import Field

from etl.stages.base import Filter, Stage, Transform
from etl.stages.dedup_exact import DedupExact
from etl.stages.dedup_minhash import DedupMinhash
from etl.stages.dedup_paragraphs import DedupParagraphs
from etl.stages.filters.decontaminate import Decontaminate
from etl.stages.filters.fasttext import FastText
from etl.stages.filters.fineweb_quality import FinewebQuality
from etl.stages.filters.gopher_quality import GopherQuality
from etl.stages.filters.gopher_repetition import GopherRepetition
from etl.stages.filters.language import Language
from etl.stages.filters.length import Length
from etl.stages.filters.python import Python
from etl.stages.filters.sample import Sample
from etl.stages.filters.url import Url
from etl.stages.filters.where import Where
from etl.stages.tokenize import Tokenize
from etl.stages.transforms.c4 import C4
from etl.stages.transforms.extract import Extract
from etl.stages.transforms.pii import Pii
from etl.stages.transforms.repeated_lines import RepeatedLines
from etl.stages.transforms.repeated_paragraphs import RepeatedParagraphs
from etl.stages.transforms.unicode import Unicode

AnyStage = Annotated[
    Url
    | Extract
    | Sample
    | Language
    | GopherQuality
    | GopherRepetition
    | C4
    | FinewebQuality
    | Length
    | FastText
    | Decontaminate
    | Where
    | Python
    | Unicode
    | Pii
    | RepeatedLines
    | RepeatedParagraphs
    | DedupExact
    | DedupMinhash
    | DedupParagraphs
    | Tokenize,
    Field(discriminator="kind"),
]

STAGES: dict[str, type[Stage]] = {
    "url": Url,
    "extract": Extract,
    "sample": Sample,
    "language": Language,
    "gopher_quality": GopherQuality,
    "gopher_repetition": GopherRepetition,
    "c4": C4,
    "fineweb_quality": FinewebQuality,
    "length": Length,
    "fasttext": FastText,
    "decontaminate": Decontaminate,
    "where": Where,
    "python": Python,
    "unicode": Unicode,
    "pii": Pii,
    "repeated_lines": RepeatedLines,
    "repeated_paragraphs": RepeatedParagraphs,
    "dedup_exact": DedupExact,
    "dedup_minhash": DedupMinhash,
    "dedup_paragraphs": DedupParagraphs,
    "tokenize": Tokenize,
}
"""The stage classes by kind, the name that a recipe uses."""

__all__ = [
    "C4",
    "STAGES",
    "AnyStage",
    "Decontaminate",
    "DedupExact",
    "DedupMinhash",
    "DedupParagraphs",
    "Extract",
    "FastText",
    "Filter",
    "FinewebQuality",
    "GopherQuality",
    "GopherRepetition",
    "Language",
    "Length",
    "Pii",
    "Python",
    "RepeatedLines",
    "RepeatedParagraphs",
    "Sample",
    "Stage",
    "Tokenize",
    "Transform",
    "Unicode",
    "Url",
    "Where",
]
