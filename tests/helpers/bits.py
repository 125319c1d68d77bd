"""Numbers of the bits that are set."""


def set_bits(mask: int) -> list[int]:
    return [k for k in range(64) if int(mask) >> k & 1]
