"""TokenDataset: one version of a lake's tokens as a torch dataset, sharded and resumable."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Self

from etl.errors import LoaderError
from etl.loader import locate
from etl.loader.documents import DocumentGatherer, document_plan
from etl.loader.expect import Expect
from etl.loader.format import Format
from etl.loader.gather import IN_ORDER, Gatherer, Room
from etl.loader.index import read_index, read_tokenizers
from etl.loader.plan import Plan, Shuffle
from etl.loader.remote import Remote
from etl.loader.shard import resolve_shard
from etl.loader.sharded import Reader, ShardedDataset
from etl.loader.state import find_state
from schemas import TokenizerRecord

_PLAIN = Format()
_PATIENT = Remote()


class TokenDataset(ShardedDataset):
    """Packed windows of ``seq_len`` tokens with the labels shifted by one, in a reproducible order.

    ``lake`` is the URL of a lake or of its table ``tokens``; the newest version is pinned when none is
    given (``dataset.version``), by its number or as a release. ``shuffle`` is True, False (the table's own
    order), or the settings. ``format`` adds what tells documents apart, or pads one document a row.
    ``remote`` says how a table in an object store is read ahead, and whether it is kept on this machine,
    ``expect`` what the model is made for. Opening reads the log and the footers.

    One pass is one epoch; ``set_epoch`` gives the next its own order. A plain ``DataLoader(dataset,
    batch_size=8)`` works (each sample once whatever its workers); batches in the order of the plan, and
    quicker, come from ``dataset.batches(8)``, by itself (``prefetch=4`` makes them ahead) or as
    ``DataLoader(dataset.batches(8), batch_size=None, num_workers=2)``, torchdata's StatefulDataLoader too.

    Raises LoaderError if there is no such table, if it has fewer than seq_len + 1 tokens, or if it is not
    what is expected.
    """

    def __init__(  # noqa: PLR0913 - the one call of a training script
        self,
        lake: str,
        *,
        seq_len: int,
        version: int | str | None = None,
        seed: int = 0,
        shuffle: bool | Shuffle = True,
        rank: int | None = None,
        world_size: int | None = None,
        format: Format = _PLAIN,  # noqa: A002 - what it is called where it is given
        remote: Remote = _PATIENT,
        expect: Expect | None = None,
    ) -> None:
        rank, world_size = resolve_shard(rank, world_size)
        self.seq_len = seq_len
        self.format = format
        self._index = read_index(lake, version=version, remote=remote)
        if expect is not None:
            records = read_tokenizers(self._index)
            expect.check(records, where=self._index.url)
            expect.check_ends(records, self._index)
            self._index = replace(self._index, vocab_size=expect.vocab_size)
        settings = (Shuffle() if shuffle else None) if isinstance(shuffle, bool) else shuffle
        settings = None if settings is None else settings.resolved(self._index.num_tokens)
        if format.pad_id is None:
            self._plan = Plan(self._index.group_tokens, seq_len, seed, settings)
        else:
            self._plan = document_plan(self._index, seed, settings)
        identity = {
            "plan": self._plan.fingerprint(self._index.digest()),
            "version": self._index.version,
            "seq_len": seq_len,
            "seed": seed,
            "padded": int(format.pad_id is not None),
            "lanes": 0 if settings is None else settings.lanes,
            "block_tokens": 0 if settings is None else settings.block_tokens,
            "run_tokens": 0 if settings is None else settings.run_tokens,
        }
        super().__init__(
            num_samples=self._plan.num_samples,
            identity=identity,
            rank=rank,
            world_size=world_size,
        )

    @classmethod
    def from_state(cls, lake: str, state: Mapping[str, Any], **options: Any) -> Self:
        """The dataset that a state was saved of, at that place; ``options`` as for a new one.

        Raises LoaderError if it is no state of this lake's tokens.
        """
        found = find_state(state)
        if "seq_len" not in found:
            raise LoaderError(
                "the state of a mixture",
                hint="TokenMixture.from_state takes it, with a lake by source",
            )
        dataset = cls.as_it_was(lake, found, **options)
        dataset.load_state_dict(found)
        return dataset

    @classmethod
    def as_it_was(cls, lake: str, found: Mapping[str, Any], **options: Any) -> Self:
        """The dataset that a state names, at its beginning; ``options`` as for a new one."""
        shuffle = None
        if found.get("lanes"):
            names = ("lanes", "block_tokens", "run_tokens")
            shuffle = Shuffle(**{name: found[name] for name in names})
        if found.get("padded"):
            options = {"format": Format(pad_id=0), **options}
        return cls(
            lake,
            seq_len=found["seq_len"],
            version=found["version"],
            seed=found["seed"],
            shuffle=shuffle or False,
            **options,
        )

    def room_in_mixture(self) -> Room:
        """What a mixture's reader needs, which takes samples a little out of order."""
        return Room.for_mixture(self._plan)

    @property
    def where(self) -> str:
        """The URL of the table."""
        return self._index.url

    @property
    def version(self) -> int:
        """The version of the table that is read, whatever is committed meanwhile."""
        return self._index.version

    @property
    def num_tokens(self) -> int:
        """Tokens of the table."""
        return self._index.num_tokens

    @property
    def dropped_tokens(self) -> int:
        """Tokens of an epoch that are in no window, other ones in each epoch."""
        return self._plan.dropped_tokens

    def tokenizer(self) -> TokenizerRecord | None:
        """The tokenizer that made the ids, as the table's lineage names it; reads the history."""
        return next(iter(read_tokenizers(self._index)), None)

    def reader(
        self, epoch: int, batch_format: Format | None = None, room: Room = IN_ORDER
    ) -> AbstractContextManager[Reader]:
        """What makes batches of the samples of an epoch, in the dataset's own format or another."""
        if self.format.pad_id is not None:
            return DocumentGatherer(
                self._index,
                self._plan,
                epoch=epoch,
                seq_len=self.seq_len,
                pad_id=self.format.pad_id,
                room=room,
            )
        wanted = batch_format or self.format
        return Gatherer(self._index, self._plan, epoch=epoch, batch_format=wanted, room=room)

    def locate(self, sample: int, *, epoch: int | None = None) -> list[locate.Part]:
        """The documents behind a sample of an epoch (this one if not given), by its place in the order.

        Row b of the batch at step s (from 0) of rank r is the sample ``(s * batch_size + b) *
        world_size + r``. Raises LoaderError if there is no such sample.
        """
        if not 0 <= sample < self.num_samples:
            raise LoaderError(f"sample {sample} of {self.num_samples}", where=self.where)
        epoch = self.epoch if epoch is None else epoch
        window, stream = self._plan.window(epoch, sample), self._plan.stream(epoch)
        if self.format.pad_id is not None:
            most = self.seq_len + 1
            return locate.locate_document(self._index, stream, document=window, num_tokens=most)
        return locate.locate(self._index, self._plan, stream, window=window)
