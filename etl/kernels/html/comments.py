"""Find the readers' comments of a page, which read like main text."""

import numpy as np
from numpy.typing import NDArray

from etl.kernels.html.key_words import COMMENT
from etl.kernels.html.page import CONTAINERS, Page
from etl.kernels.html.tags import ARTICLE, BODY, HTML, MAIN
from etl.kernels.jit import inner


@inner
def find_comments(page: Page, is_comment: NDArray[np.bool_]) -> None:
    """Set which containers are comments: those whose class, id or role says so, and those in them."""
    is_comment[0] = False
    for container in range(1, page.state[CONTAINERS]):
        tag = page.containers.tag[container]
        # The class of a whole page says that it has comments, or that they are closed.
        is_whole = tag == HTML or tag == BODY or tag == MAIN or tag == ARTICLE
        is_comment[container] = is_comment[page.containers.parent[container]] or (
            not is_whole and page.containers.classes[container] & COMMENT != 0
        )
