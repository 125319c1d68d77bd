"""The code of docs/guides/trainers.md, and what its recipes leave behind in a process."""

import re
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent.parent / "docs" / "guides" / "trainers.md"


def recipe(heading: str) -> dict[str, Any]:
    """Return the names that the code below a heading of the page defines."""
    (section,) = re.findall(
        rf"^###? {re.escape(heading)}\n(.*?)(?=^###? |\Z)",
        PAGE.read_text("utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    (code,) = re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    names = {"__name__": "recipe"}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


def forget_accelerate() -> None:
    """Reset what accelerate remembers of this process: ranks that a later test forks would inherit it."""
    state: Any = sys.modules.get("accelerate.state")
    if state is not None:
        state.AcceleratorState._reset_state(reset_partial_state=True)
        state.GradientState._reset_state()
