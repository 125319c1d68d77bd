"""The SpecialTokens stage: reject documents whose text spells a special token of a tokenizer."""

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa

from etl.errors import TokenizerError
from etl.stages.base import Filter
from etl.stages.tokenizer_file import hash_tokenizer, read_tokenizer

if TYPE_CHECKING:
    from etl.text.find_special_tokens import SpecialTokenFinder


class SpecialTokens(Filter):
    """Reject documents whose text spells a special token, such as ``<|endoftext|>``.

    Special are the added tokens with ``"special": true`` in ``tokenizer``, the path or URL of a
    tokenizer.json. The reason is ``special_tokens.spelled`` with the first token that the text spells. The
    setting ``special_tokens: reject`` of ``tokenize`` adds this filter after the other filters and
    transforms. Deduplication comes later: a document that is rejected is never the one kept of duplicates.
    """

    kind: Literal["special_tokens"] = "special_tokens"
    example: ClassVar[str] = "special_tokens: {tokenizer: sample/tokenizer.json}"
    shorthand: ClassVar[str | None] = "tokenizer"
    paths: ClassVar[tuple[str, ...]] = ("tokenizer",)

    tokenizer: str
    """The path or URL of the tokenizer.json that defines the special tokens."""

    def signals(self) -> list[str]:
        """Return ``text``."""
        return ["text"]

    def reasons(self, table: pa.Table) -> pa.Array:
        """Return ``special_tokens.spelled: TOKEN`` for each text that spells one, null for others."""
        special = self._load()
        reasons: list[str | None] = []
        for texts in table["text"].chunks:
            for text, spelled in zip(texts, special.spelled_in(texts), strict=True):
                name = special.first_in(text.as_py()) if spelled else None
                reasons.append(f"{self.kind}.spelled: {name}" if spelled else None)
        return pa.array(reasons, pa.string())

    def check(self) -> None:
        """Read the tokenizer once."""
        self._load()

    def identity(self) -> dict[str, Any]:
        """Return the file's sha256 in place of its path; raise TokenizerError if it cannot be read."""
        return {**super().identity(), "tokenizer": f"sha256:{hash_tokenizer(self.tokenizer)}"}

    def _load(self) -> "SpecialTokenFinder":
        from etl.text.find_special_tokens import read_special_tokens

        try:
            return read_special_tokens(read_tokenizer(self.tokenizer))
        except ValueError as error:
            raise TokenizerError(
                f"not a tokenizer.json that tokenizers can read ({error})", where=self.tokenizer
            ) from error
