"""Hugging Face's files: found by their names, read in any of the ways images are stored, refused in one line."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from test_data_files import refusal

from thermocline import data
from thermocline.data import parquet
from thermocline.spec import InputError


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def encoded(image: np.ndarray, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, kind)
    return stream.getvalue()


def struct(images: Any) -> list[dict[str, Any]]:
    return [{"bytes": encoded(image), "path": f"{i}.png"} for i, image in enumerate(images)]


def store(path: Path, images: Any, labels: Any, *, image: str = "image", label: str = "label", **more: Any) -> Path:
    """A file of images (a list of cells, or an array to encode as Hugging Face does), in row groups of 3."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cells = struct(images) if isinstance(images, np.ndarray) else images
    pq.write_table(pa.table({image: cells, label: pa.array(labels), **more}), path, row_group_size=3)
    return path


LABELS = [0, 1, 0, 1, 1, 0, 1, 0, 1, 0]


def simple(root: Path, **names: str) -> np.ndarray:
    """Ten training images in two files, four test images; returns the training images."""
    images = noise(10, 8, 8, 3)
    store(root / "train-00000-of-00002.parquet", images[:7], LABELS[:7], **names)
    store(root / "train-00001-of-00002.parquet", images[7:], LABELS[7:], **names)
    store(root / "test-00000-of-00001.parquet", noise(4, 8, 8, 3, seed=1), [0, 1, 1, 0], **names)
    return images


def channels_first(images: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(images.transpose(0, 3, 1, 2).copy())


@pytest.mark.parametrize("inside", [".", "data", "plain_text"])
@pytest.mark.parametrize(("image", "label"), [("image", "label"), ("img", "fine_label"), ("img", "labels")])
def test_a_set_round_trips_from_any_place_and_usual_columns(tmp_path: Path, inside: str, image: str, label: str) -> None:
    images = simple(tmp_path / inside, image=image, label=label)
    train, test = data.load(f"parquet:{tmp_path}")
    assert torch.equal(train.images, channels_first(images))
    assert train.labels.tolist() == LABELS
    assert torch.equal(test.images, channels_first(noise(4, 8, 8, 3, seed=1)))
    assert test.labels.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(("written", "names"), [("", ()), ("names", ("cat", "dog")), ("damaged", ())])
def test_classes_have_the_names_that_hugging_face_wrote(tmp_path: Path, written: str, names: tuple[str, ...]) -> None:
    simple(tmp_path)
    text = json.dumps({"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}})
    if written:
        path = tmp_path / "train-00000-of-00002.parquet"
        table = pq.read_table(path)
        pq.write_table(table.replace_schema_metadata({"huggingface": text if written == "names" else text[:9]}), path)
    assert data.load(f"parquet:{tmp_path}")[0].names == names


def test_rows_are_chosen_across_files_and_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_ROWS", 2)  # so that a row group is read in more than one piece
    every = channels_first(simple(tmp_path))
    files = tuple(sorted(tmp_path.glob("train-*")))
    for chosen in ([0, 9], [2, 3, 6, 7], [5], list(range(10)), []):
        indices = torch.tensor(chosen, dtype=torch.int64)
        read = list(parquet.images(files, indices, column="image", size=8, channels=3, exact=True, sizes=set()))
        assert all(len(some) <= 2 for some in read)
        assert torch.equal(torch.cat([every[:0], *read]), every[indices])


def test_row_groups_without_a_chosen_image_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simple(tmp_path)
    read: list[int] = []
    real = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile, "iter_batches", lambda self, *a, **k: read.extend(k["row_groups"]) or real(self, *a, **k)
    )
    files = tuple(sorted(tmp_path.glob("train-*")))
    list(parquet.images(files, torch.tensor([1, 6]), column="image", size=8, channels=3, exact=True, sizes=set()))
    assert read == [0, 2]


def test_other_columns_and_splits_are_named(tmp_path: Path) -> None:
    for split, seed in (("train", 0), ("test", 1), ("extra", 2)):
        more = {"coarse": pa.array([1, 0] * 3), "picture": struct(noise(6, 8, 8, seed=seed + 10))}
        store(tmp_path / f"{split}-00000-of-00001.parquet", noise(6, 8, 8, 3, seed=seed), [0, 1] * 3, **more)
    name = f"parquet:{tmp_path}"
    assert data.load(f"{name}:label=coarse")[0].labels.tolist() == [1, 0] * 3
    train, test = data.load(f"{name}:image=picture:label=coarse:test=extra")
    assert train.channels == 1
    assert test.images[:, 0].numpy().tolist() == noise(6, 8, 8, seed=12).tolist()
    assert torch.equal(data.load(f"{name}:train=extra")[0].images, channels_first(noise(6, 8, 8, 3, seed=2)))
    assert "unknown column 'coarze'; did you mean 'coarse'?" in refusal(f"{name}:label=coarze")
    assert "unknown split 'extras'; did you mean 'extra'?" in refusal(f"{name}:test=extras")
    assert "unknown option 'lable'; did you mean 'label'?" in refusal(f"{name}:lable=coarse")
    assert "give label once" in refusal(f"{name}:label=coarse:label=label")
    assert "and a value" in refusal(f"{name}:label=")


def test_validation_tests_where_there_is_no_test(tmp_path: Path) -> None:
    simple(tmp_path)
    (tmp_path / "test-00000-of-00001.parquet").rename(tmp_path / "validation-00000-of-00001.parquet")
    assert data.load(f"parquet:{tmp_path}")[1].labels.tolist() == [0, 1, 1, 0]
    store(tmp_path / "test-00000-of-00001.parquet", noise(2, 8, 8, 3), [-1, -1])
    assert "unlabelled; choose another split" in refusal(f"parquet:{tmp_path}")
    assert len(data.load(f"parquet:{tmp_path}:test=validation")[1]) == 4


def test_splits_may_be_folders(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for part in range(2):
            store(tmp_path / "default" / split / f"{part:04}.parquet", noise(4, 8, 8, 3, seed=part), [0, 1, 0, 1])
    train, _ = data.load(f"parquet:{tmp_path}")
    assert torch.equal(train.images, torch.cat([channels_first(noise(4, 8, 8, 3, seed=part)) for part in range(2)]))


def test_one_split_is_cut_if_asked(tmp_path: Path) -> None:
    images = noise(20, 8, 8, 3)
    file = store(tmp_path / "train-00000-of-00001.parquet", images, [0, 1] * 10)
    assert "add :test=train" in refusal(f"parquet:{tmp_path}")
    for name in (f"parquet:{tmp_path}:test=train", f"parquet:{file}"):
        train, test = data.load(name)
        assert train.labels.bincount().tolist() == [8, 8]
        assert test.labels.bincount().tolist() == [2, 2]
        assert {x.numpy().tobytes() for x in torch.cat([train.images, test.images])} == {
            x.numpy().tobytes() for x in channels_first(images)
        }


def test_a_folder_of_several_sets_asks_which(tmp_path: Path) -> None:
    simple(tmp_path / "cropped")
    simple(tmp_path / "full")
    assert "holds several sets: cropped, full" in refusal(f"parquet:{tmp_path}")
    assert len(data.load(f"parquet:{tmp_path / 'full'}")[0]) == 10


STORED = {
    "bytes": lambda images: [encoded(image) for image in images],
    "nested lists": lambda images: [image.tolist() for image in images],
    "bytes in lists": lambda images: pa.array([image.tolist() for image in images], pa.list_(pa.list_(pa.list_(pa.uint8())))),
    "fixed lists": lambda images: pa.array(
        [image.tolist() for image in images], pa.list_(pa.list_(pa.list_(pa.uint8(), 3), 8), 8)
    ),
    "floats": lambda images: [(image / 255).tolist() for image in images],
    "channels first": lambda images: [image.transpose(2, 0, 1).tolist() for image in images],
}


@pytest.mark.parametrize("how", STORED)
def test_images_are_read_however_they_are_stored(tmp_path: Path, how: str) -> None:
    images = noise(6, 8, 8, 3)
    for split in ("train", "test"):
        store(tmp_path / f"{split}.parquet", STORED[how](images), [0, 1] * 3)
    train, _ = data.load(f"parquet:{tmp_path}", train=4)
    assert all(any(torch.equal(image, one) for one in channels_first(images)) for image in train.images)
    assert data.load(f"parquet:{tmp_path}", size=16)[1].size == 16


def test_images_of_different_sizes_need_a_size(tmp_path: Path) -> None:
    pictures = [noise(8, 8, 3), noise(8, 8, 3), noise(12, 8, 3), noise(8, 8)]
    file = store(tmp_path / "train.parquet", [encoded(p) for p in pictures], [0, 1, 0, 1])
    store(tmp_path / "test.parquet", [encoded(p) for p in pictures[:2]], [0, 1])
    assert f"{file}: row 2 has 8 x 12 pixels, others 8 x 8" in refusal(f"parquet:{tmp_path}")
    with pytest.warns(UserWarning, match="such as those of 8 x 12 pixels, are cut to their middle"):
        train, _ = data.load(f"parquet:{tmp_path}", size=8)
    assert torch.equal(train.images[2], torch.from_numpy(pictures[2][2:10].transpose(2, 0, 1).copy()))
    assert torch.equal(train.images[3], torch.from_numpy(pictures[3]).expand(3, -1, -1))
    store(tmp_path / "train.parquet", [encoded(p) for p in pictures[2:]], [0, 1])
    assert "row 0 has 8 x 12 pixels; say at what size" in refusal(f"parquet:{tmp_path}")
    store(tmp_path / "train.parquet", [p.tolist() for p in pictures[:3]], [0, 1, 0])
    assert "must all have one size" in refusal(f"parquet:{tmp_path}", size=8)


def test_a_set_is_gray_only_if_all_of_it_is(tmp_path: Path) -> None:
    gray, colour = [encoded(noise(8, 8, seed=i)) for i in range(4)], encoded(noise(8, 8, 3))
    store(tmp_path / "test.parquet", gray[:2], [0, 1])
    store(tmp_path / "train.parquet", gray, [0, 1, 0, 1])
    assert data.load(f"parquet:{tmp_path}")[0].channels == 1
    store(tmp_path / "train.parquet", [*gray[:3], colour], [0, 1, 0, 1])
    assert data.load(f"parquet:{tmp_path}")[0].channels == 3


def test_like_reads_at_the_other_size(tmp_path: Path) -> None:
    simple(tmp_path)
    base, _ = data.load("runes", classes=2, train=4, test=2)
    assert data.load(f"parquet:{tmp_path}", like=base)[0].images.shape == (10, 1, 16, 16)


HUGGING_FACE = pa.struct({"bytes": pa.binary(), "path": pa.string()})
BAD_TABLES = {
    "no images": ({"image": "picture"}, "no column image or img; it has picture, label: say which with :image=COLUMN"),
    "no labels": ({"label": "class"}, "no column label or fine_label or labels"),
    "label names": ({"labels": ["cat"] * 6}, "label is string"),
    "missing labels": ({"labels": [0, 1, 0, 1, None, 1]}, "1 rows without a label"),
    "images as text": ({"images": ["a.png"] * 6}, "image is string"),
    "paths only": ({"images": pa.array([{"bytes": None, "path": "a.png"}] * 6, HUGGING_FACE)}, "row 0 holds no image"),
    "damaged image": ({"images": [encoded(noise(8, 8, 3))] * 5 + [encoded(noise(8, 8, 3))[:60]]}, "row 5"),
    "not an image": ({"images": [b"hello"] * 6}, "row 0 cannot be read as an image"),
    "deep pixels": ({"images": [encoded(np.full((8, 8), 4000, np.uint16))] * 6}, "more than 8 bits"),
    "flat lists": ({"images": [[1] * 64] * 6}, "expected (n, h, w)"),
    "large values": ({"images": [[[300] * 8] * 8] * 6}, "must be uint8"),
    "no pixel": ({"images": [[[None] * 8] * 8] * 6}, "without a value"),
    "not square": ({"images": [[[3] * 8] * 6] * 6}, "6 x 8"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_tables_are_refused_in_one_line(tmp_path: Path, case: str) -> None:
    simple(tmp_path)
    for part in tmp_path.glob("train-*"):
        part.unlink()
    changes, expected = BAD_TABLES[case]
    arguments: dict[str, Any] = {"images": noise(6, 8, 8, 3), "labels": [0, 1] * 3, **changes}
    file = store(tmp_path / "train.parquet", **arguments)
    message = refusal(f"parquet:{tmp_path}")
    assert expected in message
    assert str(file) in message


def test_what_is_no_set_is_refused(tmp_path: Path) -> None:
    assert "write parquet:DIR" in refusal("parquet:")
    assert "write parquet:DIR" in refusal("parquet")
    assert f"{tmp_path / 'absent'} does not exist" in refusal(f"parquet:{tmp_path / 'absent'}")
    assert "no .parquet files" in refusal(f"parquet:{tmp_path}")
    simple(tmp_path)
    part = tmp_path / "train-00001-of-00002.parquet"
    content = part.read_bytes()
    for torn in (content[: len(content) // 2], b"", b"hello"):
        part.write_bytes(torn)
        assert f"{part} is damaged" in refusal(f"parquet:{tmp_path}")
    part.unlink()
    assert "has 1 of the 2 files" in refusal(f"parquet:{tmp_path}")


def test_files_of_one_set_must_agree(tmp_path: Path) -> None:
    simple(tmp_path)
    part = store(tmp_path / "train-00001-of-00002.parquet", noise(3, 8, 8, 3), [0, 1, 0], image="img")
    assert f"{part} has other columns" in refusal(f"parquet:{tmp_path}")


def test_check_reads_no_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simple(tmp_path)
    monkeypatch.setattr(Image, "open", None)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", None)
    data.check(f"parquet:{tmp_path}")
    for bad in (":label=x", ":test=x", ":size=3"):
        with pytest.raises(InputError):
            data.check(f"parquet:{tmp_path}{bad}")
