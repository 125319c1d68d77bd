"""Describe the blocks of a page with all features, for the training of a model."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.simd import SIZE
from etl.kernels.bytes.utf8 import frozen
from etl.kernels.html.features import BITS, NAMES, Sums, describe_blocks, make_sums
from etl.kernels.html.page import BLOCKS, END, HIDDEN, Page, make_page
from etl.kernels.html.read import read_page
from etl.kernels.jit import kernel


class DescribedBlocks(NamedTuple):
    """The blocks of a page in order."""

    texts: list[str]
    is_hidden: list[bool]
    features: NDArray[np.float32]  # (blocks, features) by `NAMES`


def describe_page(html: bytes, *, keeps_math: bool = True) -> DescribedBlocks:
    """Return the text and the features of each block of a page (UTF-8).

    >>> describe_page(b"<h1>A &lt; B</h1><p>One<p hidden>two").texts
    ['A < B', 'One', 'two']
    """
    data = frozen(np.frombuffer(html + bytes(SIZE), np.uint8))
    page = make_page(len(html))
    sums = make_sums(len(page.containers.parent))
    _read(data, len(html), keeps_math, page)
    num, blocks = int(page.state[BLOCKS]), page.blocks
    features = np.zeros((len(NAMES), num), np.float32)
    _describe(page, sums, frozen(np.arange(len(BITS))), features)
    text = page.text[: page.state[END]].tobytes()
    spans = zip(blocks.start[:num].tolist(), blocks.stop[:num].tolist(), strict=True)
    return DescribedBlocks(
        [text[start:stop].decode("utf-8", "replace") for start, stop in spans],
        ((blocks.flags[:num] & HIDDEN) > 0).tolist(),
        features.T.copy(),
    )


@kernel
def _read(data: NDArray[np.uint8], size: int, keeps_math: bool, page: Page) -> None:
    read_page(data, 0, size, keeps_math, page)


@kernel
def _describe(page: Page, sums: Sums, bits: NDArray[np.int64], x: NDArray[np.float32]) -> None:
    describe_blocks(page, sums, bits, x)
