"""The examples of distributed training: on several devices and processes, and after failures.

The losses must be those of training on one device with the same global batches. Nothing here waits
for a time to pass: processes report what they do, and a test ends those that it started.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn._compat import IS_TENSORFLOW_1
from helpers.paths import PROGRAMS, ROOT
from helpers.processes import SECONDS_FOR_A_PROCESS, output_of
from helpers.versions import needs_tensorflow_2

pytestmark = pytest.mark.ci

EXAMPLES = os.path.join(ROOT, "examples")
BATCH, STEPS = 8, 6

# The test starts seven processes, which import TensorFlow 2 slowly.
only_before_a_release_in_tensorflow_2 = pytest.mark.release if not IS_TENSORFLOW_1 else lambda f: f


@pytest.fixture
def example_modules(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)


@pytest.fixture
def start():
    """Returns a function that starts a program as a `Worker`; ends all of them afterwards."""
    workers = []

    def start_worker(*arguments):
        workers.append(Worker(*arguments))
        return workers[-1]

    yield start_worker
    for worker in workers:
        worker.kill()


class Worker:
    """A process whose output is read line by line."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore"] + [str(argument) for argument in arguments],
            env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            universal_newlines=True,
        )
        self._limit = threading.Timer(SECONDS_FOR_A_PROCESS, self.process.kill)
        self._limit.daemon = True
        self._limit.start()

    def losses_until(self, event):
        """Reads until the line `event`, or to the end if None; returns (step, loss) pairs."""
        losses = []
        for line in self.process.stdout:
            if event is not None and line.strip() == event:
                return losses
            losses += parse_losses(line)
        assert event is None, "the process ended with status %r" % self.process.wait()
        return losses

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self):
        """Ends the process as a failure of its machine would."""
        self._limit.cancel()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def parse_losses(text):
    found = re.findall(r"^step (\d+) loss ([\d.]+)$", text, re.MULTILINE)
    return [(int(step), float(loss)) for step, loss in found]


def free_addresses(number):
    """Returns addresses with ports that the system chose."""
    sockets = [socket.socket() for _ in range(number)]
    try:
        for one in sockets:
            one.bind(("localhost", 0))
        return ["localhost:%d" % one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def check_losses(losses, expected, steps):
    """Checks that these steps were done, in this order, with the losses of one device."""
    assert [step for step, _ in losses] == list(steps)
    found = [loss for _, loss in losses]
    np.testing.assert_allclose(found, [expected[step] for step in steps], rtol=0, atol=1e-5)


@pytest.fixture
def keras_losses(example_modules):
    """Returns the losses of Keras's own LSTM on one device."""
    import tensorflow
    from noisy_waves import TIME, WIDTH, make_batch
    from tensorflow import keras

    keras.utils.set_random_seed(1)
    rnn = keras.layers.LSTM(16, return_sequences=True)
    model = keras.Sequential([keras.Input((TIME, WIDTH)), rnn, keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.01)
    losses = []
    for step in range(STEPS):
        inputs, targets = make_batch(step, BATCH)
        with tensorflow.GradientTape() as tape:
            loss = tensorflow.reduce_mean(tensorflow.square(model(inputs) - targets))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        losses.append(float(loss))
    return losses


@pytest.mark.sampled(2)
@needs_tensorflow_2
@pytest.mark.parametrize("loop", ["custom", "fit"])
def test_losses_on_two_devices_are_those_of_one(keras_losses, loop):
    program = os.path.join(EXAMPLES, "mirrored_training.py")
    printed = output_of(program, "--loop", loop, "--steps", STEPS, "--batch", BATCH)
    check_losses(parse_losses(printed), keras_losses, range(STEPS))


@needs_tensorflow_2
@pytest.mark.release
def test_two_workers_continue_after_one_was_killed(keras_losses, start, tmp_path):
    program = os.path.join(EXAMPLES, "multi_worker_training.py")
    options = ["--folder", tmp_path, "--steps", STEPS, "--save-steps", 2, "--batch", BATCH]

    def start_both(pause):
        addresses = ["--workers", ",".join(free_addresses(2))]
        paused = [os.path.join(PROGRAMS, "paused_example.py"), program, pause]
        first = start(*paused + addresses + ["--task", 0] + options)
        return first, start(program, *addresses + ["--task", 1] + options)

    first, second = start_both(pause=2)
    losses = first.losses_until("paused")
    second.kill()
    first.go_on()
    assert first.losses_until(None) == []
    assert first.process.wait() != 0  # nothing is computed without the other worker's share
    check_losses(losses, keras_losses, [0, 1, 2])

    first, second = start_both(pause=STEPS)
    check_losses(first.losses_until(None), keras_losses, [2, 3, 4, 5])  # saved after two steps
    assert (first.process.wait(), second.process.wait()) == (0, 0)


@pytest.fixture
def graph_losses(example_modules):
    """Returns the losses of the parameter servers' model in one session on one device."""
    import parameter_server_training as example

    with tf.Graph().as_default(), tf.Session() as session:
        inputs, targets = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
        inputs.set_shape([BATCH, example.TIME, example.WIDTH])
        targets.set_shape([BATCH, example.TIME, 1])
        loss = example.make_loss(inputs, targets) / BATCH
        train = tf.train.AdamOptimizer(0.01).minimize(loss)
        session.run(tf.global_variables_initializer())
        return [
            session.run([loss, train], dict(zip([inputs, targets], example.make_batch(n, BATCH))))[
                0
            ]
            for n in range(10)
        ]


@pytest.mark.sampled(4)
@only_before_a_release_in_tensorflow_2
def test_parameter_servers_after_failures_of_every_kind_of_process(graph_losses, start, tmp_path):
    program = os.path.join(EXAMPLES, "parameter_server_training.py")
    addresses = free_addresses(3)
    options = ["--ps", addresses[0], "--workers", ",".join(addresses[1:])]
    options += ["--folder", tmp_path, "--steps", 10, "--save-steps", 3, "--batch", BATCH]

    def start_task(job, task, pauses="10"):
        paused = [os.path.join(PROGRAMS, "paused_example.py"), program, pauses]
        return start(*paused + ["--job", job, "--task", task] + options)

    server, worker = start_task("ps", 0), start_task("worker", 1)
    chief = start_task("worker", 0, pauses="4,7,7")
    check_losses(chief.losses_until("paused"), graph_losses, range(5))

    worker.kill()
    start_task("worker", 1)
    chief.go_on()  # the checkpoint has three steps
    check_losses(chief.losses_until("paused"), graph_losses, range(3, 8))

    server.kill()
    start_task("ps", 0)
    chief.go_on()  # the checkpoint has six steps
    check_losses(chief.losses_until("paused"), graph_losses, range(6, 8))

    chief.kill()
    chief = start_task("worker", 0)
    check_losses(chief.losses_until(None), graph_losses, range(6, 10))
    assert chief.process.wait() == 0

    path = tf.train.latest_checkpoint(str(tmp_path))
    assert path.endswith("model.ckpt-10")
    keys = [name for name, _ in tf.train.list_variables(path)]
    assert "model/rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell/kernel" in keys
    shards = [name for name in os.listdir(str(tmp_path)) if name.startswith("model.ckpt-10.data-")]
    assert sorted(shards) == ["model.ckpt-10.data-0000%d-of-00002" % index for index in range(2)]


@pytest.mark.sampled(4)
@only_before_a_release_in_tensorflow_2
def test_the_commands_of_the_page_train_and_end(tmp_path):
    """Those with a parameter server, on other ports and for three steps."""
    page = Path(ROOT, "docs", "distributed.md").read_text(encoding="utf-8")
    (commands,) = re.findall(r'^( {4}hosts="--ps .*\n(?: {4}.*\n)+)', page, re.MULTILINE)
    for port, address in zip((2221, 2222, 2223), free_addresses(3)):
        commands = commands.replace("localhost:%d" % port, address)
    commands = commands.replace("python examples", "%s -W ignore %s" % (sys.executable, EXAMPLES))
    commands = commands.replace("--folder checkpoints", "--folder checkpoints --steps 3")
    process = subprocess.run(
        ["bash", "-c", commands + "wait\necho all ended"],
        cwd=str(tmp_path),
        stdout=subprocess.PIPE,
        universal_newlines=True,
        timeout=SECONDS_FOR_A_PROCESS,
    )
    assert [step for step, _ in parse_losses(process.stdout)] == [0, 1, 2]
    assert process.stdout.count("serving until it is stopped: kill ") == 2
    assert process.stdout.endswith("all ended\n")
