"""SavedModels from strangers: `export` answers with an error, whatever TensorFlow would do."""

import os
import random
import subprocess
import sys

import pytest
import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

import cudnn_rnn
from cudnn_rnn.cli import export, main

pytestmark = pytest.mark.ci


@pytest.fixture
def folder(tmp_path):
    """Returns the folder of a SavedModel with an RNN."""
    with tf.Graph().as_default(), tf.Session() as session:
        model = cudnn_rnn.CudnnGRU(1, 3, 4)
        params = tf.get_variable("params", initializer=tf.zeros([3 * 3 * (4 + 3 + 2)]))
        model(tf.ones([3, 2, 4]), tf.zeros([1, 2, 3]), params, is_training=False)
        session.run(tf.global_variables_initializer())
        builder = tf.saved_model.Builder(str(tmp_path / "model"))
        builder.add_meta_graph_and_variables(session, ["serve"])
        builder.save()
    return tmp_path / "model"


def change(folder, function):
    """Changes the GraphDef of a SavedModel."""
    path = folder / "saved_model.pb"
    model = SavedModel.FromString(path.read_bytes())
    function(model.meta_graphs[0].graph_def)
    path.write_bytes(model.SerializeToString())


def add_functions(graph_def, **calls):
    """Adds functions by name that call functions."""
    for name, called in calls.items():
        function = graph_def.library.function.add()
        function.signature.name = name
        for number, other in enumerate(called):
            node = function.node_def.add(name="call_%d" % number, op=other)
            if number % 2:
                node.op = "PartitionedCall"
                node.attr["f"].func.name = other
    graph_def.node.add(name="start", op=sorted(calls)[0])


def add_node(graph_def, op, **numbers):
    """TensorFlow would allocate memory for so many inputs, and lock itself when that fails."""
    node = graph_def.node.add(name="many", op=op)
    for name, number in numbers.items():
        node.attr[name].i = number


def constant(graph_def):
    return next(node for node in graph_def.node if node.op == "Const")


DAMAGES = {
    "itself": (lambda g: add_functions(g, f=["f"]), "The function 'f' calls itself: 'f' calls 'f'"),
    "circle": (
        lambda g: add_functions(g, a=["b", "c"], b=["c"], c=["d", "a"], d=[]),
        "calls itself: 'a' calls 'b' calls 'c' calls 'a'",
    ),
    "dtype": (
        lambda g: setattr(constant(g).attr["dtype"], "type", 9),
        "has the dtype 9, but a value of the dtype",
    ),
    "value": (
        lambda g: setattr(constant(g).attr["value"].tensor, "dtype", 20),
        "but a value of the dtype 20",
    ),
    "content": (
        lambda g: setattr(constant(g).attr["value"].tensor, "tensor_content", b"1234567"),
        "but 7 bytes",
    ),
    "inputs": (
        lambda g: add_node(g, "Pack", N=2**31 - 1),
        "has N=2147483647 inputs or outputs, but the whole",
    ),
    "negative": (lambda g: add_node(g, "Pack", N=-1), "has N=-1 inputs or outputs"),
    "outputs": (
        lambda g: add_node(g, "Unpack", num=2**31 - 1),
        "has num=2147483647 inputs or outputs",
    ),
    "shape": (
        lambda g: constant(g).attr["value"].tensor.tensor_shape.dim.add(size=-1),
        "has no shape",
    ),
}


@pytest.mark.parametrize("kind", sorted(DAMAGES))
def test_damaged_graphs(folder, kind):
    damage, message = DAMAGES[kind]
    change(folder, damage)
    with pytest.raises(ValueError) as caught:
        cudnn_rnn.export_plain(folder, str(folder) + "-plain")
    assert message in str(caught.value) and "damaged" in str(caught.value)
    assert os.listdir(str(folder.parent)) == ["model"]


def test_functions_that_call_many_others(folder):
    """Each is looked at once, though the number of ways through them is huge."""
    names = ["f%02d" % number for number in range(60)]
    calls = {name: [following] * 4 for name, following in zip(names, names[1:])}
    from cudnn_rnn.plain import _validation

    graph_def = tf.GraphDef()
    add_functions(graph_def, **dict(calls, f59=[]))
    _validation.check(graph_def)


@pytest.mark.parametrize("content", [b"\xff", b"", b"\x12\x04\x12\x02\x0a\x7f"])
def test_files_that_are_no_saved_model(folder, content):
    (folder / "saved_model.pb").write_bytes(content)
    with pytest.raises(ValueError, match="model"):
        cudnn_rnn.export_plain(folder, str(folder) + "-plain")


def test_damaged_bytes(folder):
    content = (folder / "saved_model.pb").read_bytes()
    numbers = random.Random(0)
    for _ in range(100):
        damaged = bytearray(content)
        damaged[numbers.randrange(len(damaged))] = numbers.randrange(256)
        (folder / "saved_model.pb").write_bytes(damaged)
        try:
            cudnn_rnn.export_plain(folder, str(folder) + "-plain", overwrite=True)
        except (ValueError, OSError) as error:
            assert str(error)


@pytest.mark.sampled(4)
def test_the_command(folder, capfd):
    out = str(folder) + "-plain"
    assert main.main(["export", str(folder), out]) == 0
    assert "Replaced 1 CudnnRNN* nodes; wrote %s." % out in capfd.readouterr().out
    assert main.main(["export", str(folder), out]) == 1
    printed = capfd.readouterr()
    assert "python -m cudnn_rnn export: %s exists." % out in printed.err
    (folder / "saved_model.pb").write_bytes(b"\xff")
    assert main.main(["export", str(folder), out + "2", "--traceback"]) == 1
    printed = capfd.readouterr()
    assert "Traceback" in printed.err and "cannot be read as a SavedModel" in printed.err


@pytest.mark.once
@pytest.mark.parametrize(
    "child, message",
    [
        ("import os; os.abort()", "TensorFlow ended with SIGABRT while it worked on the graph"),
        ("while True: pass", "TensorFlow did not end within 1 seconds"),
    ],
)
def test_the_end_of_the_child(folder, capfd, monkeypatch, child, message):
    monkeypatch.setattr(export, "_CHILD", child)
    monkeypatch.setattr(export, "_SECONDS", 600 if "abort" in child else 1)
    assert main.main(["export", str(folder), str(folder) + "-plain"]) == 1
    err = capfd.readouterr().err
    assert "%s: %s. It may be damaged" % (folder, message) in err
    assert os.listdir(str(folder.parent)) == ["model"]


@pytest.mark.once
def test_killed_while_replacing_a_folder(folder, capfd, monkeypatch):
    """Between two renames, the folder that is replaced has another name."""
    out = str(folder) + "-plain"
    old = folder.parent / (folder.name + "-plain.partial-x") / "old"
    child = "import os, signal; os.renames(%r, %r); os.kill(os.getpid(), signal.SIGKILL)"
    os.mkdir(out)
    monkeypatch.setattr(export, "_CHILD", child % (out, str(old)))
    assert main.main(["export", str(folder), out, "--force"]) == 1
    err = capfd.readouterr().err
    assert "ended with SIGKILL" in err and "such as a lack of memory" in err
    assert "%s was not written. The old folder is now %s." % (out, old) in err


@pytest.mark.sampled(4)
@pytest.mark.once
def test_the_child_ends_with_its_parent():
    """Otherwise it would replace a folder after the caller has seen a failure."""
    program = "from cudnn_rnn.cli import export; export._end_with_parent()"
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
    assert child.poll() is None
    child.stdin.close()
    assert child.wait() == 1
