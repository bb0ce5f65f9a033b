"""A new Saver of an imported graph saves and restores what the program's own Saver did."""

import importlib
import os
import warnings

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import meta_graph as meta_graph_module

import cudnn_rnn
from cudnn_rnn import _patches, layers
from cudnn_rnn.model import layout
from helpers.checkpoints import assert_all_equal, zeroed_and_restored
from helpers.damaged_checkpoints import DAMAGES, with_value
from helpers.golden import read_case, read_checkpoint
from helpers.layer_models import (
    LAYER_COUNT,
    LAYERS,
    SAVEABLES,
    UNITS,
    WIDTH,
    ForgetBiasOne,
    built_layer,
    make_inputs,
    run_cells,
)
from helpers.paths import GOLDEN
from helpers.restoring import KINDS, make, random_values
from helpers.rnn_models import CLASSES, DIRECTIONS, initialize, keys, params_size
from helpers.versions import needs_the_original

SOFT = tf.ConfigProto(allow_soft_placement=True, device_count={"CPU": 2})


def collected():
    return tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS)


def collect(saveable):
    if saveable not in collected():
        tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)


class Written:
    """A checkpoint of the default graph, with its MetaGraph, and the values of the variables."""

    def __init__(self, tmp_path, **named):
        with tf.Session(config=SOFT) as session:
            initialize(session)
            for number, variable in enumerate(tf.global_variables()):
                session.run(tf.assign(variable, self._values(session, variable, number)))
            self.path = tf.train.Saver(**named).save(session, str(tmp_path / "model"))
            self.values = session.run({v.op.name: v for v in tf.global_variables()})
        self.tensors = read_checkpoint(self.path)

    @staticmethod
    def _values(session, variable, number):
        shape = session.run(variable).shape
        return random_values(np.prod(shape, dtype=int), number).reshape(shape)

    def imported(self, scope=None, **named):
        """Imports the graph into the default one without a warning; returns its Saver."""
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            warnings.simplefilter("error", RuntimeWarning)
            return tf.train.import_meta_graph(self.path + ".meta", import_scope=scope, **named)

    def check(self, tmp_path, scope=None, **named):
        """Checks that a new Saver of the imported graph writes and restores the same."""
        prefix = scope + "/" if scope else ""
        variables = {name: variable_of(prefix + name) for name in self.values}
        with tf.Session(config=SOFT) as session:
            new = tf.train.Saver(**named)
            # The original's variables have no static shape.
            session.run(
                [
                    tf.assign(variables[name], value, validate_shape=False)
                    for name, value in self.values.items()
                ]
            )
            path = new.save(session, str(tmp_path / "new"))
            written = {prefix + key: value for key, value in self.tensors.items()}
            assert_all_equal(read_checkpoint(path), written)
            found = zeroed_and_restored(session, new, path, list(variables.values()))
            assert_all_equal(found, list(self.values.values()))
            # The saveables alone: as the tensors of cells are again.
            tensors = [spec.tensor for saveable in collected() for spec in saveable.specs]
            expected = session.run(tensors)
            alone = tf.train.Saver(collected())
            zeroed_and_restored(session, alone, path, list(variables.values()))
            for left, right in zip(session.run(tensors), expected):
                np.testing.assert_allclose(left, right, rtol=1e-6)
        return path


def variable_of(name):
    (variable,) = [one for one in tf.global_variables() if one.op.name == name]
    return variable


OPTIONS = {
    "plain": (dict(), dict(), dict()),
    "scope": (dict(), dict(scope="imported"), dict()),
    "inner_scope": (dict(), dict(scope="a/b", clear_devices=True), dict(sharded=True)),
    "sharded": (dict(sharded=True), dict(clear_devices=True), dict()),
    "sequential": (dict(restore_sequentially=True), dict(scope="again"), dict()),
    "new_sequential": (dict(), dict(), dict(restore_sequentially=True)),
}


@pytest.mark.sampled(32)
@pytest.mark.parametrize("options", sorted(OPTIONS))
@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rnn_mode", sorted(LAYERS))
def test_layers(tmp_path, rnn_mode, direction, use_resource, options):
    """Two layers of the mode and one of another."""
    saver, importing, new = OPTIONS[options]
    with tf.Graph().as_default(), tf.variable_scope("model", use_resource=use_resource):
        inputs = tf.placeholder(tf.float32, [None, 2, WIDTH], "inputs")
        for mode, count in [(rnn_mode, LAYER_COUNT), (rnn_mode, 1), ("gru", 1)]:
            LAYERS[mode](count, UNITS, direction=direction)(inputs)
        tf.get_variable("bystander", initializer=np.float32([1, 2, 3]))
        with tf.device("/cpu:1" if "sharded" in saver else None):
            built_layer("lstm", 1, direction=direction, name="elsewhere")
        written = Written(tmp_path, **saver)
    with tf.Graph().as_default():
        written.imported(**importing)
        written.check(tmp_path, importing.get("scope"), **new)
        names = [saveable.name for saveable in collected()]
        assert len(names) == len(set(names)) == 4


@pytest.mark.sampled(8)
@pytest.mark.parametrize("scope", [None, "imported"])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_saveables_of_all_releases(tmp_path, kind, scope):
    with tf.Graph().as_default():
        for name in "first", "second":
            collect(make(kind, scope=name)[0])
        written = Written(tmp_path)
    with tf.Graph().as_default():
        written.imported(scope)
        written.check(tmp_path, scope)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("importing", [dict(), dict(scope="a", clear_devices=True)])
@pytest.mark.parametrize("name", ["layer_relu", "layer_v1_lstm", "layer_v2_gru"])
def test_graphs_of_the_original(tmp_path, name, importing):
    """Written by tf.contrib.cudnn_rnn of TensorFlow 1.15.5."""
    folder = os.path.join(GOLDEN, "graphs", name)
    case, _ = read_case(folder)
    written = Written.__new__(Written)
    written.path = os.path.join(folder, "model")
    written.tensors = read_checkpoint(written.path)
    written.values = {"encoder/opaque_kernel": written.tensors["encoder/opaque_kernel"]}
    scope = importing.get("scope")
    with tf.Graph().as_default():
        written.imported(**importing)
        path = written.check(tmp_path, scope, sharded=scope is None)
        (saveable,) = collected()
        assert saveable.name == (scope + "/" if scope else "") + "encoder/opaque_kernel_saveable"
    # Cells read the checkpoint of the new Saver, and it names the checkpoint's errors.
    with tf.Graph().as_default(), tf.Session() as session:
        prefix = os.path.commonprefix(keys(saveable)).split("rnn/multi_rnn_cell")[0]
        prefix = prefix.split("stack_bidirectional_rnn")[0].rstrip("/")
        with tf.variable_scope(prefix):
            is_bidirectional = case["direction"] == "bidirectional"
            inputs = tf.constant(make_inputs(width=case["input_size"]))
            run_cells(case["rnn_mode"], case["num_layers"], 4, is_bidirectional, inputs)
        tf.train.Saver().restore(session, path)


@needs_the_original
@pytest.mark.sampled(16)
@pytest.mark.parametrize("scope", [None, "imported"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rnn_mode", sorted(LAYERS))
def test_layers_of_the_original(tmp_path, rnn_mode, direction, scope):
    module = importlib.import_module("tensorflow.contrib.cudnn_rnn.python.layers.cudnn_rnn")
    with tf.Graph().as_default():
        inputs = tf.zeros([3, 2, WIDTH])
        for mode in rnn_mode, "gru", rnn_mode:
            name = LAYERS[mode].__name__
            getattr(module, name)(LAYER_COUNT, UNITS, direction=direction)(inputs)
        written = Written(tmp_path)
    with tf.Graph().as_default():
        written.imported(scope)
        written.check(tmp_path, scope)
        assert len(collected()) == 3


def test_a_subclass_with_other_conversions(tmp_path):
    """Order of gates, biases and names are the program's own; the importing program has none."""

    class Saveable(SAVEABLES["lstm"]):
        _format_converter_cls = ForgetBiasOne

        def _tf_canonical_name_prefix(self, layer, is_fwd=True):
            return "my_cell_%d" % layer

    with tf.Graph().as_default():
        layer = LAYERS["lstm"](LAYER_COUNT, UNITS)
        layer._saveable_cls = Saveable
        layer.build([None, None, WIDTH])
        written = Written(tmp_path)
    with tf.Graph().as_default():
        written.imported()
        written.check(tmp_path)


def test_skip_input(tmp_path):
    """The copied ops refuse kernels without the identity, as the saveable did."""
    with tf.Graph().as_default():
        saveable = built_layer("lstm", 1, UNITS, UNITS, input_mode="skip_input").saveable
        written = Written(tmp_path)
    with tf.Graph().as_default(), tf.Session() as session:
        written.imported()
        path = written.check(tmp_path)
        saver = tf.train.Saver(collected())
        with_value(path, keys(saveable)[0], lambda value: 2 * value)
        with pytest.raises(tf.errors.InvalidArgumentError, match="which an RNN with input_mode"):
            saver.restore(session, path)


def test_several_variables_of_one_saveable(tmp_path):
    """A function of the program rebuilds two variables from the same tensors."""
    model = CLASSES["gru"](1, UNITS, WIDTH)
    size = layout.params_size(model.config)

    def both(weights, biases):
        params = model.canonical_to_params(weights, biases)
        return params, tf.reduce_sum(params)

    with tf.Graph().as_default():
        variables = [
            tf.get_variable("params", initializer=random_values(size)),
            tf.get_variable("sum", initializer=0.0),
        ]
        collect(cudnn_rnn.RNNParamsSaveable(model.params_to_canonical, both, variables))
        written = Written(tmp_path)
    with tf.Graph().as_default(), tf.Session() as session:
        written.imported()
        initialize(session)
        tf.train.Saver(collected()).restore(session, written.path)
        expected = written.values["params"]
        np.testing.assert_array_equal(session.run(variable_of("params")), expected)
        np.testing.assert_allclose(session.run(variable_of("sum")), expected.sum(), rtol=1e-4)


def test_only_those_of_the_collection(tmp_path):
    """A saveable that only a certain Saver has is not put into the collection."""
    with tf.Graph().as_default():
        layer = built_layer("lstm", LAYER_COUNT)
        other = make("opaque_gru")[0]
        second = SAVEABLES["lstm"](layer.kernel, LAYER_COUNT, UNITS, WIDTH, scope="exported")
        tf.train.Saver([other, second])
        written = Written(tmp_path)
    with tf.Graph().as_default():
        written.imported()
        written.check(tmp_path)
        assert [keys(saveable) for saveable in collected()] == [keys(layer.saveable)]


def test_two_of_one_variable(tmp_path):
    with tf.Graph().as_default():
        layer = built_layer("lstm", LAYER_COUNT)
        collect(SAVEABLES["lstm"](layer.kernel, LAYER_COUNT, UNITS, WIDTH, scope="exported"))
        expected = [keys(saveable) for saveable in collected()]
        names = [saveable.name for saveable in collected()]
        written = Written(tmp_path)
    with tf.Graph().as_default():
        written.imported()
        written.check(tmp_path)
        assert [keys(saveable) for saveable in collected()] == expected
        assert [saveable.name for saveable in collected()] == names


@pytest.mark.parametrize("same_variable", [False, True])
def test_displaced_ones_stay_displaced(tmp_path, same_variable):
    """A default Saver held only the last one, so nothing tells the keys of the first."""
    with tf.Graph().as_default():
        values = random_values(params_size("gru", 1, UNITS, WIDTH))
        first = tf.get_variable("first", initializer=values)
        second = first if same_variable else tf.get_variable("second", initializer=values)
        for variable in first, second:
            collect(SAVEABLES["gru"](variable, 1, UNITS, WIDTH))
        written = Written(tmp_path)
    with tf.Graph().as_default():
        with pytest.warns(UserWarning, match="the saveable 'cudnn_rnn_saveable', but no"):
            tf.train.import_meta_graph(written.path + ".meta")
        written.check(tmp_path)
        assert len(collected()) == 1


def test_two_savers_of_saveables_with_the_same_keys(tmp_path):
    with tf.Graph().as_default():
        values = random_values(params_size("gru", 1, UNITS, WIDTH))
        for name in "first", "second":
            variable = tf.get_variable(name, initializer=values)
            collect(SAVEABLES["gru"](variable, 1, UNITS, WIDTH))
            tf.train.Saver([collected()[-1]])
        written = Written(tmp_path)
    with tf.Graph().as_default():
        written.imported()
        written.check(tmp_path)
        assert len(collected()) == 1


@pytest.mark.parametrize("scope", [None, "a"])
def test_an_import_inside_a_name_scope(tmp_path, scope):
    with tf.Graph().as_default():
        built_layer("gru", name="rnn")
        written = Written(tmp_path)
    with tf.Graph().as_default():
        for expected in "outer", "outer_1":
            with tf.name_scope("outer"):
                written.imported(scope)
            (variable,) = [v for v in tf.global_variables() if v.op.name.startswith(expected + "/")]
            prefix = variable.op.name[: -len("rnn/opaque_kernel")]
            assert prefix == expected + ("/a/" if scope else "/")
            names = [spec.name for spec in collected()[-1].specs]
            assert sorted(names) == sorted(
                prefix + key for key in written.tensors if key != "rnn/opaque_kernel"
            )


def test_an_import_into_another_graph_than_the_default(tmp_path):
    with tf.Graph().as_default():
        built_layer("gru", name="rnn")
        written = Written(tmp_path)
    graph = tf.Graph()
    with tf.Graph().as_default():
        meta_graph_module.import_scoped_meta_graph(written.path + ".meta", graph=graph)
        assert not collected()
    with graph.as_default():
        written.check(tmp_path)


def test_two_imports_into_one_graph(tmp_path):
    with tf.Graph().as_default():
        built_layer("gru", name="rnn")
        written = Written(tmp_path)
    with tf.Graph().as_default(), tf.Session() as session:
        for scope in "a", "b":
            written.imported(scope)
        built_layer("gru", name="rnn")
        initialize(session)
        saved = read_checkpoint(tf.train.Saver().save(session, str(tmp_path / "both")))
        names = set(written.tensors)
        assert set(saved) == names | {"a/" + name for name in names} | {"b/" + n for n in names}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("scope", [None, "a"])
def test_exported_and_imported_again(tmp_path, scope):
    with tf.Graph().as_default():
        built_layer("rnn_tanh", direction="bidirectional", name="rnn")
        written = Written(tmp_path)
    with tf.Graph().as_default():
        written.imported(scope)
        again = Written(tmp_path)
    with tf.Graph().as_default():
        again.imported("c")
        again.check(tmp_path, "c")
    prefix = "a/" if scope else ""
    assert set(again.tensors) == {prefix + key for key in written.tensors}


def test_a_saved_model(tmp_path):
    folder = str(tmp_path / "saved_model")
    with tf.Graph().as_default(), tf.Session() as session:
        inputs = tf.placeholder(tf.float32, [None, 2, WIDTH], "inputs")
        outputs, _ = LAYERS["lstm"](LAYER_COUNT, UNITS)(inputs, training=False)
        initialize(session)
        tf.saved_model.simple_save(session, folder, {"inputs": inputs}, {"outputs": outputs})
        expected = read_checkpoint(tf.train.Saver().save(session, str(tmp_path / "model")))
    with tf.Graph().as_default(), tf.Session() as session:
        tf.saved_model.load(session, ["serve"], folder)
        found = read_checkpoint(tf.train.Saver().save(session, str(tmp_path / "new")))
    assert_all_equal(found, expected)


@pytest.mark.parametrize("scope", ["", "rnn"])
def test_a_saveable_that_the_program_creates_again(tmp_path, scope):
    """Programs had to do that; such a saveable takes the place of the recreated one."""
    with tf.Graph().as_default():
        built_layer("lstm", LAYER_COUNT)
        written = Written(tmp_path)
    with tf.Graph().as_default():
        written.imported()
        (recreated,) = collected()
        (variable,) = tf.global_variables()
        saveable = SAVEABLES["lstm"](variable, LAYER_COUNT, UNITS, WIDTH, scope=scope)
        collect(saveable)
        assert recreated.is_displaced == (not scope)
        if not scope:
            written.check(tmp_path)
            with pytest.raises(ValueError, match="nor its variable .*Add the variable to var_list"):
                tf.train.Saver([recreated, built_layer("gru").kernel])
        else:
            tf.train.Saver()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("scope", [None, "imported"])
@pytest.mark.parametrize("kind", ["layer", "a", "b"])
def test_errors_name_the_new_keys(tmp_path, kind, scope):
    with tf.Graph().as_default():
        saveable, _ = make(kind)
        collect(saveable)
        written = Written(tmp_path)
    with tf.Graph().as_default(), tf.Session() as session:
        written.imported(scope)
        saver = tf.train.Saver()
        initialize(session)
        prefix = scope + "/" if scope else ""
        path = saver.save(session, str(tmp_path / "new"))
        for damage in "missing_key", "other_shape":
            spoil, kind_of_error = DAMAGES[damage]
            spoil(path, prefix + keys(saveable)[0])
            with pytest.raises(kind_of_error) as caught:
                saver.restore(session, path)
            assert "  %s: " % (prefix + keys(saveable)[0]) in str(caught.value)
            saver.save(session, str(tmp_path / "new"))


def test_without_a_saver_there_is_a_warning():
    with tf.Graph().as_default():
        built_layer("gru", name="rnn")
        tf.train.Saver(tf.global_variables())
        meta_graph = tf.train.export_meta_graph()
    with tf.Graph().as_default():
        message = "saveable 'rnn/opaque_kernel_saveable', but no tf.train.Saver .* CudnnLSTMSave"
        with pytest.warns(UserWarning, match=message):
            tf.train.import_meta_graph(meta_graph)
        assert not collected()


def test_without_a_saver_def_the_import_makes_a_saver(tmp_path):
    with tf.Graph().as_default():
        built_layer("gru", name="rnn")
        written = Written(tmp_path)
        meta_graph = tf.train.export_meta_graph()
    with tf.Graph().as_default(), tf.Session() as session:
        saver = tf.train.import_meta_graph(meta_graph)
        saver.restore(session, written.path)
        assert_all_equal(session.run({v.op.name: v for v in tf.global_variables()}), written.values)
        again = read_checkpoint(saver.save(session, str(tmp_path / "again")))
        assert_all_equal(again, written.tensors)


def test_collections_that_the_program_leaves_out(tmp_path):
    with tf.Graph().as_default():
        built_layer("gru", name="rnn")
        written = Written(tmp_path)
    with tf.Graph().as_default():
        written.imported(restore_collections_predicate=lambda key: "saveable" not in key)
        assert not collected() and tf.global_variables()
    with tf.Graph().as_default(), pytest.warns(UserWarning, match="no tf.train.Saver in"):
        only_names = dict(restore_collections_predicate=lambda key: "saveable" in key)
        tf.train.import_meta_graph(written.path + ".meta", **only_names)
        assert not collected()


def test_other_graphs_are_imported_as_before(tmp_path):
    """No op is added to a graph, and the wrapper passes a graph without saveables on."""
    with tf.Graph().as_default():
        built_layer("gru", name="rnn")
        written = Written(tmp_path)
    numbers = []
    for install in _patches.uninstall, _patches.install:
        install()
        with tf.Graph().as_default() as graph:
            tf.train.import_meta_graph(written.path + ".meta")
            numbers.append(len(graph.get_operations()))
    assert numbers[0] == numbers[1]


def test_tables_stay(tmp_path):
    with tf.Graph().as_default():
        tf.raw_ops.MutableHashTableV2(key_dtype=tf.string, value_dtype=tf.int64, name="table")
        tf.add_to_collection(
            tf.GraphKeys.SAVEABLE_OBJECTS, tf.get_default_graph().get_tensor_by_name("table:0")
        )
        layer = layers.CudnnGRU(1, UNITS, name="rnn")
        layer.build([None, None, WIDTH])
        tf.train.Saver([layer.kernel, layer.saveable])
        meta_graph = tf.train.export_meta_graph()
    with tf.Graph().as_default():
        meta_graph_module.import_scoped_meta_graph(meta_graph)
        assert sorted(one.name for one in collected()) == ["rnn/opaque_kernel_saveable", "table:0"]
