"""The page of the Atari results: the claim, Table 1, the runs, the curves, the commands."""

from pathlib import Path

from trellis.analysis.statistics import interval_text
from trellis.reproduce import page
from trellis.reproduce.atari.plans import GAMES, MODERN, RECIPES
from trellis.reproduce.atari.table import part_of_table_3, steps_range, table
from trellis.reproduce.files import Record
from trellis.reproduce.page import BLANK, Claim, judge

FIGURE = "curves"
PAPER_PRESETS = (RECIPES["paper"], RECIPES["paper-vine"])
NAMES = {preset: recipe for recipe, preset in RECIPES.items()}
"""Recipe of each preset."""
ANSWERS = {True: "yes", False: "no", None: BLANK}
HEADING = (
    *("recipe", "preset", "game", "seeds", "steps", "of Table 3", "finished", "score"),
    *("95% interval", "above random", "minutes"),
)
FILES = {
    "atari.json": "All data: runs, scores of all episodes, curves, random actions.",
    "table.csv": "Table 1 with the paper's rows and ours.",
}


def write(results: Record, out: Path) -> None:
    """Write the page, from the numbers in atari.json alone."""
    heading, *rows = table(results)
    lines = [
        "# Atari games (Section 8.2)",
        "",
        "The paper trains one policy per game from pixels, for seven games."
        " `trellis reproduce atari` writes this page.",
        "",
        *page.claims_table([_claim(results)]),
        *page.verdict_meanings(),
        "## Table 1",
        "",
        *page.table(heading, rows),
        f"Our scores are means over {results['settings']['episodes']} episodes of the last policy,"
        " with actions sampled from it. Steps are steps of the agent, not frames. Random actions"
        " are uniform, under the same rules.",
        "",
        "## Runs",
        "",
        *page.table(HEADING, _runs(results)),
        "The 95% interval is over seeds, or over the episodes of a single run. A score is above"
        " random if its whole interval lies above the interval of random actions under the same"
        " rules. An unfinished run counts with the steps of its last checkpoint. The recipe `paper`"
        " is single path. Steps of the paper's recipes are also given as a part of Table 3's.",
        "",
    ]
    if any(run["curve"]["steps"] for run in results["runs"]):
        lines += [
            "## Learning curves",
            "",
            "Each line is one run. Figure 5 of the paper shows the cost, which is minus the score.",
            "",
            *page.picture(FIGURE, "Learning curves of each game"),
        ]
    lines += [
        "## Commands",
        "",
        *page.commands((run["run"], run) for run in results["runs"]),
    ]
    page.write(out, lines, FILES)


def _claim(results: Record) -> Claim:
    """Return the claim of Sec. 8.2, which needs finished runs with the paper's settings."""
    finished = {
        game: cell["above_random"]
        for row in results["rows"]
        if row["row"] in PAPER_PRESETS
        for game, cell in row["games"].items()
        if cell["finished"]
    }
    modern = {
        game: cell["above_random"]
        for row in results["rows"]
        if row["row"] == MODERN
        for game, cell in row["games"].items()
    }
    evidence = (
        f"finished paper presets: {len(finished)}/{len(GAMES)} games; {MODERN}:"
        f" {sum(above is True for above in modern.values())}/{len(modern)} above random"
    )
    verdict = judge(finished.values(), complete=len(finished) == len(GAMES))
    claim = "TRPO achieves reasonable scores on all games"
    return Claim("Sec. 8.2", claim, verdict, evidence, "[runs](#runs)")


def _runs(results: Record) -> list[list[str]]:
    """Return a row per preset and game."""
    return [
        [
            *(NAMES[row["preset"]], row["row"], GAMES[game], str(len(cell["seeds"]))),
            *(steps_range(cell["steps"]), part_of_table_3(row["preset"], cell["steps"])),
            *(ANSWERS[cell["finished"]], f"{cell['mean_score']:.1f}"),
            interval_text(*cell["interval_95"], blank=BLANK),
            *(ANSWERS[cell["above_random"]], f"{cell['mean_minutes']:.0f}"),
        ]
        for row in results["rows"]
        if row["preset"] is not None
        for game, cell in row["games"].items()
    ]
