"""Chooses whose kernels run each op on a GPU: this package's or TensorFlow's own.

The choice depends only on the `Facts`; `choose` has no other input and imports no TensorFlow. The
defects of TensorFlow's own kernels are known from TensorFlow's sources and from the text of their
error messages; docs/gpu/README.md has the details.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

KERNELS_VARIABLE = "CUDNN_RNN_GPU_KERNELS"

Ops = Tuple[str, ...]

# Groups of ops that share one outcome.
RNN_OPS: Ops = ("CudnnRNN", "CudnnRNNV2", "CudnnRNNBackprop", "CudnnRNNBackpropV2")
V3_OPS: Ops = ("CudnnRNNV3", "CudnnRNNBackpropV3")
SIZE_OPS: Ops = ("CudnnRNNParamsSize",)
CONVERSION_OPS: Ops = (
    "CudnnRNNParamsToCanonical",
    "CudnnRNNParamsToCanonicalV2",
    "CudnnRNNCanonicalToParams",
    "CudnnRNNCanonicalToParamsV2",
)
GROUPS = {
    "CudnnRNN, CudnnRNNV2, gradients": RNN_OPS,
    "CudnnRNNV3, gradient": V3_OPS,
    "CudnnRNNParamsSize": SIZE_OPS,
    "conversions of parameters": CONVERSION_OPS,
}
OPS = RNN_OPS + V3_OPS + SIZE_OPS + CONVERSION_OPS

# Providers of a kernel.
OURS, TENSORFLOWS, NONE = "cudnn_rnn", "tensorflow", "none"
# TensorFlow's own kernel, which fails in every call; whose gradient is wrong.
FAILS, WRONG = "tensorflow (fails)", "tensorflow (wrong)"
# For nodes of this package only.
AS_V3, ON_CPU = "tensorflow, as CudnnRNNV3", "cudnn_rnn, on the CPU"

# Why TensorFlow's own kernels fail if they are built with cuDNN 9.
_DEFECTS = {
    RNN_OPS: "TensorFlow's own require sequence lengths, which the op does not have",
    CONVERSION_OPS: "TensorFlow's own use wrong offsets and end the process",
}
_DEFECT_IN_BFLOAT16 = "TensorFlow's own gradients read memory that was never written"
# What nodes of this package run instead if TensorFlow's kernels are to run all ops.
_WAYS_ROUND_DEFECTS = {RNN_OPS: AS_V3, CONVERSION_OPS: ON_CPU}


class Facts(NamedTuple):
    """What the choice depends on.

    Attributes:
      is_tensorflow_1: whether this is TensorFlow 1, which cannot choose between two kernels for one
        op.
      cudnn: the major version of the cuDNN that TensorFlow was built with; None if TensorFlow has
        no GPU kernels of its own.
      wanted: value of CUDNN_RNN_GPU_KERNELS: "cudnn_rnn", "tensorflow" or "" (not set).
      registered: whether this package's GPU kernels are registered.
      has_bfloat16: whether TensorFlow's ops take bfloat16.
    """

    is_tensorflow_1: bool
    cudnn: Optional[int]
    wanted: str
    registered: bool
    has_bfloat16: bool


class Outcome(NamedTuple):
    """Whose kernels run a group of ops, or nodes in bfloat16 that train, on a GPU.

    Attributes:
      group: a key of `GROUPS`, or the name of the nodes.
      ours: provider for nodes that this package creates.
      others: provider for all other nodes.
      why: the reason.
    """

    group: str
    ours: str
    others: str
    why: str


class Choice(NamedTuple):
    """The kernels to use on a GPU.

    Attributes:
      needs_registration: whether this package's GPU kernels are to be registered.
      takes_over: ops whose nodes without a kernel label run this package's kernels.
      labels: ops whose nodes get the kernel label if this package creates them.
      labels_bfloat16: whether training nodes in bfloat16 that this package creates are `CudnnRNNV3`
        nodes with the kernel label.
      avoids_defects: whether this package creates `CudnnRNNV3` nodes instead of `CudnnRNN` and
        `CudnnRNNV2`, and places the parameter conversions on the CPU.
      outcomes: an `Outcome` for each of `GROUPS`, which starts with `RNN_OPS`, and one for training
        in bfloat16 if the ops take it.
    """

    needs_registration: bool
    takes_over: Ops
    labels: Ops
    labels_bfloat16: bool
    avoids_defects: bool
    outcomes: Tuple[Outcome, ...]

    @property
    def provider(self) -> str:
        """Provider of the forward kernels of this package's nodes: OURS, TENSORFLOWS or NONE."""
        ours = self.outcomes[0].ours
        return ours if ours in (OURS, NONE) else TENSORFLOWS


def choose(facts: Facts) -> Choice:
    """Returns the `Choice`."""
    takes_over, labels = _wanted_shares(facts)
    is_ours = bool(takes_over or labels)
    # If TensorFlow's own kernels are to run all nodes, they would run these, too.
    labels_bfloat16 = facts.has_bfloat16 and facts.cudnn is not None and not is_ours
    needs_registration = is_ours or labels_bfloat16
    if not facts.registered:
        takes_over, labels_bfloat16 = (), False
        # A label of TensorFlow 1 is in the graph on every machine, and selects CPU kernels, too.
        labels = labels if facts.is_tensorflow_1 else ()
    outcomes = [_outcome(group, facts, is_ours, takes_over, labels) for group in GROUPS]
    if facts.has_bfloat16:
        of_v3 = outcomes[list(GROUPS.values()).index(V3_OPS)]
        outcomes.append(_outcome_in_bfloat16(facts, of_v3, labels_bfloat16))
    return Choice(
        needs_registration,
        takes_over,
        labels,
        labels_bfloat16,
        _avoids_defects(facts),
        tuple(outcomes),
    )


def reason_for_tensorflows(facts: Facts) -> str:
    """Returns why this package's kernels are not registered if they need not be."""
    if facts.wanted:
        return "%s=%s." % (KERNELS_VARIABLE, facts.wanted)
    default_with = (
        "TensorFlow 1"
        if facts.is_tensorflow_1
        else "a TensorFlow that was built with cuDNN %s" % facts.cudnn
    )
    return "This is the default with %s. Set %s=cudnn_rnn to change it." % (
        default_with,
        KERNELS_VARIABLE,
    )


def _wanted_shares(facts):
    """Returns `takes_over` and `labels` of the `Choice` if this package's kernels can register."""
    if facts.is_tensorflow_1:
        return (), OPS if facts.wanted == OURS else ()
    if facts.wanted:
        return OPS if facts.wanted == OURS else (), ()
    if facts.cudnn is None:
        return OPS, ()
    return (RNN_OPS + SIZE_OPS + CONVERSION_OPS, V3_OPS) if _has_defects(facts) else ((), ())


def _has_defects(facts):
    return not facts.is_tensorflow_1 and facts.cudnn is not None and facts.cudnn >= 9


def _avoids_defects(facts):
    return facts.wanted == TENSORFLOWS and _has_defects(facts)


def _outcome(group, facts, is_ours, takes_over, labels):
    ops = GROUPS[group]
    defect = _DEFECTS.get(ops) if _has_defects(facts) else None
    without_us = FAILS if defect else TENSORFLOWS
    if facts.cudnn is None:
        without_us = NONE
    others = OURS if ops[0] in takes_over else without_us
    ours = others
    if ops[0] in labels:
        ours = OURS if facts.registered else NONE
    elif defect and _avoids_defects(facts):
        ours = _WAYS_ROUND_DEFECTS[ops]
    if is_ours and not facts.registered:
        why = "this package's are not registered" + ("; " + defect if defect else "")
    elif defect and facts.wanted != OURS:
        why = defect
    else:
        why = _reason_without_defect(ops, facts)
    return Outcome(group, ours, others, why)


def _outcome_in_bfloat16(facts, of_v3, labels_bfloat16):
    """Returns the outcome for training in bfloat16, given that of `V3_OPS` in any dtype."""
    ours = OURS if labels_bfloat16 else of_v3.ours
    ours, others = (WRONG if found == TENSORFLOWS else found for found in (ours, of_v3.others))
    why = of_v3.why
    if WRONG in (ours, others):
        not_registered = "" if facts.registered else "this package's are not registered; "
        why = not_registered + _DEFECT_IN_BFLOAT16
    return Outcome("training in bfloat16", ours, others, why)


def _reason_without_defect(ops, facts):
    if facts.wanted:
        return "%s=%s" % (KERNELS_VARIABLE, facts.wanted)
    if facts.is_tensorflow_1:
        return "TensorFlow 1 cannot choose between two kernels for one op"
    if facts.cudnn is None:
        return "TensorFlow has none of its own"
    if ops == SIZE_OPS and _has_defects(facts):
        return "as for the conversions"
    return "TensorFlow's own have no known defect"
