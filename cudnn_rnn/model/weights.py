"""`RnnWeights`: the weights of one RNN as NumPy arrays, with the gates in cuDNN's order."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from cudnn_rnn.model import layout
from cudnn_rnn.model.layout import DIRECTIONS
from cudnn_rnn.model.spec import (
    CUDNN_RNN_RELU,
    CUDNN_RNN_TANH,
    GATES,
    RnnConfig,
    checked_choice,
)

SIMPLE_MODES = (CUDNN_RNN_TANH, CUDNN_RNN_RELU)  # their weights have the same shapes
# The `rnn_mode` of a simple RNN whose activation is unknown.
UNKNOWN_ACTIVATION = " or ".join(SIMPLE_MODES)
DTYPES = ("float16", "float32", "float64")


class LayerWeights(NamedTuple):
    """One layer and direction. Rows of matrices, and biases, are gate after gate.

    The names are the kinds of `layout`.
    """

    input_weights: np.ndarray  # [gates * num_units, width of the layer's input]
    recurrent_weights: np.ndarray  # [gates * num_units, num_proj or num_units]
    input_bias: np.ndarray  # [gates * num_units]
    recurrent_bias: np.ndarray  # [gates * num_units]
    projection: Optional[np.ndarray] = None  # [num_proj, num_units], only of an LSTM


class RnnWeights:
    """The weights of one RNN: any number of layers, one or two directions.

    Attributes:
      rnn_mode: "lstm", "gru", "rnn_relu" or "rnn_tanh"; or "rnn_tanh or rnn_relu", if nothing tells
        the activation of a simple RNN. `with_rnn_mode` sets it.
      layers: `layers[layer][direction]` is a `LayerWeights`; direction 0 is forward.
      scope: str, the name of the RNN in a file with several; may be empty.
      num_layers, num_units, input_size: int.
      bidirectional: bool.
      num_proj: int, 0 without a projection.
      dtype: a `np.dtype`: float16, float32 or float64.
      num_gates: int.
    """

    def __init__(
        self, rnn_mode: str, layers: Sequence[Sequence[LayerWeights]], scope: str = ""
    ) -> None:
        """Takes the weights; all sizes follow from them.

        Raises:
          ValueError: the mode or a dtype is unknown, or shapes or dtypes do not fit together.
        """
        self.rnn_mode = checked_choice("rnn_mode", rnn_mode, (*GATES, UNKNOWN_ACTIVATION))
        self.layers: List[List[LayerWeights]] = [
            [LayerWeights(*[_as_array(part) for part in weights]) for weights in directions]
            for directions in layers
        ]
        self.scope = scope
        if not self.layers or len(self.layers[0]) not in (1, 2):
            raise ValueError(
                "layers must have at least one layer with one or two directions, but is %r."
                % (layers,)
            )
        first = self.layers[0][0]
        self.num_gates = len(self.gates)
        self.num_layers = len(self.layers)
        self.num_units = len(first.recurrent_bias) // self.num_gates
        self.num_proj = 0 if first.projection is None else len(first.projection)
        self.input_size = first.input_weights.shape[-1]
        self.bidirectional = len(self.layers[0]) == 2
        self.dtype = first.input_weights.dtype
        self._check()

    @property
    def num_directions(self) -> int:
        """1 or 2."""
        return 2 if self.bidirectional else 1

    @property
    def output_width(self) -> int:
        """The width of the output of one direction."""
        return self.num_proj or self.num_units

    @property
    def gates(self) -> Tuple[str, ...]:
        """The names of the gates, in their order."""
        return GATES[layout_mode(self.rnn_mode)]

    @property
    def config(self) -> RnnConfig:
        """The model that these are the weights of.

        Raises:
          ValueError: the activation is unknown.
        """
        if self.rnn_mode == UNKNOWN_ACTIVATION:
            raise ValueError(
                "The RNN %r may be %s. Set the activation with RnnWeights.with_rnn_mode."
                % (self.scope, self.rnn_mode)
            )
        return self.layout

    @property
    def layout(self) -> RnnConfig:
        """`config`; of an unknown activation, a model with the same parameter buffer."""
        return RnnConfig.checked(
            layout_mode(self.rnn_mode),
            self.num_layers,
            self.num_units,
            self.input_size,
            direction="bidirectional" if self.bidirectional else "unidirectional",
            dtype=self.dtype.name,
            num_proj=self.num_proj,
        )

    @property
    def params_size(self) -> int:
        """The number of elements of the opaque parameter buffer."""
        return layout.params_size(self.layout)

    def with_scope(self, scope: str) -> RnnWeights:
        """Returns the same weights under another name."""
        return RnnWeights(self.rnn_mode, self.layers, scope)

    def with_rnn_mode(self, rnn_mode: str) -> RnnWeights:
        """Returns the same weights in another mode with as many gates.

        Raises:
          ValueError: the mode is unknown, or the weights do not have its shapes.
        """
        return RnnWeights(rnn_mode, self.layers, self.scope)

    def places(self) -> List[Tuple[int, int, LayerWeights]]:
        """Returns a list of (layer, direction, weights), forward before backward."""
        return [
            (layer, direction, weights)
            for layer, directions in enumerate(self.layers)
            for direction, weights in enumerate(directions)
        ]

    def to_opaque(self) -> np.ndarray:
        """Returns the opaque parameter buffer of a `CudnnLSTM` and so on, `[params_size]`."""
        parts = [
            getattr(self.layers[region.layer][region.direction], region.kind)
            for region in layout.joined_regions(self.layout)
        ]
        return np.concatenate([part.reshape(-1) for part in parts])

    @classmethod
    def from_opaque(
        cls,
        params: np.ndarray,
        rnn_mode: str,
        num_layers: int,
        num_units: int,
        input_size: int,
        bidirectional: bool = False,
        num_proj: int = 0,
        skip_input: bool = False,
        scope: str = "",
    ) -> RnnWeights:
        """Returns the weights in an opaque parameter buffer.

        Args:
          params: `[params_size]`, float16, float32 or float64.
          rnn_mode, num_layers, num_units, input_size, bidirectional, num_proj: the model. The mode
            may be "rnn_tanh or rnn_relu".
          skip_input: whether the model has input_mode "skip_input". Its first layer has no input
            weights; it gets identity matrices, which compute the same.
          scope: the name of the RNN.

        Raises:
          ValueError: the buffer does not have the size of this model.
        """
        config = RnnConfig.checked(
            layout_mode(rnn_mode),
            num_layers,
            num_units,
            input_size,
            "skip_input" if skip_input else "linear_input",
            "bidirectional" if bidirectional else "unidirectional",
            num_proj=num_proj,
        )
        return cls(rnn_mode, from_buffer(params, config).layers, scope)

    def not_finite(self) -> List[str]:
        """Returns a description of every array that has NaN or infinite values."""
        return [
            "layer %d, %s, %s: %d" % (layer, DIRECTIONS[direction], _words(name), count)
            for layer, direction, weights in self.places()
            for name, array in weights._asdict().items()
            for count in [0 if array is None else int((~np.isfinite(array)).sum())]
            if count
        ]

    def __repr__(self) -> str:
        return (
            "<RnnWeights %r: %s, num_layers %d, num_units %d, input_size %d, %s, num_proj %d, %s>"
            % (
                self.scope,
                self.rnn_mode,
                self.num_layers,
                self.num_units,
                self.input_size,
                "bidirectional" if self.bidirectional else "unidirectional",
                self.num_proj,
                self.dtype,
            )
        )

    def _check(self):
        rows, width = self.num_gates * self.num_units, self.input_size
        has_projection = self.layers[0][0].projection is not None
        if has_projection and self.rnn_mode != "lstm":
            raise ValueError(
                "layers[0][0].projection is given, but rnn_mode is %r: only an LSTM has a "
                "projection." % self.rnn_mode
            )
        for layer, directions in enumerate(self.layers):
            if len(directions) != self.num_directions:
                raise ValueError(
                    "layers[%d] has %d directions; expected %d as in layers[0]."
                    % (layer, len(directions), self.num_directions)
                )
            expected = LayerWeights(
                [rows, width],
                [rows, self.output_width],
                [rows],
                [rows],
                [self.num_proj, self.num_units] if has_projection else None,
            )
            for direction, weights in enumerate(directions):
                self._check_shapes("layers[%d][%d]" % (layer, direction), weights, expected)
            width = self.num_directions * self.output_width

    def _check_shapes(self, place, weights, expected):
        for name, array in weights._asdict().items():
            shape = getattr(expected, name)
            found = None if array is None else list(array.shape)
            if found != shape or (array is not None and array.dtype != self.dtype):
                raise ValueError(
                    "%s.%s has shape %s, dtype %s; expected %s, dtype %s, for an RNN with rnn_mode "
                    "%r, num_units %d, num_proj %d and input_size %d."
                    % (
                        place,
                        name,
                        found,
                        getattr(array, "dtype", None),
                        shape,
                        None if shape is None else self.dtype,
                        self.rnn_mode,
                        self.num_units,
                        self.num_proj,
                        self.input_size,
                    )
                )


def from_buffer(params: np.ndarray, config: RnnConfig, scope: str = "") -> RnnWeights:
    """Returns the weights in an opaque parameter buffer; see `RnnWeights.from_opaque`."""
    params = _as_array(params)
    if params.shape != (layout.params_size(config),):
        raise ValueError(
            "params has shape %s; an RNN with rnn_mode %r, num_layers %d, num_units %d, "
            "input_size %d, %s and num_proj %d has [%d]."
            % (
                list(params.shape),
                *config[:4],
                config.direction,
                config.num_proj,
                layout.params_size(config),
            )
        )
    arrays: List[List[Dict[str, np.ndarray]]] = [
        [{} for _ in range(config.num_directions)] for _ in range(config.num_layers)
    ]
    for region in layout.joined_regions(config):
        part = params[region.offset : region.offset + region.size].reshape(region.shape)
        arrays[region.layer][region.direction][region.kind] = part
    if config.skips_input_projection:
        identity = np.eye(config.num_units, dtype=params.dtype)
        for of_direction in arrays[0]:
            of_direction["input_weights"] = np.tile(identity, (len(config.gates), 1))
    layers = [[LayerWeights(**parts) for parts in directions] for directions in arrays]
    return RnnWeights(config.rnn_mode, layers, scope)


def layout_mode(rnn_mode: str) -> str:
    """Returns a mode with the same gates that `RnnConfig` knows: not `UNKNOWN_ACTIVATION`."""
    return SIMPLE_MODES[0] if rnn_mode == UNKNOWN_ACTIVATION else rnn_mode


def _as_array(value):
    """Returns an array of one of `DTYPES`; None for None."""
    if value is None:
        return None
    array = np.asarray(value)
    if array.dtype.name not in DTYPES:
        advice = "Convert it with astype(np.float32)."
        if array.dtype.kind in "biu":
            advice = "If the model is quantized, take the weights from before that."
        raise ValueError(
            "Weights must be %s or %s, but an array of shape %s is %s. %s"
            % (", ".join(DTYPES[:-1]), DTYPES[-1], list(array.shape), array.dtype.name, advice)
        )
    return array


def _words(name):
    return name.replace("_", " ")
