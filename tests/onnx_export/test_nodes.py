"""ONNX Runtime computes what the reference does, with an exported node LSTM, GRU or RNN a layer."""

import itertools

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from helpers import sequence_cases
from helpers.cases import CASES, COLUMNS, make_arrays
from helpers.networks import every_mode
from helpers.onnx_models import export_and_run, needs_tf2onnx, operators, rnn_graph
from helpers.op_harness import FORWARD, TOLERANCES, assert_close, run_reference, swap_major
from helpers.sequence_cases import GRU, LENGTHS, LSTM, PROJECTED, SKIP
from helpers.versions import needs_tensorflow_2

pytestmark = [pytest.mark.ci, needs_tensorflow_2, needs_tf2onnx]

OPERATORS = {"lstm": "LSTM", "gru": "GRU", "rnn_relu": "RNN", "rnn_tanh": "RNN"}
SINGLE_CASES = [case for case in CASES if case.dtype != "float64"]
SEQUENCES = list(
    itertools.product(
        [model for model in sequence_cases.configurations() if not model.num_proj] + [SKIP],
        LENGTHS,
        (True, False),
    )
)


def forward_of(results):
    return {name: value for name, value in results.items() if name in FORWARD}


def check(tmp_path, configuration, arrays, expected, **options):
    """Exports, runs and compares; there must be one node for each layer and no loop."""
    done, found, model = export_and_run(tmp_path, configuration, arrays, **options)
    tolerance = TOLERANCES[str(arrays["input"].dtype)]
    assert_close(found, forward_of(expected), tolerance, (configuration, options))
    assert done.nodes == configuration.num_layers and done.loops == []
    assert operators(model).count(OPERATORS[configuration.rnn_mode]) == configuration.num_layers
    assert not {"Loop", "Scan"} & set(operators(model))
    return model


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", SINGLE_CASES, ids=str)
def test_models(tmp_path, case):
    """The table of the ops' tests, with parameters in the graph."""
    arrays = make_arrays(case)
    expected = run_reference(case.configuration, arrays)
    check(tmp_path, case.configuration, arrays, expected)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", SINGLE_CASES, ids=str)
def test_parameters_that_are_an_input(tmp_path, case):
    """The graph has the permutation; a first layer that skips its weights has an identity."""
    arrays = make_arrays(case)
    expected = run_reference(case.configuration, arrays)
    check(tmp_path, case.configuration, arrays, expected, has_constant_params=False)


@pytest.mark.parametrize("has_constant_params", [True, False])
def test_more_parameters_than_the_model_has(tmp_path, has_constant_params):
    arrays = sequence_cases.arrays_for(GRU, LENGTHS["full"], "float32")
    expected = sequence_cases.expected_for(GRU, arrays)
    del arrays["sequence_lengths"]
    params = np.append(arrays["params"], np.full(3, np.nan, np.float32))
    options = dict(has_constant_params=has_constant_params)
    check(tmp_path, GRU, dict(arrays, params=params), expected, **options)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("configuration, lengths, time_major", SEQUENCES)
def test_sequence_lengths(tmp_path, configuration, lengths, time_major):
    """Lengths of all kinds, 0 too; nothing beyond them is read."""
    arrays = sequence_cases.arrays_for(configuration, LENGTHS[lengths], "float32")
    expected = sequence_cases.expected_for(configuration, arrays)
    if not time_major:
        arrays, expected = swap_major(arrays), swap_major(expected)
    options = dict(version=3, time_major=time_major, is_training=False)
    check(tmp_path, configuration, arrays, expected, **options)


@pytest.mark.parametrize("time_major", [True, False])
@pytest.mark.parametrize("version", [2, 3])
@every_mode
def test_versions_of_the_op(tmp_path, rnn_mode, version, time_major):
    """V2, and V3 with all steps of all sequences, in training without dropout as in Keras 3."""
    configuration = LSTM._replace(rnn_mode=rnn_mode)
    arrays = sequence_cases.arrays_for(configuration, LENGTHS["full"], "float32")
    expected = sequence_cases.expected_for(configuration, arrays)
    del arrays["sequence_lengths"]
    options = dict(version=version, is_training=True)
    if version == 3:
        options["time_major"] = time_major
        if not time_major:
            arrays, expected = swap_major(arrays), swap_major(expected)
    check(tmp_path, configuration, arrays, expected, **options)


def test_dropout_without_effect(tmp_path):
    """In inference, or with one layer, there is none: a node can say it."""
    for configuration, is_training in ((LSTM, False), (LSTM._replace(num_layers=1), True)):
        arrays = sequence_cases.arrays_for(configuration, LENGTHS["full"], "float32")
        expected = sequence_cases.expected_for(configuration, arrays)
        del arrays["sequence_lengths"]
        options = dict(dropout=0.5, seed=1, is_training=is_training)
        check(tmp_path, configuration, arrays, expected, **options)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "configuration, dtype, reason",
    [
        (PROJECTED, "float32", "ONNX's LSTM has no projection (num_proj is 3)"),
        (LSTM, "float64", "ONNX Runtime's LSTM, GRU and RNN do not take float64"),
        (GRU, "float64", "ONNX Runtime's LSTM, GRU and RNN do not take float64"),
    ],
)
def test_what_becomes_a_loop(tmp_path, configuration, dtype, reason):
    arrays = sequence_cases.arrays_for(configuration, LENGTHS["mixed"], dtype)
    expected = sequence_cases.expected_for(configuration, arrays)
    options = dict(version=3, is_training=False)
    done, found, model = export_and_run(tmp_path, configuration, arrays, **options)
    assert_close(found, forward_of(expected), TOLERANCES[dtype], configuration)
    assert done.nodes == 0 and "Loop" in operators(model)
    assert done.loops == ["The node 'CudnnRNNV3' (CudnnRNNV3) becomes a loop: %s." % reason]


def test_a_loop_beside_nodes_with_names_as_in_its_body(tmp_path):
    arrays = sequence_cases.arrays_for(PROJECTED, LENGTHS["mixed"], "float32")
    with tf.Graph().as_default() as graph:
        rnn_graph(PROJECTED, arrays, version=3, is_training=False)
        changed = (graph.get_tensor_by_name("output:0") + 1.0) * 2.0
        assert [changed.op.name, changed.op.inputs[0].op.name] == ["mul", "add"]
        (tmp_path / "rnn.pb").write_bytes(graph.as_graph_def().SerializeToString())
    named = dict(outputs=["mul"], sample=arrays)
    done = cudnn_rnn.export_onnx(tmp_path / "rnn.pb", tmp_path / "rnn.onnx", **named)
    assert len(done.loops) == 1 and done.largest_difference < 1e-5


@pytest.mark.sampled(4)
def test_dropout_in_training_becomes_a_loop(tmp_path):
    """Its masks are drawn again in each run."""
    configuration = LSTM._replace(num_units=50)
    arrays = sequence_cases.arrays_for(configuration, LENGTHS["full"], "float32")
    del arrays["sequence_lengths"]
    options = dict(dropout=0.5, is_training=True)
    done, found, _ = export_and_run(tmp_path, configuration, arrays, **options)
    assert "ONNX's nodes have no dropout (is_training is True, dropout 0.5)" in done.loops[0]
    plain, without, _ = export_and_run(tmp_path, configuration, arrays, is_training=True)
    assert plain.nodes == 2
    assert np.isfinite(found["output"]).all()
    # The first layer has no dropout before it: only the second layer's states differ.
    assert_close({"h": found["output_h"][:2]}, {"h": without["output_h"][:2]}, 1e-5, "layer 0")
    assert np.abs(found["output_h"][2:] - without["output_h"][2:]).max() > 0.01


def test_the_comparison_detects_errors(tmp_path):
    """With other parameters, the results are not those of the reference."""
    for rnn_mode in COLUMNS["rnn_mode"]:
        configuration = LSTM._replace(rnn_mode=rnn_mode)
        arrays = sequence_cases.arrays_for(configuration, LENGTHS["full"], "float32")
        expected = sequence_cases.expected_for(configuration, arrays)
        arrays["params"] *= np.float32(1.01)
        with pytest.raises(AssertionError, match="relative error"):
            check(tmp_path, configuration, arrays, expected, version=3, is_training=False)
