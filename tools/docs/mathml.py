"""Turn LaTeX in pages into MathML while the site is built, so that it needs no scripts or fonts.

A Markdown extension on top of `pymdownx.arithmatex`, which finds `$…$` and `$$…$$`.
"""

import html
import unicodedata
from xml.etree import ElementTree

from latex2mathml.converter import convert_to_element
from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor

DELIMITERS = len(r"\(")
SYMBOLS = {"~": "∼"}
"""Characters of the converter that browsers know as another operator."""

BARS = ("|", "‖")
"""Delimiters that are the same on both sides."""


class MathML(Treeprocessor):
    """Replaces the elements of class `arithmatex` with MathML."""

    def run(self, root: ElementTree.Element) -> None:
        """Replace them below `root`."""
        for parent in list(root.iter()):
            for index, element in enumerate(parent):
                if element.get("class") == "arithmatex":
                    parent[index] = _converted(element)


def _converted(element: ElementTree.Element) -> ElementTree.Element:
    latex = (element.text or "").strip()[DELIMITERS:-DELIMITERS].strip()
    display = element.tag == "div"
    math = convert_to_element(latex, display="block" if display else "inline")
    unknown = [part.text for part in math.iter() if part.text and part.text.startswith("\\")]
    if unknown:
        raise ValueError(f"MathML has no word for {', '.join(unknown)} in the formula {latex}")
    for part in math.iter():
        symbol = html.unescape(part.text or "")
        if part.tag == "mo" and symbol in BARS and not part.attrib:
            # As an operator between two terms it would have space and grow.
            part.attrib |= {"stretchy": "false", "lspace": "0", "rspace": "0"}
        elif part.tag == "mi" and len(symbol) == 1 and symbol not in BARS and _is_symbol(symbol):
            # The converter takes some relations, such as \sim, for letters, which have no space.
            part.tag, part.text = "mo", SYMBOLS.get(symbol, symbol)
    math.set("alttext", latex)
    # A wide formula scrolls in its own box.
    wrapper = ElementTree.Element(element.tag, {"class": "math"})
    wrapper.append(math)
    wrapper.tail = element.tail
    return wrapper


def _is_symbol(character: str) -> bool:
    return unicodedata.category(character) == "Sm"


class MathMLExtension(Extension):
    """Adds `MathML` to a Markdown parser."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register the processor; Markdown calls this."""
        # After inline patterns (20), which is when arithmatex has found all formulas.
        md.treeprocessors.register(MathML(md), "mathml", 5)


def makeExtension(**settings: object) -> MathMLExtension:
    """Return the extension; Markdown calls this."""
    return MathMLExtension(**settings)
