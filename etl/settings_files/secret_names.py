"""Tell by its name whether an environment variable may hold a secret, such as HF_TOKEN."""

import re
from typing import Final

_SECRET: Final = re.compile(
    r"SECRET|PASSWORD|PASSWD|CREDENTIAL|CONNECTION_STRING|(?:TOKEN|KEY)S?(?:_|$)", re.IGNORECASE
)


def may_be_secret(name: str) -> bool:
    """Return whether the name of an environment variable says that it holds a secret.

    >>> may_be_secret("AWS_ACCESS_KEY_ID"), may_be_secret("TOKENLAKE_LAKE")
    (True, False)
    """
    return _SECRET.search(name) is not None
