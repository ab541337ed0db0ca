// The view as embedded, decoded to one object a point, and numbers as people read them.
"use strict";
const VIEW = (() => {
  const raw = JSON.parse(document.getElementById("view").textContent);
  const text = new Set(raw.text_columns);
  const points = raw.rows.map((row) => {
    const point = {};
    raw.columns.forEach((name, at) => {
      const value = row[at];
      point[name] = value !== null && text.has(name) ? raw.strings[value] : value;
    });
    point.tensors = point.tensors.map(([name, role, hbm, sm]) => ({ name: raw.strings[name], role: raw.strings[role], hbm, sm }));
    point.notes = point.notes.map((note) => raw.strings[note]);
    point.ours = point.implementation.startsWith("roofline/");
    point.search = ["#" + point.number, point.configuration, point.implementation, point.problem, point.phase, point.status,
      point.bound, raw.sources[point.run]].join(" ").toLowerCase();
    return point;
  });
  return { ...raw, points };
})();

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

// Okabe-Ito, safe for the common kinds of colour blindness; shapes tell variants apart without colour.
const COLOURS = {
  naive: ["#d55e00", "#f28e4b"], chunked: ["#b97a00", "#e69f00"], flash: ["#0072b2", "#4aa8e0"], "split-kv": ["#2a94c9", "#7cc7f2"],
  paged: ["#00795a", "#2fc49b"], mla: ["#a8467f", "#e08dbb"], linear: ["#555b63", "#c3c9d0"],
};
const SHAPES = { naive: "square", chunked: "diamond", flash: "circle", "split-kv": "triangle-up", paged: "triangle-down", mla: "cross", linear: "x" };
const PEER_SHAPES = ["star", "hexagram", "pentagon", "star-diamond", "star-square", "star-triangle-up", "octagon"];
const BOUNDS = { hbm: "HBM", l2: "L2", tensor: "tensor", exp: "exp", vector: "vector", parallelism: "too few CTAs", launch: "launch" };
const TENSORS = { S: ["#d55e00", "#f0742e"], P: ["#e69f00", "#ffbf47"], Q: ["#a8467f", "#d584b1"], K: ["#0072b2", "#3f9fd8"], V: ["#56b4e9", "#8fd0f5"], O: ["#009e73", "#3cc79e"] };
const isDark = () => document.documentElement.dataset.theme === "dark";
const tone = (pair, fallback) => (pair ? pair[isDark() ? 1 : 0] : fallback ?? (isDark() ? "#9aa4af" : "#6b7480"));
const implementations = [...new Set(VIEW.points.filter((point) => !point.ours).map((point) => point.implementation))];
function shape(point, hollow) {
  const peer = PEER_SHAPES[Math.max(implementations.indexOf(point.implementation), 0) % PEER_SHAPES.length];
  const base = point.ours ? SHAPES[point.variant] || "circle" : peer;
  return base + (hollow ? "-open" : "") + (point.run % 2 ? "-dot" : "");
}
