"""Well-known sets are read from whichever copy is there, without running what is in it, if they fit in memory."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image
from test_data_files import refusal
from test_data_parquet import noise, store

from thermocline import data
from thermocline.data import copies, decoding, memory
from thermocline.spec import InputError


class Python2(pickle._Pickler):
    """Writes text and bytes as the strings of Python 2, as the published files have them."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_string(self, value: str | bytes) -> None:
        raw = value.encode("latin1") if isinstance(value, str) else value
        self.write(pickle.BINSTRING + len(raw).to_bytes(4, "little") + raw)
        self.memoize(value)

    dispatch[str] = dispatch[bytes] = save_string


def batch(path: Path, images: np.ndarray, **labels: list[int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    stream = io.BytesIO()
    Python2(stream, protocol=2).dump({"batch_label": "one", "data": images.reshape(len(images), -1), **labels})
    path.write_bytes(stream.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))


def cifar10(root: Path) -> np.ndarray:
    images = noise(20, 3, 32, 32)
    for part in range(5):
        here = slice(4 * part, 4 * part + 4)
        batch(root / f"cifar-10-batches-py/data_batch_{part + 1}", images[here], labels=[0, 1, 0, 1])
    batch(root / "cifar-10-batches-py/test_batch", noise(4, 3, 32, 32, seed=1), labels=[1, 1, 0, 0])
    return images


def test_cifar10_of_torchvision(tmp_path: Path) -> None:
    images = cifar10(tmp_path)
    train, test = data.load("cifar10", data_dir=tmp_path)
    assert torch.equal(train.images, torch.from_numpy(images))
    assert train.labels.tolist() == [0, 1] * 10
    assert torch.equal(test.images, torch.from_numpy(noise(4, 3, 32, 32, seed=1)))
    assert test.labels.tolist() == [1, 1, 0, 0]


def test_cifar100_of_torchvision_has_fine_labels(tmp_path: Path) -> None:
    for split, seed in (("train", 0), ("test", 1)):
        labels = {"fine_labels": [0, 1, 2, 0, 1, 2], "coarse_labels": [0, 0, 1, 0, 0, 1]}
        batch(tmp_path / "cifar-100-python" / split, noise(6, 3, 32, 32, seed=seed), **labels)
    train, test = data.load("cifar100", data_dir=tmp_path)
    assert (train.classes, train.labels.tolist()) == (3, [0, 1, 2, 0, 1, 2])
    assert torch.equal(test.images, torch.from_numpy(noise(6, 3, 32, 32, seed=1)))


def mats(root: Path) -> None:
    for split, seed in (("train", 0), ("test", 1)):
        arrays = {"X": noise(32, 32, 3, 20, seed=seed), "y": np.array([10, *range(1, 10)] * 2, np.uint8)[:, None]}
        scipy.io.savemat(root / f"{split}_32x32.mat", arrays, do_compression=True)


def test_svhn_of_torchvision_calls_ten_zero(tmp_path: Path) -> None:
    mats(tmp_path)
    train, test = data.load("svhn", data_dir=tmp_path)
    assert train.labels.tolist() == list(range(10)) * 2
    assert torch.equal(test.images, torch.from_numpy(noise(32, 32, 3, 20, seed=1).transpose(3, 2, 0, 1).copy()))


class Trap:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.file),)


def test_no_code_of_a_pickle_is_run(tmp_path: Path) -> None:
    cifar10(tmp_path)
    file = tmp_path / "cifar-10-batches-py/data_batch_3"
    for where in ("data", "labels", "more"):
        plain = {"data": noise(4, 3072), "labels": [0, 1, 0, 1], where: Trap(tmp_path / "sprung")}
        file.write_bytes(pickle.dumps(plain))
        assert f"{file} is damaged, or no batch of CIFAR: it names posix.mkdir" in refusal("cifar10", data_dir=tmp_path)
    assert not (tmp_path / "sprung").exists()
    pickle.loads(file.read_bytes())  # the negative control: the trap works
    assert (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    "function", ["builtins eval", "os system", "numpy load", "numpy._core.multiarray fromfile", "_codecs encode"]
)
def test_only_what_builds_arrays_may_be_named(tmp_path: Path, function: str) -> None:
    cifar10(tmp_path)
    file = tmp_path / "cifar-10-batches-py/test_batch"
    file.write_bytes(b"c" + function.replace(" ", "\n").encode() + b"\n.")
    assert f"it names {function.replace(' ', '.')}" in refusal("cifar10", data_dir=tmp_path)


def test_damaged_copies_are_named(tmp_path: Path) -> None:
    cifar10(tmp_path)
    file = tmp_path / "cifar-10-batches-py/data_batch_2"
    whole = file.read_bytes()
    for torn in (whole[:-100], b"", b"hello", pickle.dumps([1]), pickle.dumps({"data": noise(4, 3000), "labels": [0] * 4})):
        file.write_bytes(torn)
        assert f"{file} is damaged" in refusal("cifar10", data_dir=tmp_path)
    file.write_bytes(pickle.dumps({"data": noise(4, 3072), "labels": [0] * 3}))
    assert f"{file} has 4 images but 3 labels" in refusal("cifar10", data_dir=tmp_path)
    file.unlink()
    assert f"{file} is missing" in refusal("cifar10", data_dir=tmp_path)
    mats(tmp_path)
    (tmp_path / "test_32x32.mat").write_bytes(b"MATLAB 5.0 torn")
    assert f"{tmp_path / 'test_32x32.mat'} is damaged" in refusal("svhn", data_dir=tmp_path)


def test_copies_in_hugging_face_layout(tmp_path: Path) -> None:
    for split in ("train", "test"):
        store(tmp_path / f"cifar10/plain_text/{split}-00000-of-00001.parquet", noise(4, 32, 32, 3), [0, 1, 0, 1], image="img")
        for config in ("cropped_digits", "full_numbers"):
            store(tmp_path / f"svhn/{config}/{split}-00000-of-00001.parquet", noise(4, 32, 32, 3), [0, 1, 0, 1], image="img")
    for name in ("cifar10", "svhn"):
        data.check(name, data_dir=tmp_path)
        train, _ = data.load(name, data_dir=tmp_path)
        assert torch.equal(train.images, torch.from_numpy(noise(4, 32, 32, 3).transpose(0, 3, 1, 2).copy()))


def test_the_order_of_copies_is_npz_then_torchvision_then_hugging_face(tmp_path: Path) -> None:
    def first() -> int:
        return len(data.load("cifar10", data_dir=tmp_path)[0])

    for split in ("train", "test"):
        store(tmp_path / f"cifar10/{split}.parquet", noise(6, 32, 32, 3), [0, 1] * 3, image="img")
    assert first() == 6
    cifar10(tmp_path)
    assert first() == 20
    arrays = {"x_train": noise(2, 32, 32, 3), "y_train": [0, 1], "x_test": noise(2, 32, 32, 3), "y_test": [0, 1]}
    np.savez(tmp_path / "cifar10.npz", **arrays)  # type: ignore[arg-type]
    assert first() == 2


def test_what_is_missing_says_every_layout(tmp_path: Path) -> None:
    for name, layouts in {
        "cifar10": ["cifar10.npz with x_train", "cifar-10-batches-py/", "cifar10/*.parquet"],
        "svhn": ["svhn.npz", "train_32x32.mat", "svhn/*.parquet"],
        "imagenet": ["imagenet/train/CLASS/*", "imagenet/val/CLASS/*"],
        "imagenet100": ["imagenet100/train/CLASS/*", "imagenet100.txt"],
    }.items():
        message = refusal(name, data_dir=tmp_path)
        assert all(layout in message for layout in layouts), message
        assert str(tmp_path) in message
        assert "--data-dir" in refusal(name)


def photographs(root: Path, classes: list[str], parts: tuple[str, ...] = ("train", "val")) -> None:
    for part in parts:
        for number, name in enumerate(classes):
            (root / part / name).mkdir(parents=True)
            for shot in range(2):
                pixels = np.full((30, 60, 3), 2 * number + shot, np.uint8)
                pixels[:, :5] = pixels[:, -5:] = 255  # what the middle square leaves out
                Image.fromarray(pixels).save(root / part / name / f"{shot}.JPEG", "PNG")


def test_imagenet_is_read_at_the_size_asked_and_val_tests(tmp_path: Path) -> None:
    photographs(tmp_path / "imagenet", ["n02", "n01", "n03"])
    (tmp_path / "imagenet/test").mkdir()  # as published: without labels
    data.check("imagenet", data_dir=tmp_path)
    train, test = data.load("imagenet", data_dir=tmp_path, size=16)
    assert train.images.shape == (6, 3, 16, 16)
    assert train.images[:, 0, 0, 0].tolist() == [2, 3, 0, 1, 4, 5]  # classes in the order of their names
    assert (train.images.flatten(1).float().var(1) == 0).all()
    assert test.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert data.load("imagenet", data_dir=tmp_path, classes=2, train=2, test=2)[0].images.shape == (2, 3, 224, 224)


def test_imagenet100_is_its_own_folder_or_a_list_of_imagenets_classes(tmp_path: Path) -> None:
    names = [f"n{number:08}" for number in range(103)]
    photographs(tmp_path / "imagenet", names)
    assert "imagenet100.txt beside imagenet/" in refusal("imagenet100", data_dir=tmp_path)
    listed = tmp_path / "imagenet100.txt"
    listed.write_text("# mine\n" + "".join(f"{name} a thing\n" for name in reversed(names[3:])))
    train, test = data.load("imagenet100", data_dir=tmp_path, size=8)
    assert (train.classes, len(train), len(test)) == (100, 200, 200)
    assert train.images[:2, 0, 0, 0].tolist() == [6, 7]  # class 3 of imagenet is class 0 here
    listed.write_text("\n".join(names[:99]))
    assert f"{listed} lists 99 classes" in refusal("imagenet100", data_dir=tmp_path)
    listed.write_text("\n".join([*names[:99], "n99"]))
    assert "has no folder of class n99 (1 of 100 are missing)" in refusal("imagenet100", data_dir=tmp_path)
    listed.unlink()
    photographs(tmp_path / "imagenet100", names[:3])
    assert data.load("imagenet100", data_dir=tmp_path, size=8)[0].classes == 3


def test_a_set_that_does_not_fit_says_what_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photographs(tmp_path / "imagenet", [f"n{number}" for number in range(10)])  # 20 + 20 images
    monkeypatch.setattr(memory, "available", lambda: 40 * 3 * 100**2)
    monkeypatch.setattr(decoding, "squares", None)  # it is found out before any is decoded
    message = refusal("imagenet", data_dir=tmp_path)
    assert message == (
        "imagenet: 40 images of 224 x 224 pixels take 0.0 GB, but 0.0 GB of memory are free; data.size=88 (0.0 GB) would fit"
    )
    message = refusal("imagenet", data_dir=tmp_path, size=100)
    assert "data.size=88 (0.0 GB) or data.train=16 would fit" in message
    monkeypatch.undo()
    monkeypatch.setattr(memory, "available", lambda: 40 * 3 * 100**2)
    for advice in ({"size": 88}, {"size": 100, "train": 16}):
        data.load("imagenet", data_dir=tmp_path, **advice)


def test_all_of_imagenet_takes_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 64 * 10**9)
    with pytest.raises(InputError, match="take 200.4 GB, but 64.0 GB .* data.size=120 .57.5 GB. or data.train=330000 would"):
        memory.check("imagenet", 1_281_167, 50_000, shape=(3, 224, 224))
    memory.check("imagenet", 1_281_167, 50_000, shape=(3, 64, 64))
    monkeypatch.setattr(memory, "available", lambda: 1000)
    with pytest.raises(InputError, match="take fewer with data.train and data.test"):
        memory.check("imagenet", 1_281_167, 50_000, shape=(3, 64, 64))


def test_memory_is_the_least_of_what_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < memory.available() < 1 << 50
    monkeypatch.setattr(memory, "_machine", lambda: 300)
    monkeypatch.setattr(memory, "_container", lambda: None)
    assert memory.available() == 300
    monkeypatch.setattr(memory, "_container", lambda: 200)
    assert memory.available() == 200
    monkeypatch.setattr(memory, "_machine", lambda: None)
    monkeypatch.setattr(memory, "_container", lambda: None)
    assert memory.available() is None
    memory.check("any", 1 << 40, 1, shape=(3, 224, 224))


def test_images_stay_in_main_memory_where_the_card_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    images = [torch.zeros(many, 3, 8, 8, dtype=torch.uint8) for many in (8, 2)]  # 1,920 bytes
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 1900)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 900)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2840, 10**6))
    assert memory.home("some", images, "cuda:1") == torch.device("cuda:1")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2839, 10**6))
    with pytest.warns(UserWarning, match="some: 0.0 GB of images stay in main memory .of 0.0 GB free on cuda:1, half are left"):
        assert memory.home("some", images, "cuda:1") == torch.device("cpu")
    assert memory.home("some", images, "cpu") == torch.device("cpu")


def test_every_process_of_torchrun_needs_room_for_all_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 4000)
    memory.check("any", 1, 1, shape=(3, 16, 16))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    with pytest.raises(InputError, match="any: 2 images of 16 x 16 pixels take"):
        memory.check("any", 1, 1, shape=(3, 16, 16))


def test_a_forged_array_is_refused_before_numpy_sees_it(tmp_path: Path) -> None:
    """An array of objects over raw bytes would be followed as pointers."""

    class Kind:
        def __reduce__(self):
            return np.dtype, ("O", False, True), (3, "|", None, None, None, -1, -1, 0)

    class Array:
        def __reduce__(self):
            return np.ndarray, ((1,), Kind(), b"A" * 8)

    file = tmp_path / "data_batch_1"
    file.write_bytes(pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": [Array()]}, protocol=4))
    with pytest.raises(InputError, match="it has an array of 'O'"):
        copies._batch(file)
