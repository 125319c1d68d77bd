"""A small GPT for training on a lake: RMSNorm, rotary positions, SwiGLU, tied embeddings.

Shape suffixes: B rows, S tokens, H heads, D width of a head, V vocabulary size.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of a model.

    >>> Shape(vocab_size=1000, layers=2, width=64, heads=4).padded_vocab
    1024
    """

    vocab_size: int
    layers: int
    width: int
    heads: int

    @property
    def padded_vocab(self) -> int:
        """The vocabulary rounded up to whole tiles of a GPU's matrix units."""
        return -(-self.vocab_size // 64) * 64

    def flops_per_token(self, num_parameters: int, seq_len: int) -> int:
        """Return the FLOPs per token of a forward and a backward pass, 6 N + 12 L H D S.

        The formula is from Chowdhery et al. 2022, appendix B.
        """
        return 6 * num_parameters + 12 * self.layers * self.width * seq_len


class Block(nn.Module):
    """Attention and a feed-forward layer, each with a residual connection."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        # As many weights as a layer of four widths without a gate.
        hidden = -(-8 * shape.width // 3 // 64) * 64
        self.attention_norm = nn.RMSNorm(shape.width)
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.attention_out = nn.Linear(shape.width, shape.width, bias=False)
        self.hidden_norm = nn.RMSNorm(shape.width)
        self.gate_up = nn.Linear(shape.width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, shape.width, bias=False)

    def forward(self, x: Tensor, rotations: Tensor) -> Tensor:
        """Map (B, S, width) to the same shape; ``rotations`` (S, D / 2, 2) encode the positions."""
        rows, seq_len, width = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(rows, seq_len, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # (B, H, S, D) each
        mixed = functional.scaled_dot_product_attention(
            _rotate(q, rotations), _rotate(k, rotations), v, is_causal=True
        )
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(rows, seq_len, width))
        gate, up = self.gate_up(self.hidden_norm(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)  # type: ignore[no-any-return]


class GPT(nn.Module):
    """A decoder-only transformer that returns the mean cross-entropy of the labels."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.padded_vocab, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        for name, weights in self.named_parameters():
            if weights.ndim == 2:
                depth = 2 * shape.layers if name.endswith(("out.weight", "down.weight")) else 1
                nn.init.normal_(weights, std=0.02 / math.sqrt(depth))  # Radford et al. 2019

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of ``labels``, int64 (B, S) like the ids; a label of -100 is ignored."""
        head_width = self.shape.width // self.shape.heads
        rotations = _rotations(input_ids.shape[1], head_width, input_ids.device)
        x = self.embedding(input_ids)
        for block in self.blocks:
            x = block(x, rotations)
        logits = functional.linear(self.norm(x), self.embedding.weight)  # (B, S, V)
        return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def _rotations(seq_len: int, size: int, device: torch.device) -> Tensor:
    """Return the rotation of each position and channel pair, (S, D / 2, 2).

    Rotary embeddings of Su et al. 2021 with base 10,000.
    """
    rates = 10_000.0 ** (-torch.arange(0, size, 2, device=device) / size)
    angles = torch.outer(torch.arange(seq_len, device=device), rates)
    return torch.stack([angles.cos(), angles.sin()], dim=-1)


def _rotate(x: Tensor, rotations: Tensor) -> Tensor:
    """Rotate the channel pairs (i, i + D / 2) of (B, H, S, D)."""
    cos, sin = rotations[..., 0].to(x.dtype), rotations[..., 1].to(x.dtype)
    left, right = x.chunk(2, dim=-1)
    return torch.cat([left * cos - right * sin, left * sin + right * cos], dim=-1)
