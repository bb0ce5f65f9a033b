"""The sizes of a model from the static shapes of its tensors; the forward ops have no other."""

import itertools
from typing import Any, Dict

from cudnn_rnn._compat import projection_of, tf
from cudnn_rnn.model import layout
from cudnn_rnn.model.spec import CUDNN_INPUT_SKIP_MODE, CUDNN_LSTM, RnnConfig


def config_of(op, dtype):
    """Returns the `RnnConfig` of the attributes of any of the ops; its sizes are None."""
    values: Dict[str, Any] = dict.fromkeys(RnnConfig._fields)
    values.update(dtype=dtype.name, num_proj=projection_of(op))
    for name in ("dropout", "seed", "seed2"):
        values[name] = op.get_attr(name)
    for name in ("rnn_mode", "input_mode", "direction"):
        values[name] = tf.compat.as_str(op.get_attr(name))
    return RnnConfig(**values)


def model_of_operation(op):
    """Returns `(config, time_major)` of a forward or gradient op; unknown sizes are None."""
    config = config_of(op, op.inputs[0].dtype.base_dtype)
    time_major = op.get_attr("time_major") if op.type.endswith("V3") else True
    return with_sizes(config, op.inputs[:4], time_major), time_major


def with_sizes(config, tensors, time_major=True):
    """Returns `config` with num_layers, num_units and input_size; None where they are unknown.

    Sizes that the config has already stay.

    Args:
      config: an `RnnConfig`; its sizes may be None.
      tensors: input, input_h, input_c and params, with the shapes that `nodes.rnn` describes.
      time_major: bool.
    """
    found = _with_sizes_of_data(config, tensors[:3], time_major)
    return _completed_by_params(found, tensors[3].shape.num_elements())


def needed_params(config, tensors, time_major):
    """Returns the number of parameters from the shapes of the other tensors; None if unknown.

    The arguments are those of `with_sizes`; params are not read.
    """
    found = _with_sizes_of_data(config, tensors[:3], time_major)
    sizes = (found.num_layers, found.num_units, found.input_size)
    return layout.params_size(found) if all(sizes) else None


def _with_sizes_of_data(config, tensors, time_major):
    input_data, input_h, input_c = tensors
    is_lstm = config.rnn_mode == CUDNN_LSTM
    states = [input_h, input_c] if is_lstm else [input_h]
    axis = 0 if time_major else 1
    stacked = _first_known(_dimension(state, axis) for state in states)
    units = [input_c] if config.num_proj else reversed(states)
    sizes = {
        "num_layers": stacked and stacked // config.num_directions,
        "num_units": _first_known(_dimension(state, 2) for state in units),
        "input_size": _dimension(input_data, 2),
    }
    if config.input_mode == CUDNN_INPUT_SKIP_MODE:
        sizes["input_size"] = sizes["input_size"] or sizes["num_units"]
    known = {name: getattr(config, name) or size for name, size in sizes.items()}
    return config._replace(**known)


def checked(config):
    """Returns the config; raises `ValueError` if a size is unknown."""
    units_of = "c" if config.rnn_mode == CUDNN_LSTM else "h"
    sources = {
        "num_layers": "the first dimension of input_h, or the second of a batch-major one",
        "num_units": "the last dimension of input_%s" % units_of,
        "input_size": "the last dimension of the input",
    }
    unknown = ["%s (%s)" % item for item in sources.items() if getattr(config, item[0]) is None]
    if unknown:
        raise ValueError(
            "The RNN's sizes must be known when the graph is built; unknown are %s. Set the "
            "static shape with set_shape, or in the placeholder or signature it comes from."
            % " and ".join(unknown)
        )
    return config


def _dimension(tensor, axis):
    """Returns a static dimension of a tensor of rank 3, or None."""
    if tensor.shape.rank != 3:
        return None
    return tensor.shape.as_list()[axis]


def _first_known(values):
    return next((value for value in values if value is not None), None)


def _completed_by_params(config, params_size):
    """Returns the config with a single unknown size derived from the number of parameters."""
    unknown = [n for n in ("num_layers", "num_units", "input_size") if getattr(config, n) is None]
    if len(unknown) != 1 or params_size is None:
        return config
    for candidate in itertools.count(1):
        found = config._replace(**{unknown[0]: candidate})
        if layout.params_size(found) == params_size:
            return found
        # With auto_select, the buffer is shorter if input_size equals num_units.
        if layout.params_size(found) > params_size and candidate > (config.num_units or 0):
            return config
