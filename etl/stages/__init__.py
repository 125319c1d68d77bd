"""The stages that a recipe can use: the union ``AnyStage``, and from it the classes by kind.

A new stage is a file with its class, a line in the union, and a golden pair in ``tests/stages/golden``.
Everything else finds it through the union: recipes, JSON Schema, hints, plans, tune, docs.
"""

from typing import Annotated, Final, get_args

from pydantic import Field

from etl.stages.base import Filter as Filter
from etl.stages.base import Stage as Stage
from etl.stages.base import Transform as Transform
from etl.stages.dedup_exact import DedupExact
from etl.stages.dedup_minhash import DedupMinhash
from etl.stages.dedup_paragraphs import DedupParagraphs
from etl.stages.dedup_substrings import DedupSubstrings
from etl.stages.filters.annotate import Annotate
from etl.stages.filters.decontaminate import Decontaminate
from etl.stages.filters.fasttext import FastText
from etl.stages.filters.fineweb_quality import FinewebQuality
from etl.stages.filters.gopher_quality import GopherQuality
from etl.stages.filters.gopher_repetition import GopherRepetition
from etl.stages.filters.language import Language
from etl.stages.filters.length import Length
from etl.stages.filters.loss import Loss
from etl.stages.filters.python import Python
from etl.stages.filters.sample import Sample
from etl.stages.filters.special_tokens import SpecialTokens
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
    | Loss
    | Annotate
    | Where
    | Python
    | SpecialTokens
    | Unicode
    | Pii
    | RepeatedLines
    | RepeatedParagraphs
    | DedupExact
    | DedupMinhash
    | DedupParagraphs
    | DedupSubstrings
    | Tokenize,
    Field(discriminator="kind"),
]

STAGES: Final[dict[str, type[Stage]]] = {
    kind: model
    for model in get_args(get_args(AnyStage)[0])
    for kind in get_args(model.model_fields["kind"].annotation)
}
"""The stage classes by kind, the name that a recipe uses, in the order of the union."""
