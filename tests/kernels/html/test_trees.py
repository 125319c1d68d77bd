"""Oblivious trees are sums of leaves that each row's answers lead to."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from etl.kernels.bytes.utf8 import frozen
from etl.kernels.html.trees import Trees, add_trees
from etl.kernels.jit import kernel


@kernel
def evaluate(x, trees, leaf, totals):
    add_trees(x, trees, leaf, totals)


@given(st.integers(0, 2**32 - 1), st.integers(0, 40), st.integers(0, 5), st.integers(1, 6))
def test_against_a_tree_walked_by_hand(seed, num_rows, num_trees, depth):
    random = np.random.default_rng(seed)
    x = random.integers(-2, 3, (4, num_rows)).astype(np.float32)
    row = random.integers(0, 4, (num_trees, depth)).astype(np.int32)
    threshold = random.integers(-2, 3, (num_trees, depth)).astype(np.float32)
    leaves = random.integers(-9, 9, (num_trees, 1 << depth)).astype(np.float32)
    expected = []
    for column in x.T:
        total = 0.0
        for tree in range(num_trees):
            answers = "".join(
                str(int(column[row[tree, k]] > threshold[tree, k])) for k in range(depth)
            )
            total += leaves[tree, int(answers, 2)]
        expected.append(total)
    totals = np.full(num_rows, 7, np.float32)
    evaluate(
        x,
        Trees(frozen(row), frozen(threshold), frozen(leaves)),
        np.ones(num_rows, np.int32),
        totals,
    )
    assert totals.tolist() == expected
