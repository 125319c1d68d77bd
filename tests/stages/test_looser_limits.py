"""The setting behind each rule, and limits that admit most of what it rejects."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.stages import FinewebQuality, GopherQuality, GopherRepetition, Length, Stage, Where
from etl.stages.apply import apply
from etl.stages.looser_limits import limit_of_rule, loosen
from tests.helpers.raw_rows import raw


@pytest.mark.parametrize("stage", [GopherQuality(), GopherRepetition(), FinewebQuality()])
def test_every_rule_of_a_filter_has_its_own_limit(stage: Stage) -> None:
    limits = [limit_of_rule(stage, rule) for rule in stage.rules()]
    named = [name for name in type(stage).model_fields if name.startswith(("min_", "max_"))]
    assert sorted(map(str, limits)) == sorted(named)


def test_a_rule_without_a_number_has_none() -> None:
    stage = Where(keep="num_words > 3")
    assert limit_of_rule(stage, "condition") is None
    assert limit_of_rule(stage, "no such rule") is None
    assert limit_of_rule(Length(), "few_words") is None


@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.sampled_from(["few", "many"]))
def test_a_looser_limit_admits_nine_in_ten_of_the_rejected(counts: list[int], side: str) -> None:
    stage = Length(min_words=70) if side == "few" else Length(max_words=0)
    texts = ["word " * count for count in counts]
    judged = apply(raw(texts), [stage])
    assert {*judged["reason"].to_pylist()} == {f"length.{side}_words"}
    found = loosen([stage], f"length.{side}_words", judged)
    assert found is not None
    index, looser = found
    assert index == 0
    kept = pl.Series(apply(raw(texts), [looser])["reason"]).null_count()
    assert kept >= 0.9 * len(texts)
