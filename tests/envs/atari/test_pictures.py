import numpy as np
import pytest

pytest.importorskip("ale_py")
cv2 = pytest.importorskip("cv2")
from numba import njit  # noqa: E402

from trellis.envs.atari.game import PREPROCESSINGS, AtariGame, emulator  # noqa: E402
from trellis.envs.atari.kernels import UNKNOWN, compiled, taps, update_gray  # noqa: E402
from trellis.envs.atari.pictures import Pictures, shrinking  # noqa: E402

STANDARD, TALL = (210, 160), (250, 160)


def resized(picture, height, width):
    return cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)


def by_opencv(name, picture):
    if name == "paper":
        margin = (len(picture) - 208) // 2
        return resized(picture[margin : margin + 208], 52, 40)
    if name == "mnih-2013":
        return resized(picture, 110, 84)[18:102]
    return resized(picture, 84, 84)


@pytest.mark.parametrize(("source", "target"), [(210, 84), (160, 84), (210, 110), (208, 52)])
def test_weights_are_the_overlaps_of_pixels(source, target):
    found = taps(source, target)
    dense = np.zeros((target, source))
    for k in range(found.weights.shape[1]):
        dense[np.arange(target), found.first.astype(int) + k] += found.weights[0, k]
    fine = np.arange(source * target)  # cells that divide source and target pixels
    shared = np.zeros((target, source))
    np.add.at(shared, (fine // source, fine // target), 1)
    np.testing.assert_array_equal(dense * (source / found.total), shared)
    np.testing.assert_allclose(found.weights[1].sum(axis=0), 1, rtol=1e-6)


@pytest.mark.parametrize("screen", [STANDARD, TALL])
@pytest.mark.parametrize("name", list(PREPROCESSINGS))
def test_frames_are_the_bytes_of_opencv(name, screen):
    rng = np.random.default_rng(0)
    seen = PREPROCESSINGS[name]
    shrink = shrinking(AtariGame("pong", name), screen)
    frames = np.zeros((3, seen.height, seen.width), np.uint8)
    expected = list(frames.copy())
    halves = 0
    for colours in (2, 7, 255):  # few colours give many halves
        for _ in range(20):
            picture = rng.integers(colours, size=screen).astype(np.uint8) * np.uint8(255 // colours)
            shrink(picture, np.ones(screen[0], bool), frames)
            expected = [*expected[1:], by_opencv(name, picture)]
            np.testing.assert_array_equal(frames, expected)
            if name == "gymnasium" and screen == STANDARD:
                areas = picture.astype(int).repeat(2, 0).reshape(84, 5, 160).sum(1)
                sums = areas.repeat(21, 1).reshape(84, 84, 40).sum(2)
                halves += np.sum(sums % 200 == 100)
    if name == "gymnasium" and screen == STANDARD:
        assert halves > 1000


def test_rows_that_did_not_change_are_not_computed():
    rng = np.random.default_rng(1)
    shrink = shrinking(AtariGame("pong"), STANDARD)
    picture = rng.integers(256, size=STANDARD).astype(np.uint8)
    frames = np.zeros((2, 84, 84), np.uint8)
    shrink(picture, np.ones(210, bool), frames)
    before = frames[-1].copy()
    changed = np.zeros(210, bool)
    changed[[0, 57, 209]] = True
    picture[...] = rng.integers(256, size=STANDARD).astype(np.uint8)
    shrink(picture, changed, frames)
    touched = [0, 22, 23, 83]  # row 57 is shared: 2.5 rows each
    expected = before.copy()
    expected[touched] = by_opencv("gymnasium", picture)[touched]
    np.testing.assert_array_equal(frames, [before, expected])


def test_update_gray_marks_changed_rows_and_reports_new_colours():
    screen, before, gray = (np.zeros(STANDARD, np.uint8) for _ in range(3))
    grays = np.full(256, UNKNOWN, np.uint16)
    grays[[0, 8]] = 0, 77
    changed = np.zeros(210, bool)
    assert update_gray(screen, before, gray, grays, changed)
    assert not changed.any()
    screen[5, 159] = 8
    assert update_gray(screen, before, gray, grays, changed)
    assert np.flatnonzero(changed).tolist() == [5]
    assert gray.sum() == gray[5, 159] == 77
    assert before[5, 159] == 8
    screen[7, 0] = 10
    assert not update_gray(screen, before, gray, grays, changed)
    assert np.flatnonzero(changed).tolist() == [5, 7]


def test_functions_compile_without_a_writable_cache(monkeypatch):
    def twice(x):
        return x + x

    monkeypatch.setattr("numba.core.config.CACHE_DIR", "")
    monkeypatch.setattr("numba.core.config.CACHE_LOCATOR_CLASSES", "UserProvidedCacheLocator")
    with pytest.raises(RuntimeError, match="no locator"):
        njit("i8(i8)", cache=True)(twice)
    assert compiled("i8(i8)")(twice)(21) == 42


@pytest.mark.parametrize("name", list(PREPROCESSINGS))
def test_frames_of_a_game_equal_those_computed_from_whole_screens(name):
    game = AtariGame("seaquest", name)
    ale = emulator(game)
    seen = game.frame
    row = {
        "frames": np.zeros((2, seen.height, seen.width), np.uint8),
        "pooled": np.zeros(STANDARD, np.uint8),
    }
    pictures = Pictures(ale, game, row)
    pictures.start()
    rng = np.random.default_rng(2)
    for step in range(300):
        ale.act(int(rng.integers(18)))
        whole = ale.getScreenGrayscale()
        if seen.pools:
            pictures.read(previous=True)
            ale.act(int(rng.integers(18)))
            whole = np.maximum(whole, ale.getScreenGrayscale())
        pictures.read()
        pictures.append()
        np.testing.assert_array_equal(row["frames"][-1], by_opencv(name, whole), f"step {step}")
        if step % 50 == 20:  # as after a restore
            row["frames"][...] = 3
            row["pooled"][...] = 3
            pictures.invalidate()
        if ale.game_over():
            ale.reset_game()
