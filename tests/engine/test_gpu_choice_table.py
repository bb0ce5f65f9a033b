"""Every row of the table of whose kernels run on a GPU; `gpu_choice.choose` is a pure function."""

import pytest

from cudnn_rnn._native import gpu_choice
from cudnn_rnn._native.gpu_choice import (
    AS_V3,
    CONVERSION_OPS,
    FAILS,
    GROUPS,
    NONE,
    ON_CPU,
    OPS,
    OURS,
    RNN_OPS,
    SIZE_OPS,
    TENSORFLOWS,
    V3_OPS,
    WRONG,
    Facts,
)

pytestmark = pytest.mark.once

ALL_OURS = [(OURS, OURS)] * 4
THEIRS = (TENSORFLOWS, TENSORFLOWS)
ALL_THEIRS = [THEIRS] * 4
NO_KERNELS = [(NONE, NONE)] * 4
# Of nodes of this package and of others, for RNN_OPS, V3_OPS, SIZE_OPS and CONVERSION_OPS.
BROKEN = [(FAILS, FAILS), THEIRS, THEIRS, (FAILS, FAILS)]
MIXED = [(OURS, OURS), (OURS, TENSORFLOWS), (OURS, OURS), (OURS, OURS)]
AROUND = [(AS_V3, FAILS), THEIRS, THEIRS, (ON_CPU, FAILS)]
ALL_BUT_V3 = RNN_OPS + SIZE_OPS + CONVERSION_OPS
NO_OPS = ()

# TensorFlow 2: cuDNN that TensorFlow was built with, the variable, whether our kernels registered;
# then takes_over, labels, avoids_defects, and whose kernels run.
TENSORFLOW_2 = [
    (9, "", True, ALL_BUT_V3, V3_OPS, False, MIXED),
    (10, "", True, ALL_BUT_V3, V3_OPS, False, MIXED),
    (9, "", False, NO_OPS, NO_OPS, False, BROKEN),
    (9, "cudnn_rnn", True, OPS, NO_OPS, False, ALL_OURS),
    (9, "cudnn_rnn", False, NO_OPS, NO_OPS, False, BROKEN),
    (9, "tensorflow", True, NO_OPS, NO_OPS, True, AROUND),
    (9, "tensorflow", False, NO_OPS, NO_OPS, True, AROUND),
    (8, "", True, NO_OPS, NO_OPS, False, ALL_THEIRS),
    (8, "", False, NO_OPS, NO_OPS, False, ALL_THEIRS),
    (8, "cudnn_rnn", True, OPS, NO_OPS, False, ALL_OURS),
    (8, "cudnn_rnn", False, NO_OPS, NO_OPS, False, ALL_THEIRS),
    (8, "tensorflow", True, NO_OPS, NO_OPS, False, ALL_THEIRS),
    (8, "tensorflow", False, NO_OPS, NO_OPS, False, ALL_THEIRS),
    (None, "", True, OPS, NO_OPS, False, ALL_OURS),
    (None, "", False, NO_OPS, NO_OPS, False, NO_KERNELS),
    (None, "cudnn_rnn", True, OPS, NO_OPS, False, ALL_OURS),
    (None, "cudnn_rnn", False, NO_OPS, NO_OPS, False, NO_KERNELS),
    (None, "tensorflow", True, NO_OPS, NO_OPS, False, NO_KERNELS),
    (None, "tensorflow", False, NO_OPS, NO_OPS, False, NO_KERNELS),
]
# TensorFlow 1 has no priorities, and its own kernels are sound.
TENSORFLOW_1 = [
    (7, "", True, NO_OPS, NO_OPS, False, ALL_THEIRS),
    (7, "", False, NO_OPS, NO_OPS, False, ALL_THEIRS),
    (7, "tensorflow", True, NO_OPS, NO_OPS, False, ALL_THEIRS),
    (7, "tensorflow", False, NO_OPS, NO_OPS, False, ALL_THEIRS),
    (7, "cudnn_rnn", True, NO_OPS, OPS, False, [(OURS, TENSORFLOWS)] * 4),
    (7, "cudnn_rnn", False, NO_OPS, OPS, False, [(NONE, TENSORFLOWS)] * 4),
    (None, "", True, NO_OPS, NO_OPS, False, NO_KERNELS),
    (None, "", False, NO_OPS, NO_OPS, False, NO_KERNELS),
    (None, "tensorflow", True, NO_OPS, NO_OPS, False, NO_KERNELS),
    (None, "tensorflow", False, NO_OPS, NO_OPS, False, NO_KERNELS),
    (None, "cudnn_rnn", True, NO_OPS, OPS, False, [(OURS, NONE)] * 4),
    (None, "cudnn_rnn", False, NO_OPS, OPS, False, [(NONE, NONE)] * 4),
]
# TensorFlow 2 whose ops take bfloat16: cuDNN and the variable; then whether training nodes in
# bfloat16 get the label, and whose kernels run them if ours are registered, and if they are not.
BFLOAT16 = [
    (9, "", False, (OURS, WRONG), (WRONG, WRONG)),
    (9, "cudnn_rnn", False, (OURS, OURS), (WRONG, WRONG)),
    (9, "tensorflow", True, (OURS, WRONG), (WRONG, WRONG)),
    (8, "", True, (OURS, WRONG), (WRONG, WRONG)),
    (8, "cudnn_rnn", False, (OURS, OURS), (WRONG, WRONG)),
    (8, "tensorflow", True, (OURS, WRONG), (WRONG, WRONG)),
    (None, "", False, (OURS, OURS), (NONE, NONE)),
    (None, "cudnn_rnn", False, (OURS, OURS), (NONE, NONE)),
    (None, "tensorflow", False, (NONE, NONE), (NONE, NONE)),
]
TABLE = [(False, *row) for row in TENSORFLOW_2] + [(True, *row) for row in TENSORFLOW_1]
IDS = [
    "%s-cudnn%s-%s-%s" % (1 if row[0] else 2, row[1], row[2] or "unset", row[3]) for row in TABLE
]


def facts_of(row, has_bfloat16=False):
    return Facts(*row[:4], has_bfloat16)


def test_groups_have_each_op_once():
    assert [op for ops in GROUPS.values() for op in ops] == list(OPS)
    assert len(set(OPS)) == 11


@pytest.mark.parametrize("row", TABLE, ids=IDS)
def test_choice(row):
    takes_over, labels, avoids_defects, providers = row[4:]
    found = gpu_choice.choose(facts_of(row))
    assert found.takes_over == takes_over
    assert not found.labels_bfloat16
    assert found.labels == labels
    assert found.avoids_defects == avoids_defects
    assert [outcome.group for outcome in found.outcomes] == list(GROUPS)
    assert [(outcome.ours, outcome.others) for outcome in found.outcomes] == providers
    assert all(outcome.why for outcome in found.outcomes)
    assert found.provider == {OURS: OURS, NONE: NONE}.get(providers[0][0], TENSORFLOWS)


@pytest.mark.parametrize("row", TABLE, ids=IDS)
def test_kernels_are_registered_if_they_would_be_used(row):
    """The decision to register must not depend on whether the kernels are registered."""
    facts = facts_of(row)
    registered = gpu_choice.choose(facts._replace(registered=True))
    uses = bool(registered.takes_over or registered.labels)
    assert gpu_choice.choose(facts).needs_registration == uses


@pytest.mark.parametrize("row", [row for row in TABLE if FAILS in dict(row[7]).values()])
def test_ops_that_fail_have_a_reason(row):
    for outcome in gpu_choice.choose(facts_of(row)).outcomes:
        if outcome.others == FAILS:
            assert "TensorFlow's own" in outcome.why


@pytest.mark.parametrize("row", TENSORFLOW_2, ids=IDS[: len(TENSORFLOW_2)])
def test_bfloat16_changes_nothing_else(row):
    row = (False, *row)
    without = gpu_choice.choose(facts_of(row))
    found = gpu_choice.choose(facts_of(row, has_bfloat16=True))
    assert found.outcomes[:-1] == without.outcomes
    new = {name: getattr(found, name) for name in ("labels_bfloat16", "needs_registration")}
    assert found._replace(outcomes=without.outcomes) == without._replace(**new)


@pytest.mark.parametrize("row", BFLOAT16, ids=["cudnn%s-%s" % row[:2] for row in BFLOAT16])
def test_training_in_bfloat16(row):
    cudnn, wanted, labels_bfloat16, *providers = row
    for registered, expected in zip((True, False), providers):
        found = gpu_choice.choose(Facts(False, cudnn, wanted, registered, has_bfloat16=True))
        assert found.labels_bfloat16 == (labels_bfloat16 and registered)
        # The decision to register must not depend on whether the kernels are registered.
        assert found.needs_registration == (providers[0][0] == OURS)
        outcome = found.outcomes[-1]
        assert "bfloat16" in outcome.group and (outcome.ours, outcome.others) == expected
        if WRONG in expected:
            assert "gradient" in outcome.why
            assert ("not registered" in outcome.why) == (not registered)


def test_reasons_without_registration():
    reason = gpu_choice.reason_for_tensorflows
    assert reason(Facts(False, 9, "tensorflow", True, True)) == "CUDNN_RNN_GPU_KERNELS=tensorflow."
    for facts, part in [
        (Facts(False, 8, "", True, True), "cuDNN 8"),
        (Facts(True, 7, "", True, False), "TensorFlow 1."),
    ]:
        assert part in reason(facts) and "Set CUDNN_RNN_GPU_KERNELS=cudnn_rnn" in reason(facts)
