// Charts of landed records: bars over time, in the page's colours, as wide as their place.
"use strict";
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const shortNumber = (value) => {
  if (value === null || value === undefined) return "–";
  if (value >= 1e9) return `${(value / 1e9).toFixed(1)}G`;
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
  return value >= 1e4 ? `${(value / 1e3).toFixed(0)}k` : value.toLocaleString("en");
};

const clock = (seconds) => {
  const text = new Date(seconds * 1e3).toISOString();
  return text.slice(11, 16) === "00:00" ? text.slice(5, 10) : text.slice(11, 16);
};

// Whole steps for the axis of counts: there is no half row.
const WHOLE = Array.from({ length: 13 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat();

const options = (chart, width) => {
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  return {
    width,
    height: 168,
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1e3), "Etc/UTC"),
    legend: { live: true },
    cursor: { y: false, drag: { x: false, y: false } },
    scales: { x: { range: (_, low, high) => [low - 900, high + 900] }, y: { range: (_, low, high) => [0, Math.max(high, 1)] } },
    axes: [{ ...axis, size: 28, grid: { show: false }, space: 64, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 44, incrs: WHOLE, values: (_, ticks) => ticks.map(shortNumber) }],
    series: [
      { label: "Time", value: (_, seconds) => (seconds === null ? "–" : `${new Date(seconds * 1e3).toISOString().slice(11, 16)} UTC`) },
      { label: chart.label, fill: colour(chart.colour), stroke: colour(chart.colour), width: 0, paths: uPlot.paths.bars({ size: [0.7, 24] }), points: { show: false }, value: (_, value) => (value === null ? "–" : value.toLocaleString("en")) },
    ],
  };
};

for (const place of document.querySelectorAll("[data-chart]")) {
  const chart = JSON.parse(place.dataset.chart);
  let drawn = null;
  const draw = () => {
    if (drawn) drawn.destroy();
    drawn = new uPlot(options(chart, place.clientWidth), [chart.times, chart.values], place);
  };
  draw();
  new ResizeObserver(() => drawn && drawn.setSize({ width: place.clientWidth, height: 168 })).observe(place);
  window.addEventListener("themechange", draw);
}
