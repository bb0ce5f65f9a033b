"""Trains a Keras model on all devices of one machine with `tf.distribute.MirroredStrategy`.

    python examples/mirrored_training.py --loop fit
    python examples/mirrored_training.py --loop custom --devices 1

Without GPUs, the devices are logical CPU devices, which share the processor: they show how a
program works on several devices, not how fast it is. The losses do not depend on the number of
devices. Needs TensorFlow 2.11 or newer.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402
from demo_options import number  # noqa: E402
from noisy_waves import TIME, WIDTH, make_batch  # noqa: E402
from tensorflow import keras  # noqa: E402

import cudnn_rnn.keras  # noqa: E402


def make_strategy(num_devices):
    """Returns a strategy for all GPUs, or for `num_devices` logical CPU devices."""
    if tf.config.list_physical_devices("GPU"):
        return tf.distribute.MirroredStrategy()
    cpu = tf.config.list_physical_devices("CPU")[0]
    configuration = [tf.config.LogicalDeviceConfiguration()] * num_devices
    tf.config.set_logical_device_configuration(cpu, configuration)
    if num_devices == 1:
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy(["CPU:%d" % index for index in range(num_devices)])


def make_model():
    layers = [
        keras.Input((TIME, WIDTH)),
        cudnn_rnn.keras.LSTM(16, return_sequences=True),
        keras.layers.Dense(1),
    ]
    return keras.Sequential(layers)


def make_dataset(options):
    batches = [make_batch(step, options.batch) for step in range(options.steps)]
    inputs, targets = zip(*batches)
    return tf.data.Dataset.from_tensor_slices((list(inputs), list(targets)))


def train_with_fit(options, strategy):
    """Returns the loss of every step: an epoch has one step here."""
    with strategy.scope():
        model = make_model()
        model.compile(keras.optimizers.Adam(0.01), "mse")
    dataset = make_dataset(options).repeat()
    history = model.fit(dataset, epochs=options.steps, steps_per_epoch=1, verbose=0)
    return history.history["loss"]


def train_with_a_loop(options, strategy):
    """Returns the loss of every step."""
    with strategy.scope():
        model = make_model()
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)

    def replica_step(inputs, targets):
        with tf.GradientTape() as tape:
            errors = tf.reduce_mean(tf.square(model(inputs, training=True) - targets), [1, 2])
            # Each replica has a share of the batch; the shares' losses and gradients are added.
            loss = tf.reduce_sum(errors) / options.batch
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function
    def step(inputs, targets):
        losses = strategy.run(replica_step, (inputs, targets))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    dataset = strategy.experimental_distribute_dataset(make_dataset(options))
    return [float(step(inputs, targets)) for inputs, targets in dataset]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loop", choices=["fit", "custom"], default="fit")
    whole = number(int, 1)
    parser.add_argument("--devices", type=whole, default=2, help="number of logical CPU devices")
    parser.add_argument("--steps", type=whole, default=200)
    parser.add_argument("--batch", type=whole, default=16, help="size of the global batch")
    options = parser.parse_args()
    if not hasattr(keras.optimizers.Adam, "build"):
        parser.error("requires TensorFlow 2.11 or newer; this is TensorFlow %s" % tf.__version__)
    strategy = make_strategy(options.devices)
    devices = strategy.num_replicas_in_sync
    if options.loop == "fit" and options.batch % devices:
        text = "--batch is %d; --loop fit requires a multiple of %d, the number of devices"
        parser.error(text % (options.batch, devices))
    keras.utils.set_random_seed(1)
    train = {"fit": train_with_fit, "custom": train_with_a_loop}[options.loop]
    for step, loss in enumerate(train(options, strategy)):
        print("step %d loss %.8f" % (step, loss))


if __name__ == "__main__":
    main()
