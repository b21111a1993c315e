#!/usr/bin/env python3
"""timeline_png.py TIMELINE.json PICTURE.png [--ranks 0,4,8] [--attempt N] [--dpi N] -- draws a timeline (spillway run
--timeline): the lanes of every rank, messages as arrows, and the memory of every rank as a stack of categories below its cap.

Ranks: all, where there are up to 4; else one of every stage (--ranks chooses others). Attempts at iterations: all (--attempt 0: the
first alone). Needs python3-matplotlib (Debian; run it with the system's own python3).
"""
import argparse
import collections
import json
import sys

LANES = {1: "compute", 2: "network", 3: "copy-out", 4: "copy-in"}
CATEGORIES = {  # of work: colour
    "forward": "#4c78a8", "backward": "#59a14f", "recompute": "#f28e2b", "mitigation": "#b07aa1", "pipeline": "#333333",
    "gradient_step": "#9d7660", "drain": "#e15759"}
MEMORY = {
    "parameters": "#c7c7c7", "gradients": "#a5a5a5", "optimizer": "#838383", "communication": "#9d7660",
    "activation_other": "#76b7b2", "activation_moe": "#edc948", "workspace": "#ff9da7"}


def read(file):
    with open(file, encoding="utf-8") as text:
        timeline = json.load(text)
    events = collections.defaultdict(list)
    for event in timeline["traceEvents"]:
        events[event["ph"]].append(event)
    return timeline["otherData"], events


def chosen_ranks(about, events, wanted):
    names = {e["pid"]: e["args"]["name"] for e in events["M"] if e["name"] == "process_name"}
    if wanted:
        return wanted, names
    if about["ranks"] <= 4:
        return sorted(names), names
    first = {}
    for rank in sorted(names):
        first.setdefault(names[rank].split(": ", 1)[1].split(",")[0], rank)  # "stage 2"
    return sorted(first.values()), names


def window(events, attempt):
    """Microseconds from and to, and the marks of iterations in between."""
    marks = sorted(events["i"], key=lambda e: e["ts"])
    end = max(e["ts"] + e["dur"] for e in events["X"])
    if attempt is None:
        return 0, end, marks
    after = marks[attempt + 1]["ts"] if attempt + 1 < len(marks) else end
    return marks[attempt]["ts"], after, [marks[attempt]]


def draw_lanes(axes, events, ranks, scale):
    """Lanes from top to bottom; only those that something runs on."""
    used = {(e["pid"], e["tid"]) for e in events["X"]}
    rows = [(rank, lane) for rank in ranks for lane in LANES if (rank, lane) in used]
    place = {row: -i - 0.6 * ranks.index(row[0]) for i, row in enumerate(rows)}
    for category, colour in CATEGORIES.items():
        by_row = collections.defaultdict(list)
        for e in events["X"]:
            if e["cat"] == category and (e["pid"], e["tid"]) in place:
                by_row[e["pid"], e["tid"]].append((e["ts"] * scale, max(e["dur"], 1e-3) * scale))
        for row, spans in by_row.items():
            axes.broken_barh(spans, (place[row] - 0.4, 0.8), facecolors=colour, linewidth=0)
    ends = {e["id"]: e for e in events["f"]}
    for s in events["s"]:
        f = ends.get(s["id"])
        a, b = (s["pid"], s["tid"]), (f["pid"], f["tid"]) if f else None
        if a in place and b in place:
            axes.annotate("", (f["ts"] * scale, place[b]), (s["ts"] * scale, place[a]),
                          arrowprops={"arrowstyle": "->", "linewidth": 0.5, "color": "#333333", "shrinkA": 0, "shrinkB": 0})
    axes.set_yticks([place[row] for row in rows], [f"rank {rank}  {LANES[lane]}" for rank, lane in rows], fontsize=7)
    axes.set_ylim(min(place.values()) - 0.7, 0.7)
    return [c for c in CATEGORIES if any(e["cat"] == c and (e["pid"], e["tid"]) in place for e in events["X"])]


def draw_memory(axes, events, rank, scale, end, cap):
    samples = [e for e in events["C"] if e["pid"] == rank and e["name"].startswith("memory")]
    times = [e["ts"] * scale for e in samples] + [end * scale]
    stack = [[e["args"][c] / 2**20 for e in samples] for c in MEMORY]
    axes.stackplot(times, [row + row[-1:] for row in stack], colors=MEMORY.values(), step="post", linewidth=0)
    if cap < 4 * max(map(sum, zip(*stack))):  # a cap far above would squeeze what is below
        axes.axhline(cap, color="#e15759", linewidth=0.8, linestyle="--")
    axes.set_ylabel(f"rank {rank}\nMiB", fontsize=7)
    axes.tick_params(labelsize=7)


def draw(pyplot, file, options):
    from matplotlib.patches import Patch
    about, events = read(file)
    ranks, names = chosen_ranks(about, events, options.ranks)
    begin, end, marks = window(events, options.attempt)
    unit, scale = ("ms", 1e-3) if end - begin > 1000 else ("µs", 1)
    lanes = len({(e["pid"], e["tid"]) for e in events["X"] if e["pid"] in ranks})
    heights = [0.2 * lanes + 0.4] + [0.8] * len(ranks)
    figure, axes = pyplot.subplots(len(heights), 1, sharex=True, figsize=(12, sum(heights) + 1.2), height_ratios=heights,
                                   constrained_layout=True)
    categories = draw_lanes(axes[0], events, ranks, scale)
    for rank, below in zip(ranks, axes[1:]):
        draw_memory(below, events, rank, scale, end, about["memory_cap_bytes"] / 2**20)
    for mark in marks:
        for each in axes:
            each.axvline(mark["ts"] * scale, color="black", linewidth=0.8)
    axes[-1].set_xlim(begin * scale, end * scale)
    axes[-1].set_xlabel(f"{unit}, {about['clock']} clock: {about['times']}", fontsize=8)
    attempts = "; ".join(f"{m['name']}, imbalance {m['args']['imbalance']:.2f}" + (", out of memory" if m["args"]["out_of_memory"] else "")
                         for m in marks)
    figure.suptitle(f"{about['case']}: {attempts}", fontsize=9)
    held = [c for c in MEMORY if any(e["args"].get(c) for e in events["C"] if e["pid"] in ranks)]
    for each, names, colours in ((axes[0], categories, CATEGORIES), (axes[1], held, MEMORY)):
        each.legend(handles=[Patch(color=colours[n], label=n.replace("_", " ")) for n in names], loc="lower right",
                    bbox_to_anchor=(1, 1), ncols=len(names), fontsize=7, frameon=False, borderaxespad=0)
    return figure


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("timeline")
    parser.add_argument("picture")
    parser.add_argument("--ranks", type=lambda text: [int(r) for r in text.split(",")])
    parser.add_argument("--attempt", type=int)
    parser.add_argument("--dpi", type=int, default=110)
    options = parser.parse_args(arguments)
    try:
        import matplotlib
    except ImportError as error:
        print(f"timeline_png.py: {error} (Debian: apt install python3-matplotlib, and /usr/bin/python3)", file=sys.stderr)
        return 3
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure = draw(pyplot, options.timeline, options)
    figure.savefig(options.picture, dpi=options.dpi, metadata={"Software": None})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
