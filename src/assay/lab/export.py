"""Inputs of a task with their answers as files: a folder for Hugging Face's `datasets`, or pairs of text files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from assay.errors import BadInput
from assay.lab.data import held_out
from assay.lab.training_sets import training_set
from assay.spec import RunSpec
from assay.store import make_folder
from assay.tasks.pairs import NO_QUESTION
from assay.tasks.task import IGNORE, Batch, Task, unpadded

CPU = torch.device("cpu")
TRAINING_ROWS = 1000
Row = dict[str, Any]


def write_data(
    spec: RunSpec, splits: Sequence[str], rows: int | None, folder: Path, as_text: bool = False
) -> list[Path]:
    """Write one file (of text: two) for each split, and a page that says what they are; returns the files."""
    if as_text and spec.task.features:
        raise BadInput(f"{spec.task.kind} has real-valued inputs, which cannot be written as words; use --format jsonl")
    files: dict[str, str] = {}
    for split in splits:
        entries = [*split_rows(spec, split, rows)]
        if as_text:
            files[f"{split}.src"] = "".join(f"{' '.join(row['input'])}\n" for row in entries)
            answers = ([NO_QUESTION if a is None else a for a in row["answers"]] for row in entries)
            files[f"{split}.tgt"] = "".join(f"{' '.join(row)}\n" for row in answers)
        else:
            files[f"{split}.jsonl"] = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in entries)
    files["README.md"] = _card(spec, list(files))
    try:
        make_folder(folder)
        for name, text in files.items():
            (folder / name).write_text(text)
    except OSError as error:
        raise BadInput(f"cannot write {folder}: {error.strerror}") from None
    return [folder / name for name in files]


def split_rows(spec: RunSpec, split: str, rows: int | None = None) -> Iterator[Row]:
    """The inputs of a split as plain data: the symbols, and an answer or None for each of them.

    Without `rows`, validation and test sets are those of the run; with another number, their inputs differ.
    """
    task, trained = spec.task, spec.training.lengths
    if split == "train":
        yield from _rows(task, training_set(task, trained, rows or TRAINING_ROWS, CPU), "train")
        return
    validates = split == "validation"
    count = rows or (spec.training.validation_rows if validates else spec.testing.rows)
    for bin_ in spec.training.validation if validates else spec.testing.bins:
        every = spec.testing.every_length and not validates
        held = held_out(task, bin_, trained, count, "validate" if validates else "test", CPU, every)
        yield from _rows(task, held.batch, bin_.name)


def _rows(task: Task, batch: Batch, bin_: str) -> Iterator[Row]:
    lengths = unpadded(batch.inputs).sum(1).tolist()
    for inputs, targets, length in zip(batch.inputs.tolist(), batch.targets.tolist(), lengths, strict=True):
        words = inputs[:length] if task.features else [task.symbols[token - 1] for token in inputs[:length]]
        answers = [None if target == IGNORE else task.answers[target] for target in targets[:length]]
        yield {"bin": bin_, "length": length, "input": words, "answers": answers}


def _card(spec: RunSpec, files: Sequence[str]) -> str:
    """What the files are; its first lines tell `datasets.load_dataset` which file is which split."""
    task = json.dumps(spec.task.plain())
    tables = [name for name in files if name.endswith(".jsonl")]
    splits = "".join(f"  - split: {name.removesuffix('.jsonl')}\n    path: {name}\n" for name in tables)
    head = f"---\nconfigs:\n- config_name: default\n  data_files:\n{splits}---\n" if tables else ""
    bins = ", ".join(f"{bin_.name} {bin_.low} to {bin_.high}" for bin_ in spec.testing.bins)
    return (
        f"{head}# {spec.task.kind}\n\n{(spec.task.__doc__ or '').split(chr(10) * 2)[0].strip()}\n\n"
        f"Inputs of the task `{task}` of Assay, with the answer at every symbol (none where the task does not ask). "
        f"Training lengths: {spec.training.lengths[0]} to {spec.training.lengths[1]}. Test bins: {bins}. No test or "
        "validation input occurs in training, except at lengths with too few inputs to be split.\n"
    )
