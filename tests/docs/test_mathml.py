"""Formulas become MathML while the site is built."""

import markdown
import pytest


@pytest.fixture
def convert():
    settings = {"pymdownx.arithmatex": {"generic": True}}
    parser = markdown.Markdown(
        extensions=["pymdownx.arithmatex", "tools.docs.mathml"], extension_configs=settings
    )
    return parser.convert


def test_a_formula_in_a_line(convert):
    page = convert(r"An action $a \sim \pi(\cdot|s)$ costs \$5, and `$x$` is code.")
    assert '<span class="math"><math alttext="a \\sim' in page
    assert "<mo>∼</mo>" in page
    assert "costs $5" in page
    assert "<code>$x$</code>" in page


def test_a_formula_of_its_own(convert):
    page = convert("Text.\n\n$$\n\\frac{1}{2}\n$$\n\nMore.")
    assert '<div class="math"><math' in page
    assert 'display="block"' in page
    assert "<mfrac>" in page


def test_bars_are_delimiters(convert):
    page = convert(r"$\lvert x \rvert$")
    assert page.count('<mo lspace="0" rspace="0" stretchy="false">') == 2


def test_an_unknown_command_is_an_error(convert):
    with pytest.raises(ValueError, match="foo"):
        convert(r"$\foo$")
