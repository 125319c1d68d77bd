"""The Unicode stage: normalize text: normal form, line ends, control characters."""

import unicodedata
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl.kernels.bytes.one_chunk import one_chunk
from etl.stages.base import Transform
from etl.stages.transforms.rewrite import replace_text


class Unicode(Transform):
    """Normalize text: NFC, lines that end in LF, no control characters.

    ``form`` is a Unicode normal form (UAX #15); NFKC also folds ligatures, superscripts and full-width
    forms, which loses some meaning. ``line_ends`` replaces all line ends (CR, CRLF, NEL, form feed, the line
    and paragraph separators ...) by LF. ``controls`` removes control characters except tab, the byte order
    mark, and deprecated format characters; it keeps joiners, zero-width spaces and direction marks. None
    disables a setting.

    ``fix`` first repairs wrongly decoded text ("Ã¼" for "ü") with ftfy 6 (Speer 2019), without its
    changes to quotes, ligatures and width, the settings of datatrove 0.10.1. It is slow: about 5 MB of text
    per second and core, compared with 200 MB or more for the rest. ASCII text without "&" is skipped.
    """

    kind: Literal["unicode"] = "unicode"
    example = "unicode: {form: NFC, fix: true}"
    shorthand = "form"
    form: Literal["NFC", "NFKC"] | None = "NFC"
    """The Unicode normal form; null leaves the text as it is."""
    line_ends: Literal["lf"] | None = "lf"
    """Replace all line ends by LF; null leaves them as they are."""
    controls: Literal["remove"] | None = "remove"
    """Remove control characters; null leaves them."""
    fix: bool = False
    """Whether to repair wrongly decoded text first, which is slow."""

    def columns(self) -> dict[str, str]:
        """Return the columns for removed code points and for whether the text was changed."""
        return {
            "unicode_controls": "code points removed",
            "unicode_changed": "1 where the text was changed",
        }

    def signals(self) -> list[str]:
        """Return the text only."""
        return ["text"]

    def apply(self, table: pa.Table) -> pa.Table:
        """Return the table with normalized text; the same buffers if nothing has to be changed."""
        from etl.kernels.bytes.control_characters import clean_controls
        from etl.kernels.bytes.spans import build_strings
        from etl.kernels.bytes.utf8 import texts as buffers

        before = text = one_chunk(table["text"])
        if self.fix:
            text = _map(text, _fix)
        documents = buffers(text)
        cleaned = clean_controls(
            documents, line_ends=self.line_ends is not None, controls=self.controls is not None
        )
        if cleaned.line_ends.any() or cleaned.controls.any():
            text = build_strings(cleaned.offsets, cleaned.data, documents.valid)
        if self.form is not None:
            text = _map(text, partial(unicodedata.normalize, self.form))
        changed = np.zeros(len(text), np.int64)
        if text is not before:
            differs = pc.fill_null(pc.not_equal(before, text), fill_value=False)
            changed = differs.to_numpy(zero_copy_only=False).astype(np.int64)
        columns = {"unicode_controls": cleaned.controls, "unicode_changed": changed}
        return replace_text(table, text, columns)


def _map(array: pa.Array, function: Callable[[str], str]) -> pa.Array:
    """Apply a function to each text; it must return the same object if the text does not change."""
    from etl.kernels.bytes.utf8 import texts as buffers

    documents = buffers(array)
    view, ends = documents.data.data, documents.offsets.tolist()
    indexes, changed = [], []
    for k, (start, end) in enumerate(pairwise(ends)):  # 0.4 GB/s with a normal form's quick check
        if documents.valid is not None and not documents.valid[k]:
            continue
        before = str(view[start:end], "utf-8")
        after = function(before)
        if after is not before:
            indexes.append(k)
            changed.append(after)
    if not indexes:
        return array
    mask = np.zeros(len(array), np.bool_)
    mask[indexes] = True
    return pc.replace_with_mask(array, pa.array(mask), pa.array(changed, array.type))


def _fix(text: str) -> str:
    if text.isascii() and "&" not in text and "\x1b" not in text:
        return text
    fixed = _ftfy()(text)
    return text if fixed == text else fixed


@cache
def _ftfy() -> Callable[[str], str]:
    import ftfy

    config = ftfy.TextFixerConfig(
        fix_latin_ligatures=False,
        fix_character_width=False,
        uncurl_quotes=False,
        fix_line_breaks=False,
        remove_control_chars=False,
        normalization=None,
        explain=False,
    )
    return partial(ftfy.fix_text, config=config)
