"""The static shapes of a call's tensors, checked against the model and against each other."""

from typing import NamedTuple, Optional

from cudnn_rnn.graph.arguments import check_shape, ensured_shape
from cudnn_rnn.graph.refusals import shape_of
from cudnn_rnn.model.spec import CUDNN_LSTM


class Sizes(NamedTuple):
    """The sizes of a model that are known before a call; None for the others."""

    input_size: Optional[int] = None
    num_states: Optional[int] = None
    num_units: Optional[int] = None
    params_size: Optional[int] = None


UNKNOWN_SIZES = Sizes()
_STATES = "num_layers * directions"


def result_shapes(config, tensors, sizes, time_major, input_name):
    """Returns the shape of the output and a list of those of the states, in the call's axis order.

    Args:
      config: an `RnnConfig`; its sizes are not read.
      tensors: input_data, input_h and input_c, of which only an LSTM has the last.
      sizes: `Sizes`.
      time_major: bool. If False, the batch is the first dimension of all tensors.
      input_name: the name of input_data in errors.

    Raises:
      ValueError: a static shape does not match.
    """
    input_data, input_h, input_c = tensors
    expected = (None, None, sizes.input_size)
    time, batch, _ = _checked(input_name, input_data, expected, ("time", "input_size"), time_major)
    num_proj = config.num_proj
    expected = (sizes.num_states, batch, num_proj or sizes.num_units)
    names = (_STATES, "num_proj" if num_proj else "num_units")
    try:
        num_states, batch, width = _checked("input_h", input_h, expected, names, time_major)
    except ValueError as error:
        exchanged = _in_order(time_major, expected[0], time, expected[2])
        if time is None or not input_h.shape.is_compatible_with(exchanged):
            raise
        raise ValueError(
            "%s It fits if time and batch of %s are exchanged: pass tf.transpose(%s, [1, 0, 2])."
            % (error, input_name, input_name)
        ) from None
    states = [_in_order(time_major, num_states, batch, width)]
    if config.rnn_mode == CUDNN_LSTM:
        expected = (num_states, batch, sizes.num_units if num_proj else width)
        names = (_STATES, "num_units")
        num_states, batch, units = _checked("input_c", input_c, expected, names, time_major)
        width = num_proj or width or units
        states = [_in_order(time_major, num_states, batch, last) for last in (width, units)]
    return _in_order(time_major, time, batch, width and width * config.num_directions), states


def ensured(config, tensors, sizes, time_major):
    """Returns the tensors; nodes check the sizes of states that their static shapes leave open.

    The kernels take all sizes from the tensors. The width of the input stays open: graphs run one
    model on inputs of several widths, with the front of its parameters. The arguments are those of
    `result_shapes`, after which this is called.
    """
    input_data, *states = tensors
    widths = [config.num_proj or sizes.num_units, sizes.num_units]
    for index in range(2 if config.rnn_mode == CUDNN_LSTM else 1):
        shape = _in_order(time_major, sizes.num_states, None, widths[index])
        states[index] = ensured_shape(states[index], shape)
    return (input_data, *states)


def refuse_missing(config, values, sizes, time_major):
    """Raises `TypeError` for states and params that are None.

    The arguments are those of `result_shapes`, but for `values`: the list of (name, value) of
    input_data, which is first, and of the others.
    """
    (input_name, input_data), *others = values
    missing = [name for name, value in others if value is None]
    shape = shape_of(input_name, input_data, "sequence_lengths")
    batch = None if shape.rank != 3 else shape.as_list()[1 if time_major else 0]
    units = sizes.num_units or "num_units"
    widths = {"input_h": config.num_proj or units, "input_c": units}
    texts = []
    for name in missing:
        if name == "params":
            size = sizes.params_size or "params_size"
            texts.append("params must be a tensor of shape [%s], but is None." % size)
            continue
        axes = _in_order(time_major, sizes.num_states or _STATES, batch or "batch", widths[name])
        shape = "[%s, %s, %s]" % tuple(axes)
        texts.append(
            "%s must be a state of shape %s, but is None. Pass tf.zeros(%s) to start with zeros."
            % (name, shape, shape)
        )
    raise TypeError(" ".join(texts))


def _in_order(time_major, first, batch, last):
    """Returns the three dimensions of a tensor in the axis order of the call."""
    return [first, batch, last] if time_major else [batch, first, last]


def _checked(argument, tensor, expected, names, time_major):
    """Checks the static shape of a tensor of rank 3.

    Args:
      argument: name of the argument.
      tensor: the tensor.
      expected: time-major sizes (first, batch, last), each an int or None.
      names: names of the first and the last size, for errors.
      time_major: as in `result_shapes`.

    Returns:
      `expected`, with the tensor's static sizes in place of None.
    """
    shape = tensor.shape
    found = _in_order(time_major, *(shape.as_list() if shape.rank == 3 else [None] * 3))
    fits = all(None in pair or pair[0] == pair[1] for pair in zip(found, expected))
    if shape.rank != 3 or not fits:
        meaning = "[%s, %s, %s]" % tuple(_in_order(time_major, names[0], "batch", names[1]))
        check_shape(argument, tensor, _in_order(time_major, *expected), meaning)
    return [size if known is None else known for known, size in zip(expected, found)]
