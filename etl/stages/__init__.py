"""All stages that a recipe can use: the union ``AnyStage`` and the classes by kind."""

from typing import Annotated

from pydantic import Field

from etl.stages.base import Filter, Stage, Transform
from etl.stages.c4 import C4
from etl.stages.decontaminate import Decontaminate
from etl.stages.dedup_exact import DedupExact
from etl.stages.dedup_minhash import DedupMinhash
from etl.stages.dedup_paragraphs import DedupParagraphs
from etl.stages.extract import Extract
from etl.stages.fasttext import FastText
from etl.stages.fineweb_quality import FinewebQuality
from etl.stages.gopher_quality import GopherQuality
from etl.stages.gopher_repetition import GopherRepetition
from etl.stages.language import Language
from etl.stages.length import Length
from etl.stages.line_dedup import LineDedup
from etl.stages.paragraph_dedup import ParagraphDedup
from etl.stages.pii import Pii
from etl.stages.python import Python
from etl.stages.sample import Sample
from etl.stages.tokenize import Tokenize
from etl.stages.unicode import Unicode
from etl.stages.url import Url
from etl.stages.where import Where

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
    | LineDedup
    | ParagraphDedup
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
    "line_dedup": LineDedup,
    "paragraph_dedup": ParagraphDedup,
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
    "LineDedup",
    "ParagraphDedup",
    "Pii",
    "Python",
    "Sample",
    "Stage",
    "Tokenize",
    "Transform",
    "Unicode",
    "Url",
    "Where",
]
