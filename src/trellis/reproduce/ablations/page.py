"""The page of the ablations: claims, and for each scale and task a figure and every case."""

from pathlib import Path

from trellis.reproduce import files, page
from trellis.reproduce.ablations.claims import FALL, claims
from trellis.reproduce.comparison.plans import TASKS
from trellis.reproduce.files import Record
from trellis.reproduce.page import Claim, Verdict

JSON = "ablations.json"
FIGURE = "ablations"
NAMES = {
    "no-line-search": "Line search",
    "cg-iterations": "Conjugate gradient",
    "fisher-fraction": "Fisher matrix",
    "penalty": "Constraint or penalty",
}
"""Name of each claim in headings, by its part."""


def write(out: Path) -> None:
    """Write the page of a folder, from the results in it and in its subfolders.

    A folder holds the results of one task at one scale. Subfolders hold the others.
    """
    found = {"": files.read_results(out / JSON)}
    for path in sorted(out.glob(f"*/{JSON}")):
        found[f"{path.parent.name}/"] = files.read_json(path)
    for results in found.values():
        results["claims"] = claims(results["rows"])
    rows = [_row(claim, folder) for folder, results in found.items() for claim in results["claims"]]
    lines = [
        "# The parts of TRPO (Section 6, Appendix C)",
        "",
        "Each ablation changes one part of single-path TRPO on a task of the paper."
        " `trellis reproduce ablations` writes this page.",
        "",
        *page.claims_table(rows),
        *page.verdict_meanings(),
        "A catastrophe is a drop of the return by at least"
        f" {FALL:.0%} of what the unchanged method gains in training. The final return is the mean"
        " over the training episodes in the last tenth of a run. The gain is the final return"
        " minus the return at the start of training. *Not certain* means that the limit lies"
        " within the 95% interval.",
        "",
    ]
    for folder, results in found.items():
        lines += _section(folder, results)
    about_files = {
        f"{folder}{name}": about
        for folder in found
        for name, about in (
            (JSON, "All data: settings, runs, curves, verdicts."),
            ("ablations.csv", "One row per run."),
        )
    }
    page.write(out, lines, about_files)


def _row(claim: Record, folder: str) -> Claim:
    heading = _heading(claim, folder)
    anchor = heading.lower().replace(" ", "-").translate({ord("("): None, ord(")"): None})
    link = f"[{heading}](#{anchor})"
    verdict = Verdict(claim["verdict"])
    return Claim(claim["section"], claim["claim"], verdict, claim["evidence"], link)


def _heading(claim: Record, folder: str) -> str:
    """Return the heading of a claim's cases, which is unique on the page."""
    return NAMES[claim["group"]] + (f" ({folder.rstrip('/')})" if folder else "")


def _section(folder: str, results: Record) -> list[str]:
    """Return the figure, the cases and the commands of one folder."""
    task, scale = results.get("task", "swimmer"), "the paper's steps"
    if results["scale"] != 1:
        scale = f"{results['scale']:g} of the paper's steps"
    rows = results["rows"]
    seeds = sorted({len(row["runs"]) for row in rows})
    lines = [
        f"## {TASKS[task].title.capitalize()}, iterations with {scale}",
        "",
        f"Each run has {results['iterations']} iterations. Seeds per case:"
        f" {' or '.join(map(str, seeds))}.",
        "",
        *(page.picture(f"{folder}{FIGURE}", "Ablations") if results["claims"] else []),
    ]
    for claim in results["claims"]:
        heading = list(claim["cases"][0])
        lines += [
            f"### {_heading(claim, folder)}",
            "",
            f"“{claim['paper']}” ({claim['section']}). Verdict: {claim['verdict']}.",
            "",
            *page.table(heading, [[case[name] for name in heading] for case in claim["cases"]]),
        ]
    groups = dict.fromkeys((row["group"], row["command"], row["commit"]) for row in rows)
    made = [(part, {"command": command, "commit": commit}) for part, command, commit in groups]
    return [*lines, *page.commands(made)]
