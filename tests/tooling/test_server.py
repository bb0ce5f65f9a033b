"""examples/serve_saved_model.py as a server, and the Dockerfile that starts it."""

import http.client
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from helpers.paths import ROOT
from helpers.processes import SECONDS_FOR_A_PROCESS
from helpers.scripts import load_program

EXAMPLES = os.path.join(ROOT, "examples")
PROGRAM = os.path.join(EXAMPLES, "serve_saved_model.py")


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory):
    """Writes a SavedModel; returns its folder, inputs, and the outputs that a session computes."""
    folder = str(tmp_path_factory.mktemp("saved") / "model")
    with tf.Graph().as_default(), tf.Session() as session:
        inputs = tf.placeholder(tf.float32, [None, None, 3])
        model = cudnn_rnn.CudnnGRU(1, 2, 3)
        params = tf.constant(np.linspace(-1, 1, 42, dtype=np.float32))
        state = tf.zeros([1, tf.shape(inputs)[1], 2])
        outputs = model(inputs, state, params, is_training=False)[0]
        tf.saved_model.simple_save(session, folder, {"inputs": inputs}, {"outputs": outputs})
        values = np.linspace(-2, 2, 24, dtype=np.float32).reshape([4, 2, 3])
        return folder, values, session.run(outputs, {inputs: values})


@pytest.fixture(scope="module")
def address(saved_model):
    """Starts the server on a free port; yields its address, then stops the server."""
    command = [sys.executable, "-W", "ignore", PROGRAM, saved_model[0], "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True
    ) as process:
        try:
            yield process.stdout.readline().split()[-1]
            process.send_signal(signal.SIGTERM)
            printed, _ = process.communicate(timeout=SECONDS_FOR_A_PROCESS)
            assert (printed, process.returncode) == ("Stopped\n", 0)
        finally:
            process.kill()


def ask(address, body=None):
    """Returns the status and the content of the answer."""
    try:
        with urllib.request.urlopen(address, body and body.encode()) as answer:
            return answer.status, json.loads(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read().decode())


@pytest.mark.sampled(4)
def test_an_answer_is_what_the_model_computes(saved_model, address):
    _, inputs, outputs = saved_model
    status, answer = ask(address, json.dumps({"inputs": inputs.tolist()}))
    assert status == 200
    np.testing.assert_array_equal(np.array(answer["outputs"], np.float32), outputs)


@pytest.mark.sampled(4)
def test_the_server_describes_the_model(address):
    assert ask(address) == (
        200,
        {"inputs": {"inputs": [-1, -1, 3]}, "outputs": {"outputs": [-1, -1, 2]}},
    )


@pytest.mark.parametrize(
    "body, reason",
    [
        ("not JSON", "Expecting value"),
        ("[1]", "must be an object with the keys ['inputs'], but is [1]"),
        ('{"input": [[[1, 2, 3]]]}', "must be an object with the keys ['inputs']"),
        ('{"inputs": "a text"}', "could not convert string to float"),
        ('{"inputs": [[[1, 2]]]}', "Cannot feed value of shape (1, 1, 2)"),
        ('{"inputs": [[[1, 2, 1%s]]]}' % ("0" * 400), "has a number that float32 cannot represent"),
        ("[" * 100000, "too many nested arrays"),
    ],
)
def test_a_wrong_request_is_answered_with_the_reason(address, body, reason):
    status, answer = ask(address, body)
    assert status == 400 and reason in answer["error"]
    assert ask(address)[0] == 200  # the server goes on


def test_outputs_that_json_cannot_represent(address):
    status, answer = ask(address, '{"inputs": [[[NaN, 0, 0]]]}')
    assert status == 500 and answer["error"].startswith("The outputs cannot be written as JSON: ")
    assert ask(address)[0] == 200


@pytest.mark.parametrize("length", ["-1", "1.5", "many", "9" * 30])
def test_a_wrong_content_length_is_answered(address, length):
    connection = http.client.HTTPConnection(address.split("/")[2])
    connection.putrequest("POST", "/")
    connection.putheader("Content-Length", length)
    connection.endheaders()
    response = connection.getresponse()
    answer = json.loads(response.read().decode())
    connection.close()
    assert response.status == 400
    assert answer["error"] == (
        "The header Content-Length must be a number of bytes, but is '%s'." % length
    )


@pytest.fixture
def server(monkeypatch):
    """Returns the program as a module."""
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    return load_program(PROGRAM)


@pytest.mark.parametrize(
    "value, dtype, is_accepted",
    [
        ([1, -2], np.int32, True),
        ([1.0], np.int32, True),
        ([1.9], np.int32, False),
        ([99999999999], np.int32, False),
        ([99999999999], np.int64, True),
        ([2**53 + 1, 2**63], np.uint64, True),
        ([2**64], np.int64, False),
        ([-1], np.uint8, False),
        (["1"], np.int32, False),
        ([0.1], np.float32, True),
    ],
)
def test_integers_are_converted_without_a_change(server, value, dtype, is_accepted):
    if is_accepted:
        array = server.to_array("n", value, dtype)
        assert array.dtype == dtype and array.tolist() == np.array(value, dtype).tolist()
    else:
        reason = "The input 'n' has a number that %s cannot represent." % dtype.__name__
        with pytest.raises(ValueError, match=reason):
            server.to_array("n", value, dtype)


def test_the_dockerfile_starts_the_server(server):
    """Docker does not run in the tests: this checks the files and the arguments that it names."""
    with open(os.path.join(EXAMPLES, "Dockerfile")) as file:
        text = file.read()
    copied = dict(re.findall(r"^COPY (\S+) (\S+)$", text, re.MULTILINE))
    assert copied == {
        "dist/*.whl": "/wheels/",
        "examples/serve_saved_model.py": "/server/",
        "$MODEL": "/server/model",
    }
    (command,) = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
    python, program, *arguments = json.loads(command)
    assert (python, program) == ("python", "/server/serve_saved_model.py")
    options = server.parse_arguments(arguments)
    assert (options.folder, options.host) == ("/server/model", "0.0.0.0")
    assert "EXPOSE %d" % options.port in text.splitlines()
    (install,) = [line for line in text.splitlines() if "--find-links" in line]
    assert shlex.split(install)[:2] == ["RUN", "pip"] and "-m cudnn_rnn doctor" in install
