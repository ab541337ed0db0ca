// What every page needs: numbers as people read them, the theme, and charts in its colours.
"use strict";
const at = (id) => document.getElementById(id);
const escapeText = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const digits = (value) => (value === 0 ? "0" : Math.abs(value) >= 1000 ? value.toFixed(0) : String(Number(value.toPrecision(3))));
function scaled(value, unit, prefixes, base) {
  if (value === null || value === undefined) return "";
  let step = 0;
  while (step < prefixes.length - 1 && (Math.abs(value) >= base || Math.abs(Number(value.toPrecision(3))) >= base)) { value /= base; step += 1; }
  return digits(value) + " " + prefixes[step] + unit;
}
function si(value, unit) {
  if (value === null || value === undefined) return "";
  if (value !== 0 && Math.abs(value) < 1) {
    for (const [prefix, factor] of [["m", 1e3], ["µ", 1e6], ["n", 1e9]]) {
      if (Math.abs(value) * factor >= 0.9995) return digits(value * factor) + " " + prefix + unit;
    }
  }
  return scaled(value, unit, ["", "k", "M", "G", "T", "P", "E"], 1000);
}
const iec = (value) => scaled(value, "B", ["", "Ki", "Mi", "Gi", "Ti"], 1024);
const percent = (value) => (value === null || value === undefined ? "" : digits(value * 100) + " %");
const signed = (value) => (value === null || value === undefined ? "" : (value > 0 ? "+" : "") + (Math.abs(value) < 1e-9 ? "0 %" : percent(Number(value.toPrecision(2)))));
const perSecond = (work, time) => (work && time ? work / time : null);
const BOUNDS = { hbm: "HBM", l2: "L2", tensor: "tensor", exp: "exp", vector: "vector", parallelism: "too few CTAs", launch: "launch" };

const isDark = () => document.documentElement.dataset.theme === "dark";
const tone = (pair, fallback) => (pair ? pair[isDark() ? 1 : 0] : fallback ?? (isDark() ? "#9aa4af" : "#6b7480"));
const THEMES = ["auto", "light", "dark"], wantsDark = matchMedia("(prefers-color-scheme: dark)");
let theme = "auto";
function applyTheme() {
  document.documentElement.dataset.theme = theme === "auto" ? (wantsDark.matches ? "dark" : "light") : theme;
  at("theme").textContent = `Theme: ${theme}`;
}

const MARGIN = { l: 76, r: 24, t: 16, b: 56 };
let paper = false; // while printing
const PAPER_WIDTH = 690; // of A4 or Letter between usual margins, in CSS pixels
const widthOf = (id) => (paper ? PAPER_WIDTH : document.getElementById(id).clientWidth);
function css(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
function layout(id, height, extra) {
  const axis = { gridcolor: css("--grid"), zerolinecolor: css("--grid"), linecolor: css("--line"), automargin: false };
  const { xaxis, yaxis, margin, annotations, ...rest } = extra, { title, ...vertical } = yaxis;
  // Plotly puts the title of an upright axis into the plot where margins are fixed, so it is an annotation.
  const upright = title && { text: title, textangle: -90, showarrow: false, xref: "paper", yref: "paper", x: 0, y: 0.5, xanchor: "center", yanchor: "middle", xshift: 14 - MARGIN.l, font: { size: 13 } };
  return {
    width: widthOf(id), height, margin: { ...MARGIN, ...margin, autoexpand: false },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: css("--text"), size: 12 },
    hoverlabel: { align: "left", bgcolor: css("--panel"), font: { color: css("--text") }, bordercolor: css("--line") },
    hovermode: "closest", hoverdistance: 12, dragmode: "pan", xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...vertical },
    annotations: [...(upright ? [upright] : []), ...(annotations || [])], ...rest,
  };
}
const legendBelow = (height) => ({ orientation: "h", xref: "container", x: 0.01, xanchor: "left", maxheight: 1, y: -64 / height, yanchor: "top", font: { size: 12 } });
// Rows a legend takes at most; ``draw`` gives back what it does not need.
const legendRows = (names, width) => (width < 560 ? names.length : Math.ceil(names.length / Math.max(Math.floor((width - 250) / (56 + 7 * Math.max(...names.map((name) => name.length)))), 1))) + 1;
function draw(id, traces, shown) {
  const config = { displaylogo: false, responsive: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"], displayModeBar: false, scrollZoom: false };
  const done = Plotly.react(id, traces, shown, config), legend = document.querySelector(`#${id} .legend`);
  if (!legend) return done;
  const spare = Math.round(document.querySelector(`#${id} .main-svg`).getBoundingClientRect().bottom - legend.getBoundingClientRect().bottom - 8);
  return spare < 0 || spare > 16 ? Plotly.relayout(id, { height: shown.height - spare, "margin.b": shown.margin.b - spare }) : done;
}
function empty(id, words) {
  draw(id, [], layout(id, 160, { xaxis: { visible: false }, yaxis: { visible: false }, annotations: [{ text: words, showarrow: false, x: 0.5, y: 0.5, xref: "paper", yref: "paper" }] }));
}
