"""Calls of an RNN: checks the arguments, in the form of any release, and builds the node."""

import collections

from cudnn_rnn._compat import tf
from cudnn_rnn.graph import model_sizes, nodes
from cudnn_rnn.graph.arguments import (
    as_tensors,
    check_shape,
    checked_params,
    is_python_bool,
    static_bool,
)
from cudnn_rnn.graph.refusals import refuse, shape_of
from cudnn_rnn.model.spec import CUDNN_LSTM, CUDNN_RNN_BIDIRECTION

# Expected static sizes of a call's arguments, each an int, or None if unknown.
Sizes = collections.namedtuple("Sizes", "input_size num_states num_units params_size")
UNKNOWN_SIZES = Sizes(None, None, None, None)


def lengths_and_training(sequence_lengths, is_training, training_name="is_training"):
    """Returns (sequence_lengths, is_training), accepting `is_training` as the first argument.

    Up to TensorFlow 1.13 `is_training` had the position that `sequence_lengths` has since 1.14. So
    a bool, 0, 1 or a bool tensor there means `is_training`. (Lengths are a vector.)

    Raises:
      TypeError: `is_training` is also given, with another value.
    """
    is_tensor = tf.is_tensor(sequence_lengths)
    if is_tensor and sequence_lengths.dtype.base_dtype != tf.bool:
        return sequence_lengths, is_training
    if not is_tensor and not is_python_bool(sequence_lengths):
        return sequence_lengths, is_training
    if is_training is not True and is_training is not sequence_lengths:
        raise TypeError(
            "Got %s twice: %r in the position of sequence_lengths, and %s=%r."
            % (training_name, sequence_lengths, training_name, is_training)
        )
    return None, sequence_lengths


def zero_states(inputs, time_major, state_shape, dtype):
    """Returns a tuple of states of zeros for `inputs`, `[time, batch, input_size]`.

    `state_shape` is a function of the batch size that returns the time-major shapes of the states.
    If not `time_major`, the inputs and the states have the batch as their first dimension.
    """
    axis = 1 if time_major else 0
    batch = inputs.shape.with_rank(3).as_list()[axis]
    shapes = state_shape(tf.shape(inputs)[axis] if batch is None else batch)
    if not time_major:
        shapes = [[shape[1], shape[0], shape[2]] for shape in shapes]
    return tuple(tf.zeros(shape, dtype) for shape in shapes)


class Call:
    """One call of an RNN: checks the arguments and builds the node.

    Attributes:
      outputs: `(output, output_h, output_c)`; `output_c` is meaningful only for an LSTM.
    """

    def __init__(
        self,
        config,
        tensors,
        is_training,
        sequence_lengths=None,
        time_major=True,
        sizes=UNKNOWN_SIZES,
        dtype=None,
        default_dtype=tf.float32,
        input_name="input_data",
        training_name="is_training",
        name=None,
    ):
        """Builds the node, or two nodes if only `is_training` at run time can choose between them.

        Args:
          config: an `RnnConfig`; its sizes and dtype may be None.
          tensors: input_data, input_h, input_c and params, with the shapes that `nodes.rnn` has;
            input_data may also be a list of tensors. Only an LSTM uses input_c. params may have any
            shape that `checked_params` accepts.
          is_training: bool or scalar bool tensor.
          sequence_lengths: None or integers `[batch]`.
          time_major: bool. If False, the batch is the first dimension of all but params.
          sizes: `Sizes`.
          dtype: the required dtype of the tensors, or None to take the dtype of the tensors.
          default_dtype: the dtype if no argument is a tensor.
          input_name: the name of `input_data` in error messages.
          training_name: the name of `is_training` in error messages.
          name: name of the node, None for the default.

        Raises:
          TypeError: an argument has the wrong type or dtype.
          ValueError: the static shape of an argument does not match.
        """
        self._config = config
        self._is_lstm = config.rnn_mode == CUDNN_LSTM
        self._time_major = _checked_time_major(time_major)
        self._name = name
        self._training_name = training_name
        input_data, input_h, input_c, params = tensors
        values = [(input_name, input_data), ("input_h", input_h), ("params", params)]
        if self._is_lstm:
            values.append(("input_c", input_c))
        if any(value is None for _, value in values[1:]):
            self._refuse_missing(values, sizes)
        self._input, self._h, self._params, *cells = as_tensors(values, dtype, default_dtype)
        self._c = cells[0] if self._is_lstm else tf.constant([], dtype=self._params.dtype)
        output_shape, state_shapes = self._check_shapes(sizes, input_name)
        needed = sizes.params_size
        if needed is None:
            data = (self._input, self._h, self._c)
            needed = model_sizes.needed_params(config, data, self._time_major)
        self._params = checked_params(self._params, needed)
        self._lengths = self._checked_lengths(sequence_lengths, output_shape)
        self.outputs = self._build(is_training)
        self.outputs[0].set_shape(output_shape)
        for state, shape in zip(self.outputs[1:], state_shapes):
            state.set_shape(shape)

    def _refuse_missing(self, values, sizes):
        """Raises `TypeError` for states and params that are None; `values` are those of a call."""
        (input_name, input_data), *others = values
        missing = [name for name, value in others if value is None]
        shape = shape_of(input_name, input_data, "sequence_lengths")
        batch = None if shape.rank != 3 else shape.as_list()[1 if self._time_major else 0]
        states = sizes.num_states or "num_layers * directions", batch or "batch"
        units = sizes.num_units or "num_units"
        widths = {"input_h": self._config.num_proj or units, "input_c": units}
        texts = []
        for name in missing:
            if name == "params":
                size = sizes.params_size or "params_size"
                texts.append("params must be a tensor of shape [%s], but is None." % size)
                continue
            shape = "[%s, %s, %s]" % tuple(self._in_call_order(*states, widths[name]))
            texts.append(
                "%s must be a state of shape %s, but is None. Pass tf.zeros(%s) to start with "
                "zeros." % (name, shape, shape)
            )
        raise TypeError(" ".join(texts))

    def _in_call_order(self, first, batch, last):
        """Returns the shape in the axis order of this call, given the axes of a time-major one."""
        return [first, batch, last] if self._time_major else [batch, first, last]

    def _check_shapes(self, sizes, input_name):
        """Checks the static shapes; returns the shapes of the output and the states."""
        time, batch, _ = self._checked_shape(
            input_name, self._input, (None, None, sizes.input_size), ("time", "input_size")
        )
        num_proj = self._config.num_proj
        states = "num_layers * directions"
        num_states, batch, width = self._checked_shape(
            "input_h",
            self._h,
            (sizes.num_states, batch, num_proj or sizes.num_units),
            (states, "num_proj" if num_proj else "num_units"),
            (input_name, time),
        )
        state_shapes = [self._in_call_order(num_states, batch, width)]
        if self._is_lstm:
            units = sizes.num_units if num_proj else width
            num_states, batch, units = self._checked_shape(
                "input_c", self._c, (num_states, batch, units), (states, "num_units")
            )
            width = width or (None if num_proj else units)
            state_shapes = [
                self._in_call_order(num_states, batch, last) for last in (num_proj or width, units)
            ]
        is_bidirectional = self._config.direction == CUDNN_RNN_BIDIRECTION
        output_width = None if width is None else width * (2 if is_bidirectional else 1)
        return self._in_call_order(time, batch, output_width), state_shapes

    def _checked_shape(self, argument, tensor, expected, names, exchanged=None):
        """Checks the static shape of a tensor of rank 3.

        Args:
          argument: name of the argument.
          tensor: the tensor.
          expected: time-major sizes (first, batch, last), each an int or None.
          names: names of the first and the last size, for errors.
          exchanged: the input's name and number of steps, for the advice to exchange time and batch
            if the tensor then fits.

        Returns:
          `expected`, with the tensor's static sizes in place of None.
        """
        meaning = "[%s, %s, %s]" % tuple(self._in_call_order(names[0], "batch", names[1]))
        try:
            check_shape(argument, tensor, self._in_call_order(*expected), meaning)
        except ValueError as error:
            raise ValueError("%s%s" % (error, self._advice(tensor, expected, exchanged))) from None
        found = tensor.shape.with_rank(3).as_list()
        return [
            size if known is None else known
            for known, size in zip(expected, self._in_call_order(*found))
        ]

    def _advice(self, tensor, expected, exchanged):
        """Returns the advice of `_checked_shape`, or an empty string."""
        name, steps = exchanged or (None, None)
        if steps is None:
            return ""
        shape = self._in_call_order(expected[0], steps, expected[2])
        if not tensor.shape.is_compatible_with(shape):
            return ""
        advice = " It fits if time and batch of %s are exchanged: pass tf.transpose(%s, [1, 0, 2])."
        return advice % (name, name)

    def _checked_lengths(self, lengths, output_shape):
        """Returns the sequence lengths as an int32 tensor, or None for None."""
        if lengths is None:
            return None
        expected = "sequence_lengths must be integers of shape [batch], or None for full length"
        try:
            refuse("sequence_lengths", lengths)
            lengths = tf.convert_to_tensor(lengths)
        except (TypeError, ValueError) as error:
            raise TypeError("%s. %s" % (expected, error))
        if not lengths.dtype.base_dtype.is_integer:
            raise TypeError("%s, but is of dtype %s." % (expected, lengths.dtype.base_dtype.name))
        batch = output_shape[1] if self._time_major else output_shape[0]
        check_shape("sequence_lengths", lengths, [batch], "[batch]")
        return tf.cast(lengths, tf.int32)

    def _build(self, is_training):
        """Builds the node, or two nodes if only a run can tell whether dropout applies."""
        config = self._config
        training = static_bool(self._training_name, is_training)
        if training is not None:
            return self._node(config, training)
        # Without dropout, a training node gives the results of inference and has a gradient.
        without_dropout = config._replace(dropout=0.0)
        if config.dropout == 0 or config.num_layers == 1:
            return self._node(without_dropout, True)
        num_results = 3 if self._is_lstm else 2
        results = tf.cond(
            is_training,
            lambda: list(self._node(config, True)[:num_results]),
            lambda: list(self._node(without_dropout, True)[:num_results]),
        )
        return tuple(results) if self._is_lstm else tuple(results) + (self._c,)

    def _node(self, config, training):
        return nodes.rnn(
            config,
            self._input,
            self._h,
            self._c,
            self._params,
            is_training=training,
            sequence_lengths=self._lengths,
            time_major=self._time_major,
            name=self._name,
        )


def _checked_time_major(time_major):
    known = static_bool("time_major", time_major)
    if known is None:
        raise TypeError(
            "time_major must be a bool that is known when the graph is built, but is %r. Pass True "
            "or False." % (time_major,)
        )
    return known
