"""Makes an `RnnConfig` of what programs pass: tensors as sizes, dtypes of TensorFlow, seeds."""

import warnings

from cudnn_rnn._compat import allowed_dtypes, has_projection, tf
from cudnn_rnn.graph.static_sizes import static_size
from cudnn_rnn.model import spec
from cudnn_rnn.model.spec import RnnConfig

# Dtypes of tensors and variables; bfloat16 only if the ops of this TensorFlow allow it.
DTYPES = tuple(
    dtype
    for dtype in (tf.float16, tf.float32, tf.float64, tf.bfloat16)
    if dtype in allowed_dtypes("CudnnRNN", "T")
)
DTYPE_NAMES = "%s or %s" % (", ".join(dtype.name for dtype in DTYPES[:-1]), DTYPES[-1].name)


def rnn_config(
    rnn_mode,
    num_layers,
    num_units,
    input_size,
    input_mode,
    direction,
    dtype,
    dropout,
    seed,
    num_proj=None,
    seed2=None,
    float32_matmul_precision=None,
):
    """Returns a config of these values; raises `ValueError` or `TypeError` for invalid ones.

    Sizes are as in `checked_size`, seeds as in `op_seeds`, and `dtype` is one of `DTYPES`.
    """
    config = RnnConfig.checked(
        rnn_mode,
        _static("num_layers", num_layers),
        _static("num_units", num_units),
        _static("input_size", input_size),
        input_mode,
        direction,
        checked_dtype(dtype).name,
        dropout,
        num_proj=_static("num_proj", num_proj),
        float32_matmul_precision=float32_matmul_precision,
    )
    checked_projection(config.rnn_mode, config.num_units, config.num_proj)
    seed, seed2 = op_seeds(seed, seed2)
    return config._replace(seed=seed, seed2=seed2)


def dtype_of(config):
    """Returns the dtype of a config as TensorFlow's."""
    return tf.as_dtype(config.dtype)


def op_seeds(seed, seed2=None):
    """Returns the attributes (seed, seed2) of an op.

    `seed` is an int or None. As in TensorFlow's own random ops, the pair derives from `seed` and
    `tf.set_random_seed`; if neither is set, it is (0, 0), which lets the op choose. If `seed2` is
    an int, both are passed to the op unchanged.
    """
    seed = checked_seed("seed", seed)
    seed2 = checked_seed("seed2", seed2)
    if seed2 is None:
        seed, seed2 = tf.random.get_seed(seed)
    return seed or 0, seed2 or 0


def checked_projection(rnn_mode, num_units, num_proj):
    """Returns `num_proj` as `spec.checked_projection` does; `ValueError` if the ops have none."""
    num_proj = spec.checked_projection(rnn_mode, num_units, _static("num_proj", num_proj))
    if num_proj and not has_projection():
        raise ValueError(
            "num_proj is %d, but the ops of TensorFlow %s have no projection: use num_proj=None, "
            "or TensorFlow 1.15 or newer." % (num_proj, tf.__version__)
        )
    return num_proj


def checked_dtype(dtype, name="dtype"):
    """Returns `dtype` as one of `DTYPES`; raises `ValueError`, about the argument `name`."""
    try:
        checked = tf.as_dtype(dtype).base_dtype
    except TypeError:
        checked = None
    if checked not in DTYPES:
        raise ValueError(
            "%s must be %s, but is %r.%s" % (name, DTYPE_NAMES, dtype, dtype_hint(checked))
        )
    return checked


def dtype_hint(dtype):
    """Returns the last sentence of an error about this dtype, or an empty string."""
    if dtype == tf.bfloat16:
        return (
            " The RNN ops of TensorFlow %s do not support bfloat16; use TensorFlow 2.13 or newer."
            % tf.__version__
        )
    return ""


def checked_size(name, value):
    """Returns a size, such as `num_units`, as an int; raises errors about the argument `name`.

    `value` is an integer from 1 to 2**31 - 1, or a scalar integer tensor whose value follows from
    static shapes.
    """
    return spec.checked_size(name, _static(name, value))


def _static(name, value):
    """Returns a size as it is, of a tensor its int value."""
    if isinstance(value, int) or not tf.is_tensor(value):
        return value
    return _value_of_tensor(name, value)


def _value_of_tensor(name, tensor):
    """Returns the int value of a scalar tensor, which must follow from static shapes."""
    if tensor.shape.rank not in (0, None):
        # Ends with TensorFlow's wording, because programs search the message for it.
        raise ValueError(
            "%s must be a positive integer, but is %s: Shape must be rank 0 but is rank %d."
            % (name, tensor, tensor.shape.rank)
        )
    value = static_size(tensor) if tensor.dtype.is_integer else None
    if value is None:
        raise TypeError(
            "%s must be a positive integer that is known when the graph is built, but is %s. Pass "
            "an int, or set the static shape of the tensor it was computed from with set_shape."
            % (name, tensor)
        )
    return value


def warn_about_dropout(rnn, dropout):
    """Warns, from the constructor of a layer or an op-level object, of dropout without effect."""
    if dropout > 0 and rnn.num_layers == 1:
        warnings.warn(
            "dropout=%r has no effect in a %s of one layer: it applies to the input of every "
            "layer except the first. Use tf.nn.dropout on the input or the output."
            % (dropout, type(rnn).__name__),
            stacklevel=3,
        )


def checked_seed(name, seed):
    """Returns a seed as an int or None; raises `TypeError` for anything else."""
    if seed is None:
        return None
    if not spec.is_integer(seed):
        raise TypeError(
            "%s must be an integer or None, but is %r of type %s."
            % (name, seed, type(seed).__name__)
        )
    return int(seed)
