"""Assembles the report: one HTML page with its data, script, style and videos."""

import base64
import datetime
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

import trellis
from trellis.analysis.commands import commands_of
from trellis.analysis.labels import curve_labels
from trellis.analysis.logged_run import group_runs
from trellis.analysis.report import tables
from trellis.analysis.report.markup import Html, count, element, json_script, number, policy_hash
from trellis.analysis.report.read import ReportRun
from trellis.analysis.report.tables import Group
from trellis.runs.folder import as_json

LEARNING = {
    "episode_return_mean": "Return of training episodes",
    "eval_return_mean": "Return of evaluations",
    "episode_length_mean": "Length of training episodes (steps)",
    "steps_per_second": "Speed (steps per second)",
}
HEALTH = {
    "kl": "KL divergence per update, and its bound δ",
    "step_fraction": "Fraction of the full step",
    "backtracks": "Backtracks of the line search",
    "cg_residual": "Relative residual of conjugate gradient",
    "explained_variance": "Explained variance of the critic",
    "entropy": "Entropy of the policy",
    "surrogate_gain": "Gain of the surrogate objective",
}
MOST_COMMANDS = 40
"""Largest number of runs whose commands are shown."""


def make_groups(runs: Sequence[ReportRun]) -> list[Group]:
    """Return the runs by environment and settings."""
    found = group_runs(runs)
    groups = []
    for env in dict.fromkeys(settings["env"] for settings, _ in found):
        here = [pair for pair in found if pair[0]["env"] == env]
        labels = curve_labels([settings for settings, _ in here])
        groups += [
            Group(env, label, settings, members)
            for label, (settings, members) in zip(labels, here, strict=True)
        ]
    return groups


def render(runs: Sequence[ReportRun], *, refresh_seconds: float | None = None) -> str:
    """Return the page.

    Args:
        runs: The runs.
        refresh_seconds: Time after which an open page loads itself again; None for never.
    """
    groups = make_groups(runs)
    style = _asset("uPlot.min.css") + _asset("report.css")
    script = _asset("uPlot.iife.min.js") + _asset("report.js")
    envs = list(dict.fromkeys(group.env for group in groups))
    title = f"{', '.join(envs[:3])}{' …' if len(envs) > 3 else ''}: Trellis report"
    policy = (
        f"default-src 'none'; script-src {policy_hash(script)}; style-src {policy_hash(style)};"
        " img-src data:; media-src data:; base-uri 'none'; form-action 'none'"
    )
    body = element(
        "main",
        _section("Results", tables.evaluation_table(groups)),
        _section("Learning curves", _toolbar(), *_panels(groups, envs, LEARNING, "learning")),
        *_health(groups, envs),
        *_videos(groups),
        _section("Configuration", *_configuration(groups)),
        _section("Runs, versions and commands", *_provenance(groups)),
        id="content",
    )
    data = json_script("data", {"refresh": refresh_seconds, "envs": _data(groups, envs)})
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        element("title", title),
        f"<style>{style}</style>",
    ]
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head>',
            *head,
            "</head><body>",
            element("a", "Skip to the results", href="#content", class_="skip"),
            _header(groups, envs, refresh_seconds),
            body,
            data,
            f"<script>{script}</script>",
            "</body></html>",
        ]
    )


def _header(groups: Sequence[Group], envs: Sequence[str], refresh: float | None) -> Html:
    runs = [run for group in groups for run in group.runs]
    now = datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    total = f"{len(runs)} run{'s' * (len(runs) > 1)}"
    facts = [
        f"{total} in {len(groups)} group{'s' * (len(groups) > 1)}",
        f"{count(sum(run.steps for run in runs))} simulator steps",
        f"written {now}",
        f"Trellis {trellis.__version__}",
    ]
    options = []
    if refresh is not None:
        box = Html('<input type="checkbox" id="refresh" checked>')
        options.append(element("label", box, f" Reload every {refresh:g} s", class_="option"))
    theme = element("button", "Dark", type="button", id="theme", aria_pressed="false")
    return element(
        "header",
        element("h1", ", ".join(envs)),
        element("p", " · ".join(facts), class_="facts"),
        element("div", *options, theme, class_="corner"),
    )


def _section(title: str, *content: object) -> Html:
    return element("section", element("h2", title), *content)


def _toolbar() -> Html:
    def select(identifier: str, label: str, **options: str) -> Html:
        inner = [element("option", text, value=value) for value, text in options.items()]
        return element("label", f"{label} ", element("select", *inner, id=identifier))

    hint = (
        "Drag across a chart to zoom, double-click to reset. With the keyboard: focus a chart, then"
        " arrow keys to read values, + and − to zoom, 0 to reset."
    )
    axes = {"steps": "simulator steps", "seconds": "training time", "iteration": "iterations"}
    smoothing = {"9": "light", "1": "none", "41": "strong"}
    shown = {"mean": "mean and 95% band over seeds", "runs": "single runs"}
    return element(
        "div",
        select("axis", "Horizontal axis", **axes),
        select("lines", "Show", **shown),
        select("smooth", "Smoothing", **smoothing),
        element("p", hint, id="hint", class_="hint"),
        class_="toolbar",
    )


def _panels(
    groups: Sequence[Group], envs: Sequence[str], metrics: dict[str, str], kind: str
) -> list[Html]:
    """Return a panel of charts for each environment."""
    panels = []
    for index, env in enumerate(envs):
        here = [group for group in groups if group.env == env]
        charts = []
        for metric, title in metrics.items():
            means = [[run.health.means[metric] for run in group.runs] for group in here]
            if any(mean.count for each in means for mean in each):
                charts.append(_chart(index, env, metric, title, here))
        if charts:
            heading = [element("h3", env)] if len(envs) > 1 else []
            legend = element("div", class_="legend", data_env=index)
            panels.append(
                element(
                    "div", *heading, legend, element("div", *charts, class_="charts"), class_=kind
                )
            )
    return panels


def _chart(index: int, env: str, metric: str, title: str, groups: Sequence[Group]) -> Html:
    """Return the place of a chart, with a text about it for screen readers."""
    parts = []
    for group in groups:
        means = [run.health.means[metric] for run in group.runs]
        first, last = tables.mean_end(means, 0), tables.mean_end(means, 1)
        if first is not None:
            parts.append(f"{group.title} goes from {number(first)} to {number(last)}")
    label = f"{title}, {env}: {'; '.join(parts)}."
    name = f"chart-{index}-{metric}"
    return element(
        "figure",
        element(
            "figcaption",
            element("span", title, id=f"{name}-title"),
            element("span", class_="tools"),
        ),
        element(
            "div",
            class_="chart",
            id=name,
            data_env=index,
            data_metric=metric,
            tabindex=0,
            role="group",
            aria_label=label,
            aria_describedby="hint",
        ),
        element("p", class_="readout", aria_live="off"),
        element("details", element("summary", f"Values: {title}"), class_="values"),
    )


def _health(groups: Sequence[Group], envs: Sequence[str]) -> list[Html]:
    """Return the section about policy updates; CEM and CMA have none."""
    panels = _panels(groups, envs, HEALTH, "health")
    if not panels:
        return []
    return [_section("Health of the policy update", tables.health_table(groups), *panels)]


def _videos(groups: Sequence[Group]) -> list[Html]:
    figures = []
    for group in groups:
        for run in group.runs:
            for video in run.videos:
                source = f"data:video/mp4;base64,{base64.b64encode(video.data).decode()}"
                name = f"{group.env}, {group.label}, seed {run.config.seed}: {video.name}"
                player = element(
                    "video", src=source, controls="", loop="", muted="", playsinline="",
                    preload="metadata", aria_label=f"Video of {name}",
                )  # fmt: skip
                figures.append(element("figure", player, element("figcaption", name)))
    return [_section("Videos", element("div", *figures, class_="videos"))] if figures else []


def _configuration(groups: Sequence[Group]) -> list[Html]:
    parts = [tables.difference_table(groups)] if len(groups) > 1 else []
    parts += [tables.preset_table(group) for group in groups]
    for group in groups:
        text = json.dumps(as_json(group.runs[0].config), indent=2, ensure_ascii=False)
        summary = element("summary", f"All settings of {group.env}: {group.label}")
        block = element(
            "pre", text, tabindex=0, role="region", aria_label=f"Settings {group.label}"
        )
        parts.append(element("details", summary, block))
    return parts


def _provenance(groups: Sequence[Group]) -> list[Html]:
    runs = [run for group in groups for run in group.runs]
    lines = [line for run in runs[:MOST_COMMANDS] for line in commands_of(run.config, run.folder)]
    lines.append(" ".join(["trellis report", *(str(run.folder) for run in runs[:MOST_COMMANDS])]))
    commands = element(
        "pre", "\n".join(lines), tabindex=0, role="region", aria_label="Commands", class_="wrap"
    )
    return [
        tables.run_table(groups),
        tables.version_table(groups),
        element("details", element("summary", "Commands that made these runs"), commands, open=""),
    ]


def _data(groups: Sequence[Group], envs: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "name": env,
            "groups": [
                {
                    "label": group.title,
                    "bound": group.bound,
                    "quantile": round(tables.student_quantile(len(group.runs)), 4),
                    "runs": [
                        {"name": f"seed {run.config.seed}", "points": run.points.to_json()}
                        for run in group.runs
                    ],
                }
                for group in groups
                if group.env == env
            ],
        }
        for env in envs
    ]


def _asset(name: str) -> str:
    folder = resources.files("trellis.analysis.report") / "assets"
    return (folder / name).read_text("utf-8").strip() + "\n"
