"""Calls of an RNN: checks the arguments, in the form of any release, and builds the node."""

from cudnn_rnn._compat import tf
from cudnn_rnn.graph import call_shapes, model_sizes, nodes
from cudnn_rnn.graph.arguments import (
    as_tensors,
    check_shape,
    checked_params,
    is_python_bool,
    static_bool,
)
from cudnn_rnn.graph.call_shapes import UNKNOWN_SIZES
from cudnn_rnn.graph.refusals import refuse
from cudnn_rnn.model.spec import CUDNN_LSTM


def lengths_and_training(sequence_lengths, is_training, training_name="is_training"):
    """Returns (sequence_lengths, is_training), accepting `is_training` as the first argument.

    Up to TensorFlow 1.13 `is_training` had the position that `sequence_lengths` has since 1.14. So
    a bool, 0, 1 or a bool tensor there means `is_training`. (Lengths are a vector.)

    Raises:
      TypeError: `is_training` is also given, with another value.
    """
    if sequence_lengths is None:
        return None, is_training
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
    if tf.executing_eagerly() and shapes[0] == shapes[-1]:  # A graph has a node for each state.
        return (tf.zeros(shapes[0], dtype),) * len(shapes)
    return tuple(tf.zeros(shape, dtype) for shape in shapes)


def run(
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

    Returns:
      `(output, output_h, output_c)`; `output_c` is meaningful only for an LSTM.

    Raises:
      TypeError: an argument has the wrong type or dtype.
      ValueError: the static shape of an argument does not match.
    """
    time_major = _checked_time_major(time_major)
    is_lstm = config.rnn_mode == CUDNN_LSTM
    input_data, input_h, input_c, params = tensors
    values = [(input_name, input_data), ("input_h", input_h), ("params", params)]
    if is_lstm:
        values.append(("input_c", input_c))
    if any(value is None for _, value in values[1:]):
        call_shapes.refuse_missing(config, values, sizes, time_major)
    input_data, input_h, params, *cells = as_tensors(values, dtype, default_dtype)
    data = (input_data, input_h, cells[0] if is_lstm else tf.constant([], dtype=params.dtype))
    output_shape, state_shapes = call_shapes.result_shapes(
        config, data, sizes, time_major, input_name
    )
    input_data, input_h, input_c = call_shapes.ensured(config, data, sizes, time_major)
    needed = sizes.params_size
    if needed is None:
        needed = model_sizes.needed_params(config, data, time_major)
    params = checked_params(params, needed)
    batch = output_shape[1 if time_major else 0]
    lengths = _checked_lengths(sequence_lengths, batch)
    training = static_bool(training_name, is_training)
    options = dict(sequence_lengths=lengths, time_major=time_major, name=name)

    def node(config, training):
        tensors = (input_data, input_h, input_c, params)
        return nodes.rnn(config, *tensors, **options, is_training=training)

    if training is None:
        results = (*_chosen_at_run_time(config, node, is_training), input_c)[:3]
    else:
        results = node(config, training)
    if not tf.executing_eagerly():
        for result, shape in zip(results, [output_shape] + state_shapes):
            result.set_shape(shape)
    return results


def _checked_lengths(lengths, batch):
    """Returns the sequence lengths as an int32 tensor, or None for None; `batch` may be None."""
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
    check_shape("sequence_lengths", lengths, [batch], "[batch]")
    return tf.cast(lengths, tf.int32)


def _chosen_at_run_time(config, node, is_training):
    """Builds a call whose `is_training` is a tensor; returns the results of `run`.

    The results may lack `output_c` unless the RNN is an LSTM. `node` is a function that builds the
    node from a config and a bool.
    """
    # Without dropout, a training node gives the results of inference and has a gradient.
    without_dropout = config._replace(dropout=0.0)
    if config.dropout == 0 or config.num_layers == 1:
        return node(without_dropout, True)
    num_results = 3 if config.rnn_mode == CUDNN_LSTM else 2
    results = tf.cond(
        is_training,
        lambda: list(node(config, True)[:num_results]),
        lambda: list(node(without_dropout, True)[:num_results]),
    )
    return tuple(results)


def _checked_time_major(time_major):
    known = static_bool("time_major", time_major)
    if known is None:
        raise TypeError(
            "time_major must be a bool that is known when the graph is built, but is %r. Pass True "
            "or False." % (time_major,)
        )
    return known
