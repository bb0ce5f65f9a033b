"""examples/serve_saved_model.py as a server, and the Dockerfile that starts it."""

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


def test_an_answer_is_what_the_model_computes(saved_model, address):
    _, inputs, outputs = saved_model
    status, answer = ask(address, json.dumps({"inputs": inputs.tolist()}))
    assert status == 200
    np.testing.assert_array_equal(np.array(answer["outputs"], np.float32), outputs)


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
    ],
)
def test_a_wrong_request_is_answered_with_the_reason(address, body, reason):
    status, answer = ask(address, body)
    assert status == 400 and reason in answer["error"]
    assert ask(address)[0] == 200  # the server goes on


def test_the_dockerfile_starts_the_server(monkeypatch):
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
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    options = load_program(PROGRAM).parse_arguments(arguments)
    assert (options.folder, options.host) == ("/server/model", "0.0.0.0")
    assert "EXPOSE %d" % options.port in text.splitlines()
    (install,) = [line for line in text.splitlines() if "--find-links" in line]
    assert shlex.split(install)[:2] == ["RUN", "pip"] and "-m cudnn_rnn doctor" in install
