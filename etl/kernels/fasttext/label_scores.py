"""Compute the probabilities of labels from the sums of vectors, as fastText does.

A probability is as fastText reports it: the exponential of a logarithm to whose argument it has added 1e-5,
so at most 1.00001 (of a tree, 1e-5 more for each level). It is limited to 1 here.

``L`` labels; ``R`` rows of the output matrix, rounded up to a multiple of 16: one per label, or per inner
node of a tree. ``D`` the dimension, ``W`` the width of a sum.
"""

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.jit import allocator, inner

TREE, NEGATIVES, SOFTMAX, EACH = 1, 2, 3, 4
"""The losses: hierarchical softmax, negative sampling, softmax, one versus all. The numbers of the format."""

_ADDED: Final = 1e-5  # by fastText, before a logarithm
_TABLE_SIZE, _TABLE_END = 512, 8  # of fastText's table of the logistic function
_SLACK: Final = 0.999  # of a bound for the best label


class Output(NamedTuple):
    """The output matrix of a model, and the Huffman tree of its labels.

    Nodes of the tree: first the labels, then the inner nodes, the root last.
    """

    loss: int
    num_labels: int
    weights: NDArray[np.float32]  # (D, R)
    children: NDArray[np.int32]  # (2 L - 1, 2) left and right, -1 for labels; (0, 2) without a tree
    parents: NDArray[np.int32]  # (2 L - 1,) -1 for the root
    logistic: NDArray[np.float32]  # (513,) fastText's table


def logistic_table() -> NDArray[np.float32]:
    """Return fastText's table of the logistic function from -8 to 8, for losses without a softmax."""
    x = np.arange(_TABLE_SIZE + 1, dtype=np.float32) * (2 * _TABLE_END) / _TABLE_SIZE - _TABLE_END
    table: NDArray[np.float32] = (1 / (1 + np.exp(-x.astype(np.float32)))).astype(np.float32)
    return table


def huffman_tree(counts: list[int]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the children and parents of fastText's tree, from the counts of the labels, largest first.

    Raises ValueError if they have no tree: fastText takes 1e15 for the count of an unfinished node.

    >>> huffman_tree([5, 2, 1])[0].tolist()
    [[-1, -1], [-1, -1], [-1, -1], [2, 1], [3, 0]]
    """
    num_labels = len(counts)
    weights = [*counts, *([10**15] * (num_labels - 1))]
    children = np.full((len(weights), 2), -1, np.int32)
    parents = np.full(len(weights), -1, np.int32)
    label, node = num_labels - 1, num_labels
    for inner_node in range(num_labels, len(weights)):
        for side in range(2):
            # Two queues: labels from the rarest on, and inner nodes, which are made in the order of
            # their weights. The lightest of all is at the head of one of them.
            if label >= 0 and weights[label] < weights[node]:
                child, label = label, label - 1
            else:
                child, node = node, node + 1
            if child >= inner_node:
                raise ValueError("the labels have impossible counts")
            children[inner_node, side] = child
            parents[child] = inner_node
        weights[inner_node] = sum(weights[child] for child in children[inner_node])
    return children, parents


def best_labels(
    sums: NDArray[np.float32], counts: NDArray[np.int64], output: Output
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the most likely label of each text and its probability; -1 and NaN for one without vectors."""
    labels = np.full((len(counts), 1), -1, np.int32)
    scores = np.full((len(counts), 1), np.nan)
    _score_all(sums, counts, output, True, labels, scores)
    return labels[:, 0], scores[:, 0]


def label_scores(
    sums: NDArray[np.float32], counts: NDArray[np.int64], output: Output, labels: list[int]
) -> NDArray[np.float64]:
    """Return the probabilities of labels (n, labels); NaN for a text without vectors."""
    wanted = np.tile(np.array(labels, np.int32), (len(counts), 1))
    scores = np.full(wanted.shape, np.nan)
    _score_all(sums, counts, output, False, wanted, scores)
    return scores


@allocator
def _score_all(
    sums: NDArray[np.float32],
    counts: NDArray[np.int64],
    output: Output,
    best: bool,
    labels: NDArray[np.int32],
    scores: NDArray[np.float64],
) -> None:
    values = np.zeros(output.weights.shape[1], np.float32)  # of each row of the output matrix
    stack = np.zeros(len(output.parents) + 1, np.int32)
    products = np.zeros(len(output.parents) + 1, np.float64)
    for k in range(len(counts)):
        if counts[k] == 0:
            continue
        _multiply(sums[k], np.float32(1.0 / counts[k]), output.weights, values)
        if output.loss != TREE:
            _activate(values, output)
        if best:
            if output.loss == TREE:
                labels[k, 0] = _best_leaf(values, output, stack, products)
            else:
                labels[k, 0] = _last_best(values, output.num_labels)
        for z in range(labels.shape[1]):
            label = labels[k, z]
            is_tree = output.loss == TREE
            score = _leaf_product(values, output, label) if is_tree else values[label] + _ADDED
            scores[k, z] = min(score, 1.0)


@inner
def _last_best(values: NDArray[np.float32], num_labels: int) -> int:
    """Return the index of the largest value: the last of equal ones, as fastText."""
    top = 0
    for z in range(1, num_labels):
        if values[z] >= values[top]:
            top = z
    return top


@inner
def _multiply(
    sums: NDArray[np.float32],
    factor: float,
    weights: NDArray[np.float32],
    values: NDArray[np.float32],
) -> None:
    """Compute the product of the mean of the vectors and each row, in fastText's order."""
    for row in range(len(values)):
        values[row] = 0
    for z in range(len(weights)):
        mean = sums[z] * factor
        for row in range(len(values)):
            values[row] += mean * weights[z, row]


@inner
def _activate(values: NDArray[np.float32], output: Output) -> None:
    """Turn products into probabilities: the softmax of all, or the logistic function of each."""
    if output.loss == SOFTMAX:
        top, total = values[0], np.float32(0)
        for z in range(output.num_labels):
            top = max(top, values[z])
        for z in range(output.num_labels):
            # The greatest exponent is 0, so that nothing overflows.
            values[z] = math.exp(values[z] - top)
            total += values[z]
        for z in range(output.num_labels):
            values[z] /= total
        return
    for z in range(output.num_labels):
        x = values[z]
        if x < -_TABLE_END:
            values[z] = 0
        elif x > _TABLE_END:
            values[z] = 1
        elif not math.isnan(x):
            # fastText's table: 512 steps from -8 to 8.
            values[z] = output.logistic[
                np.int64((x + np.float32(8)) * np.float32(512) / np.float32(16))
            ]


@inner
def _right(value: float) -> float:
    """Return the probability of the right child of a node."""
    return np.float32(1.0 / (np.float32(1) + math.exp(-value)))


@inner
def _leaf_product(values: NDArray[np.float32], output: Output, label: int) -> float:
    """Return the probability of a label: the product over the nodes from it to the root."""
    product, node = 1.0, label
    while output.parents[node] >= 0:
        parent = output.parents[node]
        right = _right(values[parent - output.num_labels])
        product *= (right if output.children[parent, 1] == node else np.float32(1) - right) + _ADDED
        node = parent
    return product


@inner
def _best_leaf(
    values: NDArray[np.float32],
    output: Output,
    stack: NDArray[np.int32],
    products: NDArray[np.float64],
) -> int:
    """Return the most likely label of a tree: the last of equal ones, from left to right, as in fastText.

    Descending to the more likely child gives a bound, below which no node needs a visit: what fastText has
    to visit before it finds a likely label is most of the tree.
    """
    first = output.num_labels
    root = len(output.parents) - 1
    node, bound = root, 1.0
    while node >= first:
        right = _right(values[node - first])
        side = 1 if right >= 0.5 else 0
        bound *= right if side else np.float32(1) - right
        node = output.children[node, side]
    # The bound is a product in another order of rounding: visit nodes that are slightly below it, too.
    best, top = -1, bound * _SLACK
    stack[0], products[0], height = root, 1.0, 1
    while height:
        height -= 1
        node, product = stack[height], products[height]
        # Products only shrink on the way down, so no label below is better.
        if product < top:
            continue
        if node < first:
            best, top = node, product
            continue
        right = _right(values[node - first])
        for side in range(2):
            child = output.children[node, 1 - side]  # the left one is on top
            stack[height] = child
            products[height] = product * ((np.float32(1) - right if side else right) + _ADDED)
            height += 1
    return best
