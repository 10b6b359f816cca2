"""A run's results as a picture: one panel per case, or latency over load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")  # draws to files only; a server has no screen

from matplotlib import pyplot as plt

from bench.report import Report, cases, short
from bench.rounds import Outcome

_COLOURS = {"querator": "#3b6fb6", "limit": "#8a8a8a", "peer": "#c98b3b", "part": "#7fa4d4"}
_PERCENTILES = ("p50", "p99", "p999")


def write_plot(report: Report, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if all(outcome.case.workload == "open" for outcome in report.outcomes):
        figure = _latency_figure(report)
    else:
        figure = _rate_figure(report)
    where = f"{report.environment.get('cpu')}, {report.environment.get('cores')} cores"
    figure.suptitle(f"querator bench {report.preset}: {where}, {report.made_at:%Y-%m-%d}", fontsize=10)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _rate_figure(report: Report) -> Any:  # matplotlib's own types are not complete enough for a strict check
    groups = cases(report.outcomes)
    heights = [len(group) + 1.2 for group in groups]
    figure, axes = plt.subplots(
        len(groups),
        1,
        figsize=(8, 0.42 * sum(heights) + 0.6),
        squeeze=False,
        gridspec_kw={"height_ratios": heights},
        layout="constrained",
    )
    for axis, group in zip(axes[:, 0], groups, strict=True):
        _draw_rates(axis, group)
    return figure


def _draw_rates(axis: Any, group: list[Outcome]) -> None:
    rates = [outcome.rate for outcome in group]
    names = [outcome.contestant for outcome in group]
    errors = [[rate.median - rate.low for rate in rates], [rate.high - rate.median for rate in rates]]
    colours = [_COLOURS[outcome.role] for outcome in group]
    axis.barh(names, [rate.median for rate in rates], xerr=errors, color=colours, capsize=3, height=0.7)
    for place, rate in enumerate(rates):
        axis.annotate(
            short(rate.median), (rate.high, place), (5, 0), textcoords="offset points", va="center", fontsize=8
        )
    axis.set_title(f"{group[0].case}: items/s", fontsize=9, loc="left")
    axis.invert_yaxis()
    axis.margins(x=0.15)
    axis.xaxis.set_major_formatter(lambda value, _: short(value) if value else "0")
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def _latency_figure(report: Report) -> Any:
    figure, axis = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for call, style in (("produce", "--"), ("cycle", "-")):
        points = [(outcome.case.rate, found) for outcome in report.outcomes if (found := outcome.call(call))]
        for name, colour in zip(_PERCENTILES, _COLOURS.values(), strict=True):
            label = f"{call} {name.replace('p999', 'p99.9')}"
            values = [getattr(found, name) * 1000 for _, found in points]
            axis.plot([rate for rate, _ in points], values, style, color=colour, marker="o", label=label)
    axis.set_xlabel("cycles started per second")
    axis.set_ylabel("ms from the intended start")
    axis.set_yscale("log")
    axis.legend(fontsize=8)
    axis.grid(visible=True, which="both", alpha=0.3)
    return figure
