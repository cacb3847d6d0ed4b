"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const GRID = 600, COLORS = 8;
  const AXIS_NAMES = { steps: "steps", seconds: "time", iteration: "iteration" };
  const LOG_BY_DEFAULT = new Set(["cg_residual"]);
  const state = Object.assign(
    { axis: "steps", lines: "mean", smooth: "9", theme: null, hidden: {}, log: {}, refresh: true }, load());
  const charts = [];

  function load() {
    try { return JSON.parse(sessionStorage.getItem("trellis-report") || "{}"); } catch { return {}; }
  }
  function save() {
    try { sessionStorage.setItem("trellis-report", JSON.stringify(state)); } catch { /* private */ }
  }
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const color = index => css(`--c${index % COLORS}`);
  function make(tag, attributes = {}, text = "") {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.textContent = text;
    return element;
  }
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  function show(value) {
    if (value === null || value === undefined || !isFinite(value)) return "–";
    const size = Math.abs(value);
    if (size >= 1000) return Math.round(value).toLocaleString("en");
    if (size !== 0 && size < 0.001) return value.toExponential(2);
    return String(Number(value.toPrecision(4)));
  }
  function showAxis(value) {
    if (state.axis !== "seconds") return `${AXIS_NAMES[state.axis]} ${Math.round(value).toLocaleString("en")}`;
    return `time ${duration(value)}`;
  }
  function duration(seconds) {
    if (seconds < 90) return `${Number(seconds.toPrecision(3))} s`;
    if (seconds < 5400) return `${Number((seconds / 60).toPrecision(3))} min`;
    return `${Number((seconds / 3600).toPrecision(3))} h`;
  }

  // Values of one run at the points of the grid, by linear interpolation; null outside of its range.
  function sample(points, metric, grid) {
    const xs = [], ys = [], curve = points[metric], axis = points[state.axis];
    if (curve) curve.forEach((y, i) => { if (y !== null) { xs.push(axis[i]); ys.push(y); } });
    let at = 0;
    return grid.map(x => {
      if (!xs.length || x < xs[0] || x > xs[xs.length - 1]) return null;
      while (at < xs.length - 2 && xs[at + 1] < x) at++;
      if (xs.length === 1) return ys[0];
      const width = xs[at + 1] - xs[at];
      return width > 0 ? ys[at] + (ys[at + 1] - ys[at]) * (x - xs[at]) / width : ys[at + 1];
    });
  }
  // The mean over runs with Student's 95% interval, where all runs have values.
  function band(rows, quantile) {
    const mean = [], low = [], high = [];
    rows[0].forEach((_, i) => {
      const values = rows.map(row => row[i]);
      if (values.includes(null)) { mean.push(null); low.push(null); high.push(null); return; }
      const middle = values.reduce((a, b) => a + b, 0) / values.length;
      const squares = values.reduce((a, b) => a + (b - middle) ** 2, 0);
      const half = values.length > 1
        ? quantile * Math.sqrt(squares / (values.length - 1) / values.length) : 0;
      mean.push(middle); low.push(middle - half); high.push(middle + half);
    });
    return { mean, low, high };
  }
  // Moving average over the points around each; gaps at either end stay gaps.
  function smooth(values) {
    const reach = (Number(state.smooth) - 1) / 2;
    if (!reach) return values;
    return values.map((value, i) => {
      if (value === null) return null;
      let sum = 0, count = 0;
      for (let j = Math.max(0, i - reach); j <= Math.min(values.length - 1, i + reach); j++) {
        if (values[j] !== null) { sum += values[j]; count++; }
      }
      return sum / count;
    });
  }
  function gridOf(env, metric) {
    const ends = [];
    for (const group of env.groups) for (const run of group.runs) {
      const curve = run.points[metric];
      if (curve) run.points[state.axis].forEach((x, i) => { if (curve[i] !== null) ends.push(x); });
    }
    const low = Math.min(...ends), high = Math.max(...ends);
    if (!(high > low)) return [low];
    return Array.from({ length: GRID }, (_, i) => low + (high - low) * i / (GRID - 1));
  }

  function build(chart) {
    const env = data.envs[chart.env], grid = gridOf(env, chart.metric);
    const columns = [grid], series = [{}], bands = [];
    chart.lines = [];
    function add(values, stroke, extra = {}) {
      columns.push(values);
      series.push({ stroke, width: 2, spanGaps: true, points: { show: grid.length === 1 }, ...extra });
      return series.length - 1;
    }
    env.groups.forEach((group, index) => {
      if (state.hidden[`${chart.env}/${index}`]) return;
      const rows = group.runs.map(run => sample(run.points, chart.metric, grid));
      if (state.lines === "runs") {
        rows.forEach((row, r) => {
          const name = group.runs.length > 1 ? `${group.label}, ${group.runs[r].name}` : group.label;
          chart.lines.push({ name, index, at: add(smooth(row), color(index), { width: 1.3 }) });
        });
        return;
      }
      const { mean, low, high } = band(rows, group.quantile);
      if (rows.length === 1 && Number(state.smooth) > 1) add(mean, color(index) + "45", { width: 1 });
      const line = { name: group.label, index, at: add(smooth(mean), color(index)) };
      if (rows.length > 1) {
        const edge = { width: 0, points: { show: false } };
        line.high = add(smooth(high), "transparent", edge);
        line.low = add(smooth(low), "transparent", edge);
        bands.push({ series: [line.high, line.low], fill: color(index) + "33" });
      }
      chart.lines.push(line);
    });
    if (chart.metric === "kl") {
      for (const bound of new Set(env.groups.map(group => group.bound))) {
        if (bound !== null) add(grid.map(() => bound), css("--soft"), { dash: [6, 5], width: 1.2 });
      }
    }
    const log = chart.key in state.log ? state.log[chart.key] : LOG_BY_DEFAULT.has(chart.metric);
    const values = columns.slice(1).flat().filter(v => v !== null);
    const positive = values.length > 0 && values.every(v => v > 0);
    const scale = log ? (positive ? { distr: 3, log: 10 } : { distr: 4, asinh: 1 }) : {};
    const axis = { stroke: css("--soft"), grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--line"), width: 1, size: 4 }, font: "12px system-ui, sans-serif" };
    const options = {
      width: chart.place.clientWidth, height: chart.place.clientHeight,
      legend: { show: false }, pxAlign: 0,
      scales: { x: { time: false }, y: scale },
      series, bands,
      axes: [
        { ...axis, space: 70, size: 30, values: (_, ticks) => ticks.map(t => state.axis === "seconds" ? duration(t) : compact.format(t)) },
        { ...axis, size: 58, values: (_, ticks) => ticks.map(t => t === null ? "" : Math.abs(t) < 0.001 && t !== 0 ? t.toExponential(0) : compact.format(t)) },
      ],
      cursor: { y: false, drag: { x: true, y: false }, sync: { key: `env${chart.env}`, setSeries: false }, points: { size: 7 } },
      hooks: {
        setCursor: [plot => readout(chart, plot)],
        setScale: [(plot, key) => { if (key === "x") zoomOthers(chart, plot); }],
      },
    };
    chart.plot?.destroy();
    chart.plot = new uPlot(options, columns, chart.place);
    chart.full = [grid[0], grid[grid.length - 1]];
    chart.logButton.setAttribute("aria-pressed", String(log));
    if (chart.values.open) fillValues(chart);
  }

  let zooming = false;
  function zoomOthers(chart, plot) {
    if (zooming || !chart.plot) return;
    zooming = true;
    const { min, max } = plot.scales.x;
    chart.place.dataset.zoom = `${min} ${max}`;
    for (const other of charts) {
      if (other !== chart && other.env === chart.env && other.plot) other.plot.setScale("x", { min, max });
    }
    zooming = false;
  }
  function zoom(chart, factor) {
    const { min, max } = chart.plot.scales.x, { left } = chart.plot.cursor;
    const middle = left >= 0 ? chart.plot.posToVal(left, "x") : (min + max) / 2;
    const [low, high] = chart.full;
    const next = [Math.max(low, middle - (middle - min) * factor), Math.min(high, middle + (max - middle) * factor)];
    if (next[1] > next[0]) chart.plot.setScale("x", { min: next[0], max: next[1] });
  }
  const reset = chart => chart.plot.setScale("x", { min: chart.full[0], max: chart.full[1] });

  function readout(chart, plot) {
    const index = plot.cursor.idx;
    chart.readout.replaceChildren();
    if (index === null || index === undefined || plot.cursor.left < 0) return;
    chart.readout.append(`${showAxis(plot.data[0][index])}: `);
    for (const line of chart.lines.slice(0, 12)) {
      const item = make("span", { class: "item" });
      const swatch = make("span", { class: "swatch" });
      swatch.style.background = color(line.index);
      let text = show(plot.data[line.at][index]);
      if (line.low && plot.data[line.low][index] !== null) {
        text += ` (${show(plot.data[line.low][index])} to ${show(plot.data[line.high][index])})`;
      }
      item.append(swatch, chart.lines.length > 1 ? `${line.name}: ${text}` : text);
      chart.readout.append(item);
    }
  }
  function keys(chart, event) {
    const plot = chart.plot, count = plot.data[0].length;
    const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (move) {
      const step = Math.max(1, Math.round(count / 100));
      chart.at = Math.min(count - 1, Math.max(0, (chart.at ?? Math.floor(count / 2)) + move * step));
      chart.readout.setAttribute("aria-live", "polite");
      const left = plot.valToPos(plot.data[0][chart.at], "x");
      plot.setCursor({ left: Math.max(0, left), top: 10 });
    } else if (event.key === "+" || event.key === "=") zoom(chart, 0.5);
    else if (event.key === "-" || event.key === "−") zoom(chart, 2);
    else if (event.key === "0" || event.key === "Escape") reset(chart);
    else return;
    event.preventDefault();
  }
  function fillValues(chart) {
    chart.values.querySelector("div")?.remove();
    const table = make("table"), head = make("tr"), rows = chart.plot.data[0];
    for (const name of [AXIS_NAMES[state.axis], ...chart.lines.map(line => line.name)]) {
      head.append(make("th", { scope: "col" }, name));
    }
    const top = make("thead"), body = make("tbody"), box = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Values" });
    top.append(head);
    const picked = new Set(Array.from({ length: 11 }, (_, i) => Math.round(i * (rows.length - 1) / 10)));
    for (const i of picked) {
      const row = make("tr");
      row.append(make("th", { scope: "row" }, state.axis === "seconds" ? duration(rows[i]) : show(rows[i])));
      for (const line of chart.lines) row.append(make("td", {}, show(chart.plot.data[line.at][i])));
      body.append(row);
    }
    table.append(top, body);
    box.append(table);
    chart.values.append(box);
  }

  function start() {
    for (const place of document.querySelectorAll(".chart")) {
      const figure = place.closest("figure"), title = figure.querySelector("figcaption span").textContent;
      const chart = {
        place, env: Number(place.dataset.env), metric: place.dataset.metric,
        key: `${place.dataset.env}/${place.dataset.metric}`,
        readout: figure.querySelector(".readout"), values: figure.querySelector(".values"),
      };
      const tools = figure.querySelector(".tools");
      const tool = (text, label, act) => {
        const button = make("button", { type: "button", "aria-label": `${label}: ${title}`, title: label }, text);
        button.addEventListener("click", act);
        tools.append(button);
        return button;
      };
      chart.logButton = tool("log", "log scale", () => {
        state.log[chart.key] = chart.logButton.getAttribute("aria-pressed") !== "true";
        save();
        build(chart);
      });
      tool("+", "Zoom in", () => zoom(chart, 0.5));
      tool("−", "Zoom out", () => zoom(chart, 2));
      tool("↺", "Reset zoom", () => reset(chart));
      place.addEventListener("keydown", event => keys(chart, event));
      chart.values.addEventListener("toggle", () => { if (chart.values.open) fillValues(chart); });
      charts.push(chart);
    }
    legends();
    choose("axis");
    choose("lines");
    choose("smooth");
    theme();
    rebuild();
    const observer = new ResizeObserver(entries => {
      for (const entry of entries) {
        const chart = charts.find(each => each.place === entry.target);
        const width = Math.floor(entry.contentRect.width), height = Math.floor(entry.contentRect.height);
        if (chart.plot && width > 0 && chart.plot.width !== width) chart.plot.setSize({ width, height });
      }
    });
    for (const chart of charts) observer.observe(chart.place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { theme(); rebuild(); });
    refresh();
  }
  function rebuild() { for (const chart of charts) build(chart); paint(); }
  function legends() {
    for (const legend of document.querySelectorAll(".legend")) {
      const env = Number(legend.dataset.env);
      data.envs[env].groups.forEach((group, index) => {
        const key = `${env}/${index}`, button = make("button", { type: "button", "data-key": key });
        button.append(make("span", { class: "swatch", "data-color": index }), group.label);
        button.addEventListener("click", () => {
          state.hidden[key] = !state.hidden[key];
          save();
          for (const chart of charts) if (chart.env === env) build(chart);
          paint();
        });
        legend.append(button);
      });
    }
  }
  function paint() {
    for (const swatch of document.querySelectorAll("[data-color]")) swatch.style.background = color(Number(swatch.dataset.color));
    for (const button of document.querySelectorAll(".legend button")) {
      button.setAttribute("aria-pressed", String(!state.hidden[button.dataset.key]));
    }
  }
  function choose(name) {
    const select = document.getElementById(name);
    select.value = state[name];
    select.addEventListener("change", () => { state[name] = select.value; save(); rebuild(); });
  }
  function theme() {
    const button = document.getElementById("theme"), root = document.documentElement;
    const isDark = () => (state.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    if (state.theme) root.dataset.theme = state.theme;
    button.setAttribute("aria-pressed", String(isDark()));
    button.onclick = () => {
      state.theme = isDark() ? "light" : "dark";
      root.dataset.theme = state.theme;
      button.setAttribute("aria-pressed", String(isDark()));
      save();
      rebuild();
    };
  }
  function refresh() {
    const box = document.getElementById("refresh");
    if (!box) return;
    box.checked = state.refresh;
    box.addEventListener("change", () => { state.refresh = box.checked; save(); });
    setInterval(() => { if (box.checked && !document.hidden) location.reload(); }, 1000 * data.refresh);
  }
  start();
})();
