"""If a Saver has a variable and its saveable, the variable's own value wins in every restore."""

import socket

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context
from tensorflow.python.ops import io_ops
from tensorflow.python.training import saver as saver_module
from tensorflow.python.training.saving import saveable_object

import cudnn_rnn
from cudnn_rnn.checkpoints import optimizer_slots, restore_ops
from helpers import damaged_checkpoints
from helpers.layer_models import LAYER_COUNT, SAVEABLES, UNITS, WIDTH, built_layer
from helpers.restoring import make
from helpers.rnn_models import initialize, keys

RESTORES = 40  # repeated because a race may hide a wrong order
KINDS = ("layer", "opaque_lstm", "a", "b")


def two_values(variable):
    """Returns two arrays for a variable, in neither of which the two biases are equal."""
    return np.random.RandomState(1).randn(2, *variable.shape.as_list()).astype(np.float32)


def assert_restores(session, saver, path, variable, expected):
    definition = saver.saver_def
    saver.restore(session, path)  # runs all checks; the loop skips them for speed
    for _ in range(RESTORES):
        session.run(definition.restore_op_name, {definition.filename_tensor_name: path})
        np.testing.assert_array_equal(session.run(variable), expected)


def check(session, saver, variable, key, tmp_path):
    """Saves, changes the value under `key` in the checkpoint, and restores this value."""
    saved, own = two_values(variable)
    session.run(variable.initializer)  # before its moving average, which reads it
    initialize(session)
    session.run(tf.assign(variable, saved))
    path = saver.save(session, str(tmp_path / "model"))
    damaged_checkpoints.with_value(path, key, lambda value: own)
    assert_restores(session, saver, path, variable, own)
    return path, own


@pytest.fixture
def session():
    config = tf.ConfigProto(device_count={"CPU": 2})
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        yield session


def of_list(saveable, variable):
    return [variable, saveable], variable.op.name


def of_dict(name):
    return lambda saveable, variable: ({name: variable, "saveable": saveable}, name)


def of_moving_average(saveable, variable):
    average = tf.train.ExponentialMovingAverage(0.5)
    average.apply([variable])
    saved = dict(average.variables_to_restore(), saveable=saveable)
    return saved, average.average_name(variable)


def of_collections(saveable, variable):
    if saveable not in tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS):
        tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
    return None, variable.op.name


@pytest.mark.sampled(14)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "saved",
    [of_list, of_dict("a_name"), of_dict("z_name"), of_moving_average, of_collections],
    ids=["list", "dict_before", "dict_after", "moving_average", "collections"],
)
def test_saver(session, tmp_path, kind, use_resource, saved):
    """What a Saver is made of; the functions return it and the key of the variable."""
    saveable, variable = make(kind, use_resource)
    objects, key = saved(saveable, variable)
    check(session, tf.train.Saver(objects), variable, key, tmp_path)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("devices", [("", ""), ("/cpu:1", "/cpu:0"), ("/cpu:0", "/cpu:1")])
def test_sharded(session, tmp_path, kind, use_resource, devices):
    saveable, variable = make(kind, use_resource, *devices)
    saver = tf.train.Saver([saveable, variable], sharded=True)
    check(session, saver, variable, variable.op.name, tmp_path)


def free_port():
    with socket.socket() as bound:
        bound.bind(("localhost", 0))
        return bound.getsockname()[1]


@pytest.fixture(scope="module")
def cluster():
    addresses = {job: ["localhost:%d" % free_port()] for job in ("ps", "worker")}
    cluster = tf.train.ClusterSpec(addresses)
    servers = [tf.train.Server(cluster, job_name=job, task_index=0) for job in ("ps", "worker")]
    yield cluster, servers[1].target


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
def test_parameter_server(cluster, tmp_path, kind, use_resource):
    specification, target = cluster
    with tf.Graph().as_default(), tf.Session(target) as session:
        with tf.device(tf.train.replica_device_setter(cluster=specification)):
            # The servers keep variables by name, also for the next test.
            saveable, variable = make(kind, use_resource, scope=kind)
        assert "ps" in variable.device
        saver = tf.train.Saver([variable, saveable], sharded=True)
        check(session, saver, variable, variable.op.name, tmp_path)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sharded", [False, True])
def test_imported_meta_graph(session, tmp_path, use_resource, sharded):
    saveable, variable = make("opaque_lstm", use_resource, "/cpu:1", "/cpu:0")
    saver = tf.train.Saver({"old_name": variable, "saveable": saveable}, sharded=sharded)
    path, own = check(session, saver, variable, "old_name", tmp_path)
    with tf.Graph().as_default():
        saver = tf.train.import_meta_graph(path + ".meta", import_scope="imported")
        with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as other:
            (variable,) = tf.global_variables()
            assert_restores(other, saver, path, variable, own)


def test_deferred_build(session, tmp_path, use_resource):
    saveable, variable = make("opaque_lstm", use_resource, "/cpu:1", "/cpu:0")
    tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
    saver = tf.train.Saver(defer_build=True, sharded=True)
    saver.build()
    check(session, saver, variable, variable.op.name, tmp_path)


def test_reshaping_saver(session, tmp_path, use_resource):
    saveable, variable = make("b", use_resource)
    saver = tf.train.Saver({"old_name": variable, "saveable": saveable}, reshape=True)
    check(session, saver, variable, "old_name", tmp_path)


@pytest.mark.sampled(2)
def test_slots(session, tmp_path, use_resource):
    """A slot saved under its own key wins over its converted form, in a dict and in a list."""
    saveable, variable = make("opaque_lstm", use_resource)
    tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
    optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
    optimizer.minimize(tf.reduce_sum(variable**2))
    slot = optimizer.get_slot(variable, "momentum")
    saved = cudnn_rnn.saved_as_cells(optimizer)
    (converted,) = [one for one in saved if isinstance(one, optimizer_slots.CudnnSlotSaveable)]
    in_dict, in_list = {"old_name": slot, "slot": converted}, saved + [variable, slot]
    for objects, key in (in_dict, "old_name"), (in_list, slot.op.name):
        check(session, tf.train.Saver(objects), slot, key, tmp_path)


def test_exact_biases_are_preferred_to_sums(session, tmp_path, use_resource):
    exact, variable = make("b", use_resource)
    sums = SAVEABLES["lstm"](variable, LAYER_COUNT, UNITS, WIDTH, scope="sums", name="zzz")
    value, _ = two_values(variable)
    for savers in ({"a": exact, "b": sums}, {"b": exact, "a": sums}):
        saver = tf.train.Saver(savers)
        initialize(session)
        session.run(tf.assign(variable, value))
        path = saver.save(session, str(tmp_path / "model"))
        assert_restores(session, saver, path, variable, value)


class Twice(saveable_object.SaveableObject):
    """Another package's saveable that restores one of our variables."""

    def __init__(self, variable, key, change=tf.identity):
        self._variable, self._change = variable, change
        spec = saveable_object.SaveSpec(tf.convert_to_tensor(variable), "", key)
        super().__init__(tf.identity(spec.tensor), [spec], key)

    def restore(self, restored_tensors, restored_shapes):
        return tf.assign(self._variable, self._change(restored_tensors[0]))


def test_values_of_unknown_origin_and_two_own_values_are_refused(session, use_resource):
    saveable, variable = make("opaque_lstm", use_resource)
    with pytest.raises(ValueError, match=r"opaque .*Assign.*two Savers"):
        tf.train.Saver([Twice(variable, "foreign", lambda value: 2.0 * value), saveable])
    with pytest.raises(ValueError, match="opaque"):
        tf.train.Saver([Twice(variable, "foreign"), variable, saveable])


class SequentialBuilder(saver_module.BaseSaverBuilder):
    """Restores saveables one by one, variables first."""

    def _AddRestoreOps(self, filename, saveables, *arguments, **named):
        done = []
        for saveable in sorted(saveables, key=lambda one: len(one.specs)):
            with tf.control_dependencies(done):
                tensors = self.restore_op(filename, saveable, -1)
                done = [tf.group(saveable.restore(tensors, None))]
        return tf.group(*done, name="restore_all")


def test_a_builder_with_another_order_is_refused(session, use_resource):
    saveable, variable = make("opaque_lstm", use_resource)
    with pytest.raises(ValueError, match="opaque.*before.*builder"):
        tf.train.Saver([variable, saveable], builder=SequentialBuilder())


def test_a_refused_saver_is_not_built(session, tmp_path):
    saveables = [make("opaque_lstm", scope=scope)[0] for scope in ("one", "two")]
    layer_saveable, _ = make("layer")
    sizes = (LAYER_COUNT, UNITS, WIDTH, "linear_input", "bidirectional")
    same_keys = SAVEABLES["lstm"](saveables[0]._variables, *sizes, scope="one", name="other")
    collection = tf.get_collection_ref(tf.GraphKeys.SAVEABLE_OBJECTS)
    collection += saveables + [same_keys]
    initialize(session)
    saver, path = tf.train.Saver(defer_build=True), str(tmp_path / "model")
    for _ in range(2):
        with pytest.raises(ValueError, match="would both write the key 'one/"):
            saver.build()
        with pytest.raises(RuntimeError, match="should be called before save"):
            saver.save(session, path)
    collection.remove(same_keys)
    saver.build()
    saved = {key for key, _ in tf.train.list_variables(saver.save(session, path))}
    assert set(keys(layer_saveable)) | set(keys(saveables[1])) < saved


@pytest.mark.sampled(2)
@pytest.mark.parametrize("devices", [("", ""), ("/cpu:0", "/cpu:1")])
@pytest.mark.parametrize("kind", ["opaque_lstm", "b"])
def test_two_saveables_with_the_same_keys_are_refused(session, kind, devices):
    saveables = []
    for number, device in enumerate(devices):
        with tf.variable_scope("scope_%d" % number):
            saveables.append(make(kind, True, device, device)[0])
    message = "saveables '%s' and '%s' in one Saver would both write the key 'scope/"
    message %= tuple(saveable.name for saveable in saveables)
    for saved in (saveables, saveables[::-1]):
        with pytest.raises(ValueError, match=message):
            tf.train.Saver(saved, sharded=any(devices))


def test_a_session_that_never_saves_runs_with_shared_keys(session):
    """MonitoredTrainingSession creates a Saver that the program has not asked for."""
    inputs, layers = tf.ones([3, 2, 4]), [cudnn_rnn.layers.CudnnGRU(1, 4) for _ in range(2)]
    for layer in layers:
        layer.build([None, None, 4])
        inputs, _ = layer(inputs)
    step = tf.train.get_or_create_global_step()
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(inputs), step)
    with pytest.warns(UserWarning, match="both write the key .*tf.variable_scope.* will fail"):
        with tf.train.MonitoredTrainingSession() as monitored:
            monitored.run(train)
            assert monitored.run(step) == 1
    with pytest.raises(ValueError, match="would both write the key"):
        tf.train.Saver()


def test_layers_in_scopes_of_their_own_are_saved(session, tmp_path):
    """What the error advises."""
    layers = [cudnn_rnn.layers.CudnnGRU(1, 4) for _ in range(2)]
    for number, layer in enumerate(layers):
        with tf.variable_scope("scope_%d" % number):
            layer.build([None, None, 4])
    initialize(session)
    path = tf.train.Saver().save(session, str(tmp_path / "model"))
    scopes = {name.split("/")[0] for name, _ in tf.train.list_variables(path)}
    assert scopes == {"scope_0", "scope_1"}


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_key_shared_with_a_variable_is_tensorflows_error(session, tmp_path):
    saveable, _ = make("b", True)
    variable = tf.get_variable("variable", initializer=np.ones([3], np.float32))
    saver = tf.train.Saver({"saveable": saveable, saveable.specs[0].name: variable})
    initialize(session)
    with pytest.raises(tf.errors.InvalidArgumentError, match="uplicate"):
        saver.save(session, str(tmp_path / "model"))


def test_unrelated_savers_get_no_control_edges(session):
    make("layer", True)
    variable = tf.get_variable("variable", initializer=np.ones([3], np.float32))
    saver = tf.train.Saver([variable])
    restore = session.graph.get_operation_by_name(saver.saver_def.restore_op_name)
    assert not [edge for op in restore.control_inputs for edge in op.control_inputs]


def test_eager_saver_refuses_both():
    with context.eager_mode():
        variable = tf.Variable(np.zeros(304, np.float32), name="opaque", use_resource=True)
        saveable = SAVEABLES["lstm"](variable, LAYER_COUNT, UNITS, WIDTH)
        saver = tf.train.Saver({"variable": variable, "saveable": saveable})
        with pytest.raises(ValueError, match="will be restored with two names"):
            saver.save(None, "nowhere")


@pytest.mark.parametrize("names", [("a", "z"), ("z", "a")])
def test_checkpoint_of_a_layer_and_its_variable(run, tmp_path, names):
    layer = built_layer("lstm", LAYER_COUNT)
    checkpoint = tf.train.Checkpoint(**dict(zip(names, (layer.kernel, layer))))
    saved, own = two_values(layer.kernel)
    run([layer.kernel.initializer, checkpoint.save_counter.initializer])
    run(layer.kernel.assign(saved))
    path = checkpoint.save(str(tmp_path / "model"))
    key = names[0] + "/.ATTRIBUTES/VARIABLE_VALUE"
    damaged_checkpoints.with_value(path, key, lambda value: own)
    for _ in range(10):
        checkpoint.restore(path).initialize_or_restore()
        np.testing.assert_array_equal(run(layer.kernel), own)


def test_reads_of_names_that_are_computed_are_unknown():
    """A user's graph may compute the keys or the slices that it reads."""
    with tf.Graph().as_default():
        path, computed = tf.placeholder(tf.string, []), tf.placeholder(tf.string, [1])
        for keys, slices in [(["a"], [""]), (["b"], computed), (computed, [""])]:
            io_ops.restore_v2(path, keys, slices, [tf.float32])
        assert [(read.key, read.slice_spec) for read in restore_ops.read_from(path)] == [("a", "")]
