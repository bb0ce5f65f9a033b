"""Refuses asynchronous checkpoints where TensorFlow would write wrong values.

TensorFlow 2.12 to 2.14 copy the variables that they find; a thread then writes the checkpoint. The
tensors of a layer are no variables: the thread would compute them from a variable that the program
may have assigned in the meantime.
"""

from cudnn_rnn._compat import tf
from cudnn_rnn._patches.hooks import guarded
from cudnn_rnn.checkpoints import object_based, restore_ops


def find_variables(original, self, *arguments, **named):
    original(self, *arguments, **named)
    guarded(_refuse_layers, self)


def _refuse_layers(writer):
    if any(object_based.is_part(found) for found in writer._original_nodes):
        raise restore_ops.SaverRefusal(
            "The objects of this tf.train.Checkpoint include layers of cudnn_rnn, and in "
            "TensorFlow %s an asynchronous checkpoint of layers would have values that the program "
            "assigns later. Save without experimental_enable_async_checkpoint=True, or use "
            "TensorFlow 2.15 or newer." % tf.__version__
        )
