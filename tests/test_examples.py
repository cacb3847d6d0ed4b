"""Runs the examples at a small size and checks their results."""

from pathlib import Path

import pytest

from examples import compare_two_settings, custom_environment, custom_network, iterate_by_hand

pytestmark = pytest.mark.pages
EXAMPLES = sorted(Path(custom_network.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_each_is_short(path):
    assert len(path.read_text().splitlines()) < 60


def test_custom_environment():
    assert custom_environment.main(20_000) > -400


def test_custom_network():
    assert custom_network.main(15_000) > 60


def test_iterate_by_hand():
    assert iterate_by_hand.main() > 40


def test_compare_two_settings():
    means = compare_two_settings.main(8_000, seeds=1)
    assert means.keys() == {0.001, 0.01}
    assert min(means.values()) > 40
