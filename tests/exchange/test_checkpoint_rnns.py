"""Checkpoints that only resemble those of an RNN, and RNNs that make no checkpoint."""

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import exchange
from cudnn_rnn.exchange import Contents, checkpoint_format
from helpers.exchange_models import assert_same, random_rnn
from helpers.versions import needs_tensorflow_2

pytestmark = pytest.mark.ci

CELL = "model/rnn/multi_rnn_cell/cell_%d/cudnn_compatible_lstm_cell/"
CANONICAL = "CudnnRNNParamsToCanonical:"


def without(*parts):
    """Returns a function that drops the keys with one of these parts."""

    def change(arrays):
        return {key: arrays[key] for key in arrays if not any(part in key for part in parts)}

    return change


def with_each(convert, part=""):
    """Returns a function that converts the arrays whose keys have this part."""

    def change(arrays):
        return {key: convert(arrays[key]) if part in key else arrays[key] for key in arrays}

    return change


@pytest.mark.parametrize(
    "rnn_mode, target, change, message",
    [
        (
            "gru",
            "cells",
            without("candidate/hidden"),
            "The cells model lack the variables ['candidate/hidden_projection/kernel', "
            "'candidate/hidden_projection/bias'].",
        ),
        (
            "lstm",
            "1.3",
            without("bias_cudnn_0"),
            "The cells model lack the variables ['bias_cudnn_0'].",
        ),
        (
            "lstm",
            "cells",
            without("kernel"),
            "The cells model lack a kernel or a bias: ['bias'].",
        ),
        (
            "rnn_tanh",
            "cells",
            without("bias"),
            "The cells model lack a kernel or a bias: ['kernel'].",
        ),
        (
            "lstm",
            "cells",
            with_each(lambda array: array[None], "kernel"),
            "The cells model lack a kernel or a bias: ['bias', 'kernel'].",
        ),
        (
            "lstm",
            "cells",
            with_each(lambda array: array[None], "bias"),
            "The cells model lack a kernel or a bias: ['bias', 'kernel'].",
        ),
        (
            "lstm",
            "cells",
            with_each(np.transpose, "cell_1"),
            "The tensors of the RNN 'model' do not fit together:\n  %skernel: has shape [20, 10]; "
            "expected [10, 20]" % (CELL % 1),
        ),
        (
            "gru",
            "1.1",
            without(CANONICAL + "7"),
            "Some of the tensors CudnnRNNParamsToCanonical:<i> are missing.",
        ),
        (
            "rnn_tanh",
            "1.1",
            with_each(lambda array: array[:0], CANONICAL + "11"),
            "12 tensors with [20, 25, 25, 25, 25, 25, 5, 5, 5, 5, 5, 0] elements, are those of no "
            "RNN.",
        ),
        (
            "rnn_tanh",
            "1.1",
            with_each(np.int32),
            "CudnnRNNParamsToCanonical:<i> have the dtypes int32; expected one of float16, float32",
        ),
        (
            "rnn_tanh",
            "1.1",
            with_each(np.float64, CANONICAL + "7"),
            "CudnnRNNParamsToCanonical:<i> have the dtypes float32, float64; expected one of",
        ),
        (
            "lstm",
            "cells",
            with_each(np.float64, CELL % 1 + "bias"),
            "The cells model have the dtypes float32, float64; expected one of float16, float32",
        ),
        (
            "gru",
            "cells",
            with_each(np.int64),
            "The cells model have the dtypes int64; expected one of float16, float32",
        ),
        (
            "lstm",
            "cells",
            with_each(lambda array: array[..., 0, 0], "cell_2/cudnn_compatible_lstm_cell/kernel"),
            "The cells model with shapes",
        ),
        (
            "lstm",
            "cells",
            with_each(lambda array: array[..., :0]),
            "The cells model with shapes",
        ),
    ],
)
def test_tensors_of_no_rnn(tmp_path, rnn_mode, target, change, message):
    arrays = checkpoint_format.plan([random_rnn(rnn_mode, 3, scope="model")], target).arrays
    checkpoint_format.save(str(tmp_path / "model"), change(arrays))
    with pytest.raises(exchange.ExchangeError) as caught:
        exchange.read(tmp_path / "model", rnn_mode=rnn_mode)
    assert message in str(caught.value)


@pytest.mark.once
@pytest.mark.parametrize("last_bias", [lambda bias: bias + 1e-4, lambda bias: np.nan])
def test_an_opaque_vector_with_other_biases(tmp_path, last_bias):
    """Its matrices are those of the cells, but the sums of its biases are not."""
    rnn = random_rnn("lstm", scope="model", equal_biases=True)
    arrays = checkpoint_format.plan([rnn], "1.15").arrays
    opaque = arrays["model/opaque_kernel"].copy()
    opaque[-1] = last_bias(opaque[-1])
    checkpoint_format.save(str(tmp_path / "model"), dict(arrays, **{"model/opaque_kernel": opaque}))
    contents = exchange.read(tmp_path / "model")
    assert contents.variables == {} and contents.others == ["model/opaque_kernel"]
    assert "model/opaque_kernel has the size of the opaque vector" in contents.notes[0]
    assert_same(contents.rnns[0], rnn)


def test_an_unknown_target():
    expected = r"target must be one of \['1.1', '1.15', .*'cells'\], but is '1.2'"
    with pytest.raises(exchange.ExchangeError, match=expected):
        checkpoint_format.plan([random_rnn("lstm")], "1.2")


@pytest.mark.parametrize("target", ["cells", "1.3", "1.4", "1.15"])
def test_two_rnns_of_one_scope_are_refused(target):
    rnns = [random_rnn("lstm", scope="model", seed=seed) for seed in range(2)]
    with pytest.raises(exchange.ExchangeError) as caught:
        checkpoint_format.plan(rnns, target)
    expected = "Two tensors would have the key %skernel; one is of the RNN 'model'." % (CELL % 0)
    assert expected in str(caught.value)


def test_the_powers_of_adam_are_left_out_with_its_slots():
    rnn = random_rnn("gru")
    slots = {"": {("", "Adam"): rnn.to_opaque(), ("", "Adam_1"): rnn.to_opaque()}}
    powers = {"beta2_power": np.float32(0.99), "beta1_power": np.float32(0.9)}
    source = Contents("", "", [rnn], slots=slots, optimizer=powers)
    planned = checkpoint_format.plan(source, "1.4")
    assert not set(powers) & set(planned.arrays)
    assert "Left out: the slots ['Adam', 'Adam_1'] of the RNN, because" in planned.notes[0]
    assert planned.notes[1:] == ["Left out with the slots: beta1_power, beta2_power."]
    planned = checkpoint_format.plan(source, "1.4", variable="kernel")
    assert planned.notes == [] and set(powers) < set(planned.arrays)
    np.testing.assert_array_equal(planned.arrays["kernel/Adam_1"], rnn.to_opaque())


@needs_tensorflow_2
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_vector_in_a_saved_model_of_tensorflow_2(tmp_path, dtype):
    """Its nodes are in functions and do not tell which variable is the vector: a note does."""
    rnn, path = random_rnn("gru", 1, 4, 3), tmp_path / "exported"
    with tensorflow.init_scope():
        model, module = cudnn_rnn.CudnnGRU(1, 4, 3, dtype=getattr(tf, dtype)), tensorflow.Module()
        module.params = tensorflow.Variable(tf.cast(rnn.to_opaque(), dtype))
        module.matrix = tensorflow.Variable(tf.zeros([2, 3]))

        @tensorflow.function(input_signature=[tensorflow.TensorSpec([None, 2, 3], dtype)])
        def call(inputs):
            return model(inputs, tf.zeros([1, 2, 4], dtype), module.params, is_training=False)

        module.call = call
        tensorflow.saved_model.save(module, str(path))
    contents = exchange.read(path)
    assert contents.rnns == [] and len(contents.notes) == 1
    assert "has RNNs (gru), and no RNN was found by the names of variables" in contents.notes[0]
    assert "may be the opaque vector of one: params, [108]. Give rnn_mode" in contents.notes[0]
    with pytest.raises(exchange.ExchangeError, match="has no RNN. .*--rnn-mode, --num-units"):
        exchange.convert(path, tmp_path / "rnn.npz", "npz")
    facts = dict(rnn_mode="gru", num_units=4, num_layers=1, direction="unidirectional")
    if dtype == "float32":
        assert_same(exchange.read(path, **facts).rnns[0], rnn.with_scope("params"))
    else:
        with pytest.raises(exchange.ExchangeError, match="dtypes bfloat16; expected one of"):
            exchange.read(path, **facts)
    assert "None is that of an RNN with" in exchange.read(path, **dict(facts, num_units=5)).notes[0]
