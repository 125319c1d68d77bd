"""A change beside another run: the loser fails with an error, and the lake has the recipe of the winner."""

from pathlib import Path

import pytest
from distributed import Client

from etl.audit.verify.verify import verify
from etl.errors import MismatchError
from etl.job.plan import make_plan
from etl.job.run import run
from tests.helpers.corpus import write_jsonl
from tests.helpers.decisions import DEDUP, digests, similar
from tests.helpers.overlapping_runs import KilledError, before_commits, killed_at
from tests.helpers.paths import NewPlace
from tests.helpers.recipe_changes import Stages, maker


@pytest.mark.parametrize("dedup", [(), DEDUP[0]], ids=["all are kept", "duplicates"])
def test_a_change_is_not_followed_after_a_change_back(
    client: Client,
    new_place: NewPlace,
    tiny_tokenizer: Path,
    monkeypatch: pytest.MonkeyPatch,
    dedup: Stages,
) -> None:
    """The change back is killed when it has committed `documents` and the table whose commit conflicts."""
    place = new_place("overlap")
    write_jsonl(place / "corpus" / "a.jsonl", similar(0, 40))
    recipe = maker(place, tiny_tokenizer)
    words = ({"length": {"min_words": number}} for number in (80, 70))
    old, new = (recipe(place / "lake", [stage, *dedup]) for stage in words)
    run(old, cluster=client)
    was = digests(old)

    def change_back(number: int) -> None:
        if number == 2:
            with killed_at(2, monkeypatch), pytest.raises(KilledError):
                run(old, cluster=client, apply_change=True)

    with (
        before_commits(change_back, monkeypatch),
        pytest.raises(MismatchError, match="another run has changed the recipe of this lake"),
    ):
        run(new, cluster=client, apply_change=True)
    run(old, cluster=client)
    assert [*verify(str(old.lake))] == []
    assert digests(old) == was
    assert not make_plan(old).has_work()
