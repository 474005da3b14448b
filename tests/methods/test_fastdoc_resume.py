"""A FastDoc run that was stopped: it goes on as it was, and with nothing else."""

from pathlib import Path
from typing import Any

import pytest
import torch

from encodeonce.errors import RunError
from encodeonce.methods.fastdoc.examples import DocumentExamples
from encodeonce.methods.fastdoc.fastdoc import FastDoc
from encodeonce.methods.fastdoc.objective import Objective

from .test_fastdoc import Checkpoint, documents, examples, masked_trainee, trained, trainee, window_list


class Stop(Exception):
    pass


def stopped_after(method: FastDoc, data: DocumentExamples, folder: Path, n: int = 3, **settings: Any) -> None:
    """A run that breaks off in its `n` + 1st batch, with a checkpoint after each."""
    losses, calls = method.losses, []

    def stopping(batch: Any, names: Any) -> Any:
        calls.append(1)
        if len(calls) == n + 1:
            raise Stop
        return losses(batch, names)

    method.losses = stopping  # type: ignore[method-assign]
    with pytest.raises(Stop):
        trained(method, data, folder, save_steps=1, **settings)


def test_a_run_stopped_and_gone_on_with_ends_the_same(checkpoint: Checkpoint, tmp_path: Path) -> None:
    data = examples(documents(), windows=window_list(checkpoint), windows_per_batch=2)
    whole = masked_trainee(checkpoint, "combined")
    whole.trace_every = 1
    trained(whole, data, tmp_path / "whole", num_train_epochs=2)

    half = masked_trainee(checkpoint, "combined")
    half.trace_every = 1
    stopped_after(half, data, tmp_path / "half", num_train_epochs=2)
    again = masked_trainee(checkpoint, "combined")
    again.trace_every = 1
    trained(again, data, tmp_path / "half", num_train_epochs=2, save_steps=1)
    assert again.trace == whole.trace
    for key, tensor in whole.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[key]), key


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"margin": 7.0}, "method.objective.margin: '(absent)' then, 7.0 now"),
        ({"reduction": "mean"}, "method.objective.reduction: '(absent)' then, 'mean' now"),
        ({"compute": "bf16"}, "method.objective.compute: '(absent)' then, 'bf16' now"),
    ],
)
def test_another_objective_of_the_same_shapes_is_refused(
    checkpoint: Checkpoint, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    data = examples(documents())
    stopped_after(trainee(checkpoint), data, tmp_path, 1)
    with pytest.raises(RunError) as refused:
        trained(trainee(checkpoint, **changes), data, tmp_path, save_steps=1)
    assert message in str(refused.value)
    trained(trainee(checkpoint), data, tmp_path, save_steps=1)


def test_other_windows_beside_the_same_tuples_are_refused(checkpoint: Checkpoint, tmp_path: Path) -> None:
    windows = window_list(checkpoint)
    stopped_after(
        masked_trainee(checkpoint, "combined"), examples(documents(), windows=windows, windows_per_batch=2), tmp_path, 1
    )
    more = examples(documents(), windows=windows, windows_per_batch=3)
    with pytest.raises(RunError, match="windows_per_batch: '2' then, '3' now"):
        trained(masked_trainee(checkpoint, "combined"), more, tmp_path, save_steps=1)


def test_another_scale_of_the_vectors_is_another_run(checkpoint: Checkpoint) -> None:
    stack = masked_trainee(checkpoint, "masked").blocks.stack
    objective = Objective.named("triplet", scale="token")
    one, two = (FastDoc(stack, objective, token_scale=scale).described() for scale in (1.5, 2.5))
    assert one != two
    assert one["objective"] == {"hierarchy": False, "scale": "token"}
    assert FastDoc(stack, Objective.named("triplet"), token_scale=2.5).described()["token_scale"] == 1.0


def test_padding_of_windows_is_counted(checkpoint: Checkpoint) -> None:
    """fp32 runs windows of unlike lengths padded to the longest; none of it was counted, and 0 % printed."""
    method = masked_trainee(checkpoint, "masked")
    windows = window_list(checkpoint)
    trained(method, DocumentExamples(windows=tuple(windows)), num_train_epochs=2)
    found = method.window_positions
    assert found["real"] == 2 * sum(len(window.ids) for window in windows)
    assert found["run"] > found["real"]
    assert method.positions == {"real": 0, "run": 0}
