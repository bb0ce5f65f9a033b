"""The peers that ours is measured against. Standard library only.

To add a peer, add a line to CPU_PEERS, and its module to workers/ (worker.py describes the
interface).
"""

from collections import namedtuple

from configurations import KINDS

_INFERENCE = ("inference",)


class Peer(
    namedtuple(
        "Peer", "title environment module kinds options arithmetic", defaults=[KINDS, {}, "float"]
    )
):
    """The title in tables, the Python environment ("torch" is the one that $TORCH_PYTHON names),
    the module in workers/, the supported kinds, and the module's own options.

    `arithmetic` is the number format to which the peer rounds the factors of a float32 model's
    products, "bfloat16" or "int8", or "float" if it does not round.
    """

    __slots__ = ()

    @property
    def rounds(self):
        return self.arithmetic != "float"

    @property
    def label(self):
        """The title, with the arithmetic unless that is float."""
        return "%s, %s" % (self.title, self.arithmetic) if self.rounds else self.title


OURS = "ours"

CPU_PEERS = {
    OURS: Peer("ours in TensorFlow", "tensorflow", "ours"),
    "ours-medium": Peer(
        "ours in medium", "tensorflow", "ours", KINDS, {"precision": "medium"}, "bfloat16"
    ),
    "plain": Peer("plain ops", "tensorflow", "ours", options={"plain": True}),
    "torch": Peer("torch.nn", "torch", "torch_network"),
    "onnxruntime": Peer("ONNX Runtime", "onnxruntime", "onnxruntime_network", _INFERENCE),
    "onnxruntime-int8": Peer(
        "ONNX Runtime", "onnxruntime", "onnxruntime_network", _INFERENCE, arithmetic="int8"
    ),
    "openvino": Peer("OpenVINO", "onnxruntime", "openvino_network", _INFERENCE),
    "openvino-bf16": Peer(
        "OpenVINO", "onnxruntime", "openvino_network", _INFERENCE, arithmetic="bfloat16"
    ),
    "jax": Peer("JAX", "jax", "jax_network"),
    "keras": Peer("Keras", "tensorflow", "keras_network"),
    "keras-ours": Peer(
        "cudnn_rnn.keras", "tensorflow", "keras_network", options={"layers": "cudnn_rnn.keras"}
    ),
    "tf1-cell": Peer("TF 1.15 dynamic_rnn", "tensorflow_1", "tf1_cells"),
    "tf1-fused": Peer(
        "TF 1.15 LSTMBlockFusedCell", "tensorflow_1", "tf1_cells", options={"fused": True}
    ),
}

# Each algorithm of the core and of cuDNN, and each choice of kernels in TensorFlow, is a peer.
GPU_PEERS = {
    "core": [
        Peer("core " + name, "torch", "core_network", options={"algorithm": name})
        for name in ("standard", "auto")
    ],
    "cudnn": [Peer("cuDNN standard", "torch", "cudnn_network", options={"algorithm": "standard"})],
    "persistent": [
        Peer("cuDNN " + name, "torch", "cudnn_network", options={"algorithm": name})
        for name in ("persist_static", "persist_dynamic", "persist_static_small_h")
    ],
    "torch": [Peer("torch.nn", "torch", "torch_network")],
    "tensorflow": [
        Peer(title, "tensorflow", "tensorflow_kernels", options={"kernels": kernels})
        for title, kernels in [("ours in TF", "cudnn_rnn"), ("CudnnRNNV3 of TF", "tensorflow")]
    ],
}

# These multiply bfloat16 matrices.
BFLOAT16_PEERS = (OURS, "torch")

# In these groups some peers would take minutes.
_ALLOWED_IN_GROUP = {
    "scaling": (
        *(OURS, "ours-medium", "torch"),
        *("onnxruntime", "onnxruntime-int8", "openvino", "openvino-bf16"),
    )
}


def takes_part(name, peer, configuration):
    """Returns whether a peer is measured on a configuration."""
    is_allowed = name in _ALLOWED_IN_GROUP.get(configuration.group, [name])
    return is_allowed and configuration.kind in peer.kinds
