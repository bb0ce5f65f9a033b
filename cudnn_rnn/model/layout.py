"""The place of every matrix and bias in the opaque parameter buffer, and the canonical tensors.

The opaque parameter buffer is one vector. All matrices come first: for every layer and direction
(forward, then backward), the input weights W of every gate, then the recurrent weights R of every
gate. The biases follow: for every layer and direction, the input biases bW of every gate, then the
recurrent biases bR of every gate.

The canonical tensors hold the same numbers in the same order, one tensor per matrix or bias.
Matrices are `[num_units, width]` in row-major order, and biases are `[num_units]`. The width of R
is `num_units`; the width of W is `input_size` in the first layer and `num_directions * num_units`
in the other layers. With skip_input, W of the first layer has width 0.

With a projection (LSTM only), the output h of one direction has width `num_proj` instead of
`num_units`, and so does R. The next layer's input has width `num_directions * num_proj`. Every
layer and direction has one more matrix after its R, `[num_proj, num_units]`.
"""

from __future__ import annotations

import functools
from typing import Iterator, List, NamedTuple, Optional, Tuple

from cudnn_rnn.model.spec import RnnConfig

DIRECTIONS = ("forward", "backward")
MATRICES = ("input_weights", "recurrent_weights", "projection")
BIASES = ("input_bias", "recurrent_bias")


class Region(NamedTuple):
    """A matrix or bias in the buffer: of one gate, or of all gates of its kind.

    Attributes:
      kind: one of `MATRICES` or `BIASES`.
      layer: int.
      direction: int, the index in `DIRECTIONS`.
      gate: int, the index in `RnnConfig.gates`; None for all gates together and for a projection.
      shape: a tuple of int. All gates together have the rows of gate after gate.
      offset: int, the number of elements before it.
    """

    kind: str
    layer: int
    direction: int
    gate: Optional[int]
    shape: Tuple[int, ...]
    offset: int

    @property
    def size(self) -> int:
        """The number of elements."""
        return _number_of_elements(self.shape)


def joined_regions(config: RnnConfig) -> Iterator[Region]:
    """Yields the matrices and biases of all gates, in the order of the buffer."""
    offset = 0
    for kinds in (MATRICES, BIASES):
        for layer in range(config.num_layers):
            shapes = _shapes(config, layer)
            for direction in range(config.num_directions):
                for kind in kinds:
                    if kind in shapes:
                        region = Region(kind, layer, direction, None, shapes[kind], offset)
                        yield region
                        offset += region.size


def regions(config: RnnConfig) -> Iterator[Region]:
    """Yields the canonical tensors, one for each gate and one for a projection, in order."""
    num_gates = len(config.gates)
    for joined in joined_regions(config):
        if joined.kind == "projection":
            yield joined
            continue
        shape = (config.num_units, *joined.shape[1:])
        for gate in range(num_gates):
            offset = joined.offset + gate * joined.size // num_gates
            yield joined._replace(gate=gate, shape=shape, offset=offset)


def _shapes(config, layer):
    """Returns the shapes of a layer and direction by kind, without a projection if it has none."""
    rows = len(config.gates) * config.num_units
    shapes = {
        "input_weights": (rows, config.input_weights_width(layer)),
        "recurrent_weights": (rows, config.output_units),
        "input_bias": (rows,),
        "recurrent_bias": (rows,),
    }
    if config.num_proj:
        shapes["projection"] = (config.num_proj, config.num_units)
    return shapes


def canonical_weights(config: RnnConfig) -> List[Region]:
    """Returns the weights among the canonical tensors."""
    return [region for region in regions(config) if region.kind in MATRICES]


def canonical_biases(config: RnnConfig) -> List[Region]:
    """Returns the biases among the canonical tensors."""
    return [region for region in regions(config) if region.kind in BIASES]


@functools.lru_cache(maxsize=256)
def params_size(config: RnnConfig) -> int:
    """Returns the number of elements of the buffer; may exceed `INT32_MAX`."""
    # All layers after the first have the same size; there may be very many.
    first = _size_of_layer(config, 0)
    return first + (config.num_layers - 1) * _size_of_layer(config, 1)


def _size_of_layer(config, layer):
    sizes = [_number_of_elements(shape) for shape in _shapes(config, layer).values()]
    return config.num_directions * sum(sizes)


def _number_of_elements(shape):
    size = 1
    for dimension in shape:
        size *= dimension
    return size


def region_name(config: RnnConfig, region: Region) -> str:
    """Returns the name of a canonical tensor in errors.

    For example: "layer 0, forward, reset gate, input bias".
    """
    place = "layer %d, %s" % (region.layer, DIRECTIONS[region.direction])
    if region.gate is None:
        return "%s, %s" % (place, region.kind)
    gate = config.gates[region.gate]
    return "%s, %s, %s" % (place, gate, region.kind.replace("_", " "))
