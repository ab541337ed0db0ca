// The view as embedded, decoded to one object a point, and numbers as people read them.
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

// Okabe-Ito, safe for the common kinds of colour blindness; shapes tell variants apart without colour.
const COLOURS = {
  naive: ["#d55e00", "#f28e4b"], chunked: ["#b97a00", "#e69f00"], flash: ["#0072b2", "#4aa8e0"], "split-kv": ["#2a94c9", "#7cc7f2"],
  paged: ["#00795a", "#2fc49b"], mla: ["#a8467f", "#e08dbb"], linear: ["#555b63", "#c3c9d0"],
};
const SHAPES = { naive: "square", chunked: "diamond", flash: "circle", "split-kv": "triangle-up", paged: "triangle-down", mla: "cross", linear: "x" };
const PEER_SHAPES = ["star", "hexagram", "pentagon", "star-diamond", "star-square", "star-triangle-up", "octagon"];
const TENSORS = { S: ["#d55e00", "#f0742e"], P: ["#e69f00", "#ffbf47"], Q: ["#a8467f", "#d584b1"], K: ["#0072b2", "#3f9fd8"], V: ["#56b4e9", "#8fd0f5"], O: ["#009e73", "#3cc79e"] };

const implementations = [...new Set(VIEW.points.filter((point) => !point.ours).map((point) => point.implementation))];
function shape(point, hollow) {
  const peer = PEER_SHAPES[Math.max(implementations.indexOf(point.implementation), 0) % PEER_SHAPES.length];
  const base = point.ours ? SHAPES[point.variant] || "circle" : peer;
  return base + (hollow ? "-open" : "") + (point.run % 2 ? "-dot" : "");
}
