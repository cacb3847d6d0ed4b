"""Tests of the wall-clock comparison: minutes to a return, and the page."""

import json

import pytest

from benchmarks.wallclock_page import minutes_to, read_blocks, targets_of, write_page
from tests.reproduce.pages import check_page


def block(seed: int, **ends: float) -> dict:
    """Return a block of ten minutes in which returns rise linearly from 0."""
    points = {
        name: [{"seconds": 60.0 * m, "steps": 100 * m, "return": end * m / 10} for m in range(11)]
        for name, end in ends.items()
    }
    return {
        "task": "Hopper-v5",
        "seed": seed,
        "minutes": 10.0,
        "machine": "a machine",
        "commit": "abc",
        "curves": {name.replace("_", "-"): curve for name, curve in points.items()},
    }


def test_minutes_to_the_return_of_the_other_trpo(tmp_path):
    (tmp_path / "blocks").mkdir()
    for seed, scale in enumerate((0.5, 1.5)):
        found = block(seed, trellis=4000 * scale, sb3_trpo=1000 * scale, sb3_ppo=500 * scale)
        (tmp_path / "blocks" / f"Hopper-v5-{seed}.json").write_text(json.dumps(found))
    blocks = read_blocks(tmp_path)
    assert targets_of(blocks) == {"Hopper-v5": pytest.approx(1000)}
    minutes = minutes_to(blocks, "Hopper-v5", 1000)
    assert minutes == {"trellis": 2.5, "sb3-trpo": 10.0, "sb3-ppo": None}
    write_page(tmp_path)
    page = check_page(tmp_path)
    assert "| Hopper-v5 | 2 | 1,000 | 2.5 | 10.0 | never |" in page
