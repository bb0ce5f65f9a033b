"""Programs whose graph TensorFlow's optimizer rewrites to half on a GPU (auto_mixed_precision).

It may choose half for a forward node and float for its gradient, and then puts a cast between
them, which would destroy the reserve space: the results must be right, or the gradient must refuse.
"""

import pytest
import tensorflow.compat.v1 as tf
from op_placement import growing_config, make_network

from helpers.op_harness import TOLERANCES, assert_close
from helpers.sequence_cases import LENGTHS, LSTM, arrays_for, expected_for

PREFIX = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE"
VERSIONS = ("", "V2", "V3")
# Ops that the optimizer may be told to compute in half.
PARTS_OF = {
    "forward": ["CudnnRNN" + version for version in VERSIONS],
    "gradient": ["CudnnRNNBackprop" + version for version in VERSIONS],
}


def rewriting_config():
    """Returns a configuration that rewrites graphs to half, also where that is not faster."""
    config = growing_config()
    options = config.graph_options.rewrite_options
    options.auto_mixed_precision = type(options).ON
    options.min_graph_nodes = -1
    return config


def run_rewritten(network, arrays):
    """Returns the results, and the pairs of op and dtype of the RNN nodes that ran."""
    metadata, names = tf.RunMetadata(), list(network.fetches)
    feeds = {
        placeholder: arrays[name]
        for name, placeholder in network.placeholders.items()
        if name in arrays
    }
    options = tf.RunOptions(output_partition_graphs=True)
    # The optimizer leaves fetched nodes as they are.
    with network.session.graph.as_default(), tf.device("/cpu:0"):
        fetches = [tf.identity(network.fetches[name]) for name in names]
    values = network.session.run(fetches, feeds, options=options, run_metadata=metadata)
    nodes = [node for graph in metadata.partition_graphs for node in graph.node]
    ran = {
        (node.op, tf.as_dtype(node.attr["T"].type).name)
        for node in nodes
        if node.op.startswith("CudnnRNN")
    }
    return dict(zip(names, values)), ran


@pytest.mark.gpu_only
@pytest.mark.parametrize("rewritten", ["TensorFlow chooses", "forward", "forward and gradient"])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_auto_mixed_precision(op_device, version, rewritten, monkeypatch, record_property):
    chosen = [op for part, ops in PARTS_OF.items() if part in rewritten for op in ops]
    monkeypatch.setenv(PREFIX + "_ALLOWLIST_ADD", ",".join(chosen))
    monkeypatch.setenv(PREFIX + "_IGNORE_PERFORMANCE", "1")
    arrays = arrays_for(LSTM, LENGTHS["full"], "float32")
    options = dict(version=version, config=rewriting_config())
    with make_network(LSTM, "float32", op_device, **options) as network:
        try:
            found, ran = run_rewritten(network, arrays)
        except tf.errors.InvalidArgumentError as error:
            record_property("refused", error.message.splitlines()[0])
            assert "reserve_space" in error.message, error
            return
    record_property("ran", sorted(ran))
    dtypes = {dtype for _, dtype in ran}
    assert dtypes == {"float16"} if chosen else len(dtypes) == 1, ran
    tolerance = {"float32": TOLERANCES["float32"], "float16": 4 * TOLERANCES["float16"]}
    assert_close(found, expected_for(LSTM, arrays), tolerance[dtypes.pop()], str(ran))
