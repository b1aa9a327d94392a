"""What users have on disk is read faithfully, or refused in one line that says what is wrong."""

from __future__ import annotations

import itertools
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from test_data import noise

from thermocline import data
from thermocline.spec import InputError


def refusal(name: str, **options: object) -> str:
    """The one line with which `load` turns the input down."""
    with pytest.raises(InputError) as caught:
        data.load(name, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def archive(folder: Path, *, name: str = "set", without: str = "", **changed: object) -> str:
    """An archive of two classes of 20 x 20 images, with some arrays changed or one left out; returns its data-set name."""
    arrays: dict[str, object] = {"y_train": np.array([0, 1, 0, 1, 0, 1]), "y_test": np.array([0, 1, 1, 0])}
    arrays |= {"x_train": noise(6, 20, 20).numpy(), **changed}
    x_train = np.asarray(arrays["x_train"])
    arrays.setdefault("x_test", noise(4, *x_train.shape[1:], seed=1).numpy().astype(x_train.dtype))
    np.savez(folder / f"{name}.npz", **{key: value for key, value in arrays.items() if key != without})  # type: ignore[arg-type]
    return f"arrays:{folder / f'{name}.npz'}"


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("layout", ["n h w c", "n c h w"])
def test_arrays_are_read_in_either_layout(tmp_path: Path, channels: int, layout: str) -> None:
    images = noise(6, channels, 20, 20)
    stored = images.permute(0, 2, 3, 1) if layout == "n h w c" else images
    train, test = data.load(archive(tmp_path, x_train=stored.numpy()))
    assert torch.equal(train.images, images)
    assert train.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert test.labels.tolist() == [0, 1, 1, 0]
    assert (train.classes, train.channels, train.size) == (2, channels, 20)


def test_gray_and_float_arrays_are_the_same_images(tmp_path: Path) -> None:
    images = noise(6, 20, 20)
    as_bytes, _ = data.load(archive(tmp_path, x_train=images.numpy()))
    floats = {"x_train": images.numpy() / np.float32(255), "x_test": np.zeros((4, 20, 20), np.float32)}
    as_floats, test = data.load(archive(tmp_path, name="floats", **floats))
    assert torch.equal(as_bytes.images, images[:, None])
    assert torch.equal(as_floats.images, as_bytes.images)
    assert not test.images.any()


def test_like_turns_gray_to_rgb_and_back(tmp_path: Path) -> None:
    images = noise(6, 20, 20, 3).numpy()
    name = archive(tmp_path, x_train=images)
    colour, _ = data.load(name)
    gray, _ = data.load("runes", classes=2, train=4, test=2, size=20)
    lifted, _ = data.load("runes", classes=2, train=4, test=2, like=colour)
    assert torch.equal(lifted.images, gray.images.expand(-1, 3, -1, -1))
    flattened, _ = data.load(name, like=gray)
    expected = np.stack([np.asarray(Image.fromarray(image).convert("L")) for image in images])
    assert (flattened.images[:, 0].int() - torch.from_numpy(expected).int()).abs().max() <= 1


def sorted_set(tmp_path: Path) -> str:
    y = np.repeat(np.arange(5), 40)
    x = np.broadcast_to(np.arange(200, dtype=np.uint8)[:, None, None], (200, 4, 4))
    return archive(tmp_path, x_train=x, y_train=y, x_test=x[::4], y_test=y[::4])


def test_subsets_of_a_sorted_file_are_balanced_and_repeatable(tmp_path: Path) -> None:
    name = sorted_set(tmp_path)
    train, test = data.load(name, classes=3, train=30, test=7)
    assert train.labels.bincount().tolist() == [10, 10, 10]
    assert sorted(test.labels.bincount().tolist()) == [2, 2, 3]
    assert train.classes == 3
    # The pixel says which image it was: labels went along with the images.
    assert torch.equal(train.images[:, 0, 0, 0].long() // 40, train.labels)
    assert torch.equal(data.load(name, classes=3, train=30, test=7)[0].images, train.images)


def test_larger_subsets_contain_smaller_ones_and_classes_are_the_first(tmp_path: Path) -> None:
    name = sorted_set(tmp_path)
    sets = [{int(image[0, 0, 0]) for image in data.load(name, train=count)[0].images} for count in (5, 12, 50, 200)]
    assert all(small < large for small, large in itertools.pairwise(sets))
    assert data.load(name, classes=3)[0].labels.unique().tolist() == [0, 1, 2]


def test_asking_for_more_than_there_is_says_how_much_there_is(tmp_path: Path) -> None:
    name = sorted_set(tmp_path)
    assert "200" in refusal(name, train=201)
    assert "50" in refusal(name, test=51)
    assert "has 120" in refusal(name, classes=3, train=121)
    assert "has 5" in refusal(name, classes=6)
    assert "without an image" in refusal(name, train=4)


X, Y = np.zeros((6, 20, 20), np.uint8), np.array([0, 1, 0, 1, 0, 1])
BAD_ARRAYS = {
    "missing key": ({"without": "y_test"}, "has no y_test"),
    "no training split": ({"without": "x_train"}, "it serves scan --ood and detect features --split test only"),
    "counts differ": ({"y_train": Y[:5]}, "6 images but y_train has 5 labels"),
    "splits differ": ({"x_test": np.zeros((4, 16, 16), np.uint8)}, "differ in shape"),
    "flat images": ({"x_train": np.zeros((6, 400), np.uint8)}, "(6, 400)"),
    "not square": ({"x_train": np.zeros((6, 20, 24), np.uint8)}, "square"),
    "not square RGB": ({"x_train": np.zeros((6, 20, 24, 3), np.uint8)}, "20 x 24"),
    "not square RGB, channels first": ({"x_train": np.zeros((6, 3, 20, 24), np.uint8)}, "20 x 24"),
    "four channels": ({"x_train": np.zeros((6, 20, 20, 4), np.uint8)}, "1 channel (grey) or 3"),
    "no images": ({"x_train": X[:0], "y_train": Y[:0]}, "no images"),
    "no pixels": ({"x_train": np.zeros((6, 0, 0), np.uint8)}, "without pixels"),
    "float 0 to 255": ({"x_train": X + 255.0}, "[0, 1]"),
    "float below 0": ({"x_train": X - 0.5}, "-0.5"),
    "NaN": ({"x_train": X + np.nan}, "nan"),
    "wide integers": ({"x_train": X.astype(np.int64)}, "uint8"),
    "constant images": ({"x_train": X + np.uint8(7)}, "same value"),
    "float labels": ({"y_train": Y + 0.0}, "integers"),
    "boolean labels": ({"y_train": Y > 0}, "integers"),
    "labels in a column": ({"y_train": Y[:, None]}, "(6, 1)"),
    "negative label": ({"y_train": Y - 1}, "label -1"),
    "huge label": ({"y_train": Y * (1 << 40)}, "label 1099511627776"),
    "skipped label": ({"y_train": Y * 2}, "label 1;"),
    "unseen test label": ({"y_test": np.array([0, 1, 2, 0])}, "label 2"),
    "one class": ({"y_train": Y * 0, "y_test": np.zeros(4, int)}, "one class"),
    "pickle inside": ({"x_train": np.array([{}] * 6, dtype=object), "x_test": X[:4]}, "pickle"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_bad_arrays_are_refused_in_one_line(tmp_path: Path, case: str) -> None:
    changes, expected = BAD_ARRAYS[case]
    message = refusal(archive(tmp_path, **changes))
    assert expected in message
    assert "set.npz" in message


def test_files_that_are_no_archives(tmp_path: Path) -> None:
    for name, content in {"empty": b"", "text": b"hello", "zip": b"PK\x03\x04 torn"}.items():
        (tmp_path / name).write_bytes(content)
        assert "numpy.savez(file, x_train=..., y_train=..., x_test=..., y_test=...)" in refusal(f"arrays:{tmp_path / name}")
    np.save(tmp_path / "one.npy", X)
    assert "single array" in refusal(f"arrays:{tmp_path / 'one.npy'}")
    np.savez(tmp_path / "places.npz", np.zeros(3))
    assert "it has: arr_0; write it with numpy.savez(file, x_train=..., " in refusal(f"arrays:{tmp_path / 'places.npz'}")
    assert "does not exist" in refusal(f"arrays:{tmp_path / 'absent.npz'}")
    assert "cannot be read" in refusal(f"arrays:{tmp_path}")
    assert "arrays:FILE.npz" in refusal("arrays:")


def test_a_damaged_archive_names_the_array(tmp_path: Path) -> None:
    file = Path(archive(tmp_path).partition(":")[2])
    content = bytearray(file.read_bytes())
    with zipfile.ZipFile(file) as whole:
        content[whole.getinfo("x_train.npy").header_offset + 300] ^= 1
    file.write_bytes(content)
    assert "x_train is damaged" in refusal(f"arrays:{file}")


def test_copies_are_served_by_name(tmp_path: Path) -> None:
    archive(tmp_path, name="cifar10")
    archive(tmp_path, name="mine")
    assert data.load("cifar10", data_dir=tmp_path)[0].name == "cifar10"
    assert data.load("mine", data_dir=str(tmp_path))[0].classes == 2
    assert "unknown data set" in refusal(str(tmp_path / "mine"), data_dir=tmp_path)  # a name, not a path


def test_absent_copies_say_what_to_do(tmp_path: Path) -> None:
    assert "--data-dir" in refusal("cifar100")
    archive(tmp_path, name="cifar10")
    message = refusal("svhn", data_dir=tmp_path)
    assert "svhn.npz with x_train" in message
    assert "cifar10" in message
    assert "does not exist" in refusal("svhn", data_dir=tmp_path / "absent")


def picture(path: Path, *shape: int, seed: int = 0) -> np.ndarray:
    pixels = noise(*shape, seed=seed).numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return pixels


def test_a_cut_folder_round_trips(tmp_path: Path) -> None:
    wanted = {}
    for split in ("train", "test"):
        for name in ("b", "a"):
            for number in range(3):
                wanted[split, name, number] = picture(tmp_path / split / name / f"{number}.png", 20, 20, 3, seed=len(wanted))
    (tmp_path / "train" / "a" / "notes.txt").write_text("not an image")
    for split, read in zip(("train", "test"), data.load(f"folder:{tmp_path}")):
        expected = np.stack([wanted[split, name, number] for name in ("a", "b") for number in range(3)])
        assert torch.equal(read.images, torch.from_numpy(expected).permute(0, 3, 1, 2))
        assert read.labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_classes_have_the_names_they_are_given(tmp_path: Path) -> None:
    assert data.load(archive(tmp_path))[0].names == ()
    train, test = data.load(archive(tmp_path, names=np.array(["ant", "bee"])))
    assert train.names == test.names == ("ant", "bee")
    for odd in (np.array(["ant"]), np.array(["ant", "ant"]), np.array([3, 4]), np.array(["ant", "bee"])[None]):
        assert data.load(archive(tmp_path, names=odd))[0].names == (), "none rather than wrong ones"
    for number, name in enumerate("bacabcab"):
        picture(tmp_path / "photos" / name / f"{number}.png", 16, 16, seed=number)
    assert data.load(f"folder:{tmp_path / 'photos'}", classes=2)[0].names == ("a", "b")


def test_an_uncut_folder_is_cut_evenly(tmp_path: Path) -> None:
    for label, name in enumerate(("ant", "bee")):
        for number in range(10):
            picture(tmp_path / name / f"{number}.png", 16, 16, seed=10 * label + number)
    train, test = data.load(f"folder:{tmp_path}")
    assert train.labels.bincount().tolist() == [8, 8]
    assert test.labels.bincount().tolist() == [2, 2]
    assert train.channels == 1
    every = torch.cat([train.images, test.images]).flatten(1)
    assert len(every.unique(dim=0)) == 20
    assert torch.equal(data.load(f"folder:{tmp_path}")[1].images, test.images)


def test_folder_images_of_any_shape_become_squares(tmp_path: Path) -> None:
    tall = np.zeros((60, 20), np.uint8)
    tall[20:40] = 200  # the middle square
    for name in ("a", "b"):
        for number in range(4):
            path = tmp_path / name / f"{number}.png"
            path.parent.mkdir(exist_ok=True)
            Image.fromarray(tall if number else np.full((20, 20), 100, np.uint8)).save(path)
    with pytest.warns(UserWarning, match="not square, such as those of 20 x 60 pixels, are cut to their middle"):
        train, test = data.load(f"folder:{tmp_path}")
    assert set(torch.cat([train.images, test.images]).flatten(1).unique().tolist()) == {100, 200}
    assert train.size == 20
    with pytest.warns(UserWarning, match="are cut"):
        assert data.load(f"folder:{tmp_path}", size=32)[0].size == 32


def test_a_folder_with_one_colour_image_is_read_in_colour(tmp_path: Path) -> None:
    for number in range(6):
        picture(tmp_path / "train" / "ab"[number % 2] / f"{number}.png", *((16, 16, 3) if number == 0 else (16, 16)))
        picture(tmp_path / "test" / "ab"[number % 2] / f"{number}.png", 16, 16)
    train, test = data.load(f"folder:{tmp_path}")
    assert (train.channels, test.channels) == (3, 3)


def two_classes(root: Path) -> None:
    for name in ("a", "b"):
        for number in range(5):
            picture(root / name / f"{number}.png", 16, 16, seed=number)


def test_bad_folders_are_refused(tmp_path: Path) -> None:
    name = f"folder:{tmp_path}"
    assert "does not exist" in refusal(f"folder:{tmp_path / 'absent'}")
    assert "folder:DIR" in refusal("folder:")
    assert "no class folders" in refusal(name)
    (tmp_path / "a").mkdir()
    assert "one class folder (a)" in refusal(name)
    (tmp_path / "b").mkdir()
    assert f"{tmp_path / 'a'} has no images" in refusal(name)
    (tmp_path / "file").touch()
    assert "is not a folder" in refusal(f"folder:{tmp_path / 'file'}")


def test_a_folder_too_small_to_be_cut_says_so(tmp_path: Path) -> None:
    for name in ("a", "b"):
        picture(tmp_path / name / "only.png", 8, 8)
    with pytest.raises(InputError, match="has no test images; where they are cut from the training images, some class must"):
        data.load(f"folder:{tmp_path}")


def test_train_and_test_folders_must_agree(tmp_path: Path) -> None:
    two_classes(tmp_path / "train")
    assert "has train/ but no test/" in refusal(f"folder:{tmp_path}")
    two_classes(tmp_path / "test")
    picture(tmp_path / "test" / "c" / "0.png", 16, 16)
    assert "train/ and test/ must have the same classes, but train/ has no folder 'c'" in refusal(f"folder:{tmp_path}")
    for name in ("c", "d"):
        picture(tmp_path / "train" / name / "0.png", 16, 16)
    assert "but test/ has no folder 'd'" in refusal(f"folder:{tmp_path}")


def test_val_tests_where_there_is_no_test(tmp_path: Path) -> None:
    two_classes(tmp_path / "train")
    two_classes(tmp_path / "val")
    (tmp_path / "val" / "b" / "4.png").unlink()
    assert len(data.load(f"folder:{tmp_path}")[1]) == 9
    two_classes(tmp_path / "test")
    assert len(data.load(f"folder:{tmp_path}")[1]) == 10
    alone = tmp_path / "alone"  # without train/, val is a class like any other
    two_classes(alone)
    (alone / "a").rename(alone / "val")
    assert data.load(f"folder:{alone}")[0].classes == 2


def test_an_unreadable_image_is_named(tmp_path: Path) -> None:
    two_classes(tmp_path)
    bad = tmp_path / "a" / "3.png"
    whole = bad.read_bytes()
    bad.write_bytes(b"not a picture")
    assert str(bad) in refusal(f"folder:{tmp_path}", size=16)
    bad.write_bytes(whole[: len(whole) // 2])
    assert f"{bad} is damaged" in refusal(f"folder:{tmp_path}")
    Image.fromarray(np.full((16, 16), 4000, np.uint16)).save(bad)
    assert "more than 8 bits" in refusal(f"folder:{tmp_path}")


def test_a_test_set_alone_is_other_data(tmp_path: Path) -> None:
    train, whole = data.load("digits")
    x, y = noise(4, 20, 20).numpy(), np.array([3, 0, 3, 5])
    for name, arrays in {"bare": {}, "labelled": {"y_test": y}, "unlabelled": {"x_train": x}}.items():
        np.savez(tmp_path / f"{name}.npz", x_test=x, **arrays)
        none, test = data.load_other(f"arrays:{tmp_path / f'{name}.npz'}", like=train)
        assert none is None
        assert test.images.shape == (4, 1, 8, 8)
        assert torch.equal(test.mean, train.mean)
        assert test.labelled == (name == "labelled")
        assert test.labels.tolist() == (y.tolist() if test.labelled else [-1] * 4)
        _, plain = data.load_other(f"arrays:{tmp_path / f'{name}.npz'}")
        assert torch.equal(plain.take(torch.arange(4)).images[:, 0], torch.from_numpy(x) / 255)
        assert "detect features --split test only" in refusal(f"arrays:{tmp_path / f'{name}.npz'}")
    first, second = data.load_other("digits", like=train)
    assert first is not None
    assert torch.equal(second.images, whole.images)
    np.savez(tmp_path / "short.npz", x_test=x, y_test=y[:3])
    with pytest.raises(InputError, match="4 images but y_test has 3 labels"):
        data.load_other(f"arrays:{tmp_path / 'short.npz'}")


def test_a_folder_may_be_a_test_set_alone(tmp_path: Path) -> None:
    for number in range(3):
        picture(tmp_path / "flat" / f"{number}.png", 16, 16, seed=number)
    two_classes(tmp_path / "tested" / "test")
    none, flat = data.load_other(f"folder:{tmp_path / 'flat'}")
    assert none is None
    assert not flat.labelled
    assert flat.images.shape == (3, 1, 16, 16)
    assert "no class folders" in refusal(f"folder:{tmp_path / 'flat'}")
    none, tested = data.load_other(f"folder:{tmp_path / 'tested'}")
    assert none is None
    assert tested.labels.bincount().tolist() == [5, 5]
    two_classes(tmp_path / "whole")
    picture(tmp_path / "whole" / "stray.png", 16, 16)
    assert data.load_other(f"folder:{tmp_path / 'whole'}")[0] is not None
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="no class folders"):
        data.load_other(f"folder:{tmp_path / 'none'}")


def test_an_unknown_name_gets_the_nearest(tmp_path: Path) -> None:
    assert refusal("rune") == "unknown data set 'rune'; did you mean 'runes'?"
    assert "'cifar10'" in refusal("cifar11")
    assert "valid: runes" in refusal("zzz")
    archive(tmp_path, name="butterflies")
    assert "'butterflies'" in refusal("buterflies", data_dir=tmp_path)


def test_a_path_is_told_how_to_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    Path("hub").mkdir()
    Path("hub/train-0.parquet").touch()
    assert refusal("mine.npz") == "mine.npz is a path: write arrays:mine.npz"
    assert refusal("array:mine.npz") == "unknown data set 'array:mine.npz'; did you mean 'arrays:FILE.npz'?"
    assert refusal("photos") == "photos is a path: write folder:photos"
    assert refusal("./hub") == "./hub is a path: write parquet:./hub"
    assert refusal("").startswith("unknown data set ''; valid: runes")


@pytest.mark.parametrize(
    "name", ["runes:", "runes:x", "runes:-1", "runes:1.5", "runes:²", f"runes:{1 << 32}", "runes:" + "9" * 5000]
)
def test_a_bad_alphabet_seed_is_refused(name: str) -> None:
    assert "whole number from 0 to 4294967295" in refusal(name)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"size": 15}, "16 to 64 pixels"),
        ({"size": 65}, "16 to 64 pixels"),
        ({"classes": 1}, "classes must be at least 2"),
        ({"train": 0}, "train must be at least 1"),
        ({"test": 0}, "test must be at least 1"),
        ({"train": 99}, "some of the 100 classes"),
    ],
)
def test_impossible_wishes_are_refused(options: dict[str, int], expected: str) -> None:
    assert expected in refusal("runes", **options)


def test_digits_takes_no_argument() -> None:
    assert "write digits" in refusal("digits:3")


def test_check_agrees_with_load_and_reads_no_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_classes(tmp_path / "pictures")
    good = ["runes", "runes:7", "digits", archive(tmp_path), f"folder:{tmp_path / 'pictures'}", "set"]
    bad = ["rune", "runes:x", "digits:1", "cifar10", f"arrays:{tmp_path / 'absent'}", f"folder:{tmp_path / 'set.npz'}"]
    bad.append(archive(tmp_path, name="partial", without="y_train"))
    monkeypatch.setattr(Image, "open", None)
    for name in good:
        data.check(name, data_dir=tmp_path)
    for name in bad:
        with pytest.raises(InputError):
            data.check(name, data_dir=tmp_path)


def test_every_listed_name_is_understood(tmp_path: Path) -> None:
    filled = {"runes:SEED": "runes:1", "arrays:FILE.npz": archive(tmp_path), "folder:DIR": f"folder:{tmp_path}"}
    two_classes(tmp_path)
    table = pa.table({"image": [b"not looked at"], "label": [0]})
    for split in ("train", "test"):
        pq.write_table(table, tmp_path / f"{split}.parquet")
    filled["parquet:DIR"] = f"parquet:{tmp_path}"
    for copy in ("cifar10", "cifar100", "svhn", "imagenet", "imagenet100"):
        archive(tmp_path, name=copy)
    for pattern in data.NAMES:
        data.check(filled.get(pattern, pattern), data_dir=tmp_path)
