"""Plan the epochs of a table: which kind of samples, with which settings of the shuffle."""

from etl.errors import LoaderError
from etl.loader.batches.document_boundaries import Format
from etl.loader.batches.padded import plan_documents
from etl.loader.batches.plan_units import plan_units
from etl.loader.fetch.table_index import TableIndex
from etl.loader.order.epoch import EpochPlan
from etl.loader.order.epochs import EqualEpochs
from etl.loader.order.schedule import Schedule
from etl.loader.order.shuffle_settings import ResolvedShuffle, Shuffle
from etl.loader.order.unit_plan import unit_shuffle
from etl.loader.order.window_schedule import WindowSchedule


def plan_epochs(
    index: TableIndex,
    *,
    seq_len: int | Schedule[int],
    seed: int,
    shuffle: bool | Shuffle,
    batch_format: Format,
) -> tuple[EqualEpochs | WindowSchedule, ResolvedShuffle | None]:
    """Return the samples of any epoch, or of any pass, and the settings of the shuffle.

    Raises LoaderError if the table is too small, or the arguments do not go together.
    """
    is_remote = index.remote is not None
    if not isinstance(seq_len, Schedule) and batch_format.pack is not None:
        settings = unit_shuffle(
            shuffle, seq_len=seq_len, num_tokens=index.num_tokens, is_remote=is_remote
        )
        plan: EpochPlan = plan_units(index, seq_len, seed, settings)
        return EqualEpochs.of_plan(plan, seq_len=seq_len, table_digest=index.digest()), settings
    settings = None
    if not isinstance(shuffle, bool) or shuffle:
        given = Shuffle() if isinstance(shuffle, bool) else shuffle
        settings = given.resolved(index.num_tokens, is_remote=is_remote)
    if not isinstance(seq_len, Schedule):
        if batch_format.is_padded:
            plan = plan_documents(index, seed, settings)
        else:
            plan = EpochPlan(index.group_tokens, seq_len, seed, settings)
        return EqualEpochs.of_plan(plan, seq_len=seq_len, table_digest=index.digest()), settings
    if batch_format.pack is not None or batch_format.is_padded:
        raise LoaderError(
            "a Schedule of seq_len is for windows of consecutive documents only",
            hint="leave pack and pad_id out of Format, or open a dataset for each length",
        )
    return WindowSchedule(
        index.group_tokens, seq_len, seed, settings, table_digest=index.digest()
    ), settings
