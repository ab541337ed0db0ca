// The parts of a forward pass as stacked bars: one a phase and measure, each part as its share of the bar.
const VIEW = JSON.parse(at("view").textContent);
// Okabe-Ito and greys; kinds of one family of parts share a hue and differ by pattern.
const PARTS = [
  [/^embeddings/, ["#8c959f", "#8b949e"]], [/^qkv projection/, ["#0072b2", "#3f9fd8"]], [/^o projection/, ["#56b4e9", "#8fd0f5"]],
  [/^attention/, ["#d55e00", "#f0742e"]], [/^(linear|state space)/, ["#e69f00", "#ffbf47"]], [/^mixer projection/, ["#3b4fa0", "#7f93e6"]],
  [/^mlp/, ["#2fb58a", "#8fe6cb"]], [/^experts/, ["#00614a", "#22a37d"]], [/^shared expert/, ["#b9c400", "#dfe85a"]],
  [/^router/, ["#434b54", "#d0d6dc"]], [/^norms/, ["#b3bac2", "#6c757f"]], [/^lm head/, ["#a8467f", "#d584b1"]],
];
const PATTERNS = ["", "/", ".", "x", "-", "|"];
function styles(names) {
  const used = new Map();
  return names.map((name) => {
    const pair = (PARTS.find(([match]) => match.test(name)) || [])[1], key = String(pair), before = used.get(key) || 0;
    used.set(key, before + 1);
    return { color: tone(pair), pattern: { shape: PATTERNS[before % PATTERNS.length], size: 6, solidity: 0.3, fillmode: "overlay", fgcolor: css("--bg"), fgopacity: 0.8 }, line: { width: 0.5, color: css("--bg") } };
  });
}
function drawParts() {
  if (!VIEW.bars.length) return empty("parts", "No part has a time or bytes.");
  const width = widthOf("parts"), narrow = width < 560, bars = VIEW.bars;
  const names = bars.map((bar) => `${bar.phase}${narrow ? "<br>" : ", "}${bar.measure} ${bar.shown.replace(" ", "\u00a0")}`);
  const shown = VIEW.parts.filter((part) => part.values.some((value) => value)), looks = styles(shown.map((part) => part.name));
  const traces = shown.map((part, index) => ({
    type: "bar", orientation: "h", name: escapeText(part.name), meta: part.name, y: names, x: part.values.map((value, row) => (100 * (value || 0)) / bars[row].total),
    hoverinfo: "text", textposition: "none", marker: looks[index],
    hovertext: part.values.map((value, row) => `<b>${escapeText(part.name)}</b>, ${bars[row].phase}<br>${bars[row].measure === "time" ? "at least " : ""}${si(value, bars[row].unit)}, ${percent((value || 0) / bars[row].total)}<br>${part.bounds[row] ? "bound by " + BOUNDS[part.bounds[row]] : "no bound is known"}`),
  }));
  const height = 46 * bars.length + 8, rows = legendRows(shown.map((part) => part.name), width), bottom = 60 + 22 * rows, left = narrow ? 96 : 160;
  return draw("parts", traces, layout("parts", height + bottom, { barmode: "stack", bargap: 0.3, margin: { l: left, t: 8, b: bottom }, legend: { ...legendBelow(height), traceorder: "normal" }, showlegend: true,
    xaxis: { title: { text: "share of the pass", standoff: 8 }, range: [0, 100], ticksuffix: " %", nticks: narrow ? 5 : 10, fixedrange: true }, yaxis: { autorange: "reversed", type: "category", showgrid: false, fixedrange: true } }));
}
at("theme").onclick = () => { theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]; applyTheme(); drawParts(); };
wantsDark.addEventListener("change", () => { applyTheme(); drawParts(); });
let resized, before = innerWidth;
addEventListener("resize", () => { if (innerWidth === before) return; before = innerWidth; clearTimeout(resized); resized = setTimeout(drawParts, 150); });
addEventListener("beforeprint", () => { paper = true; document.documentElement.dataset.theme = "light"; drawParts(); });
addEventListener("afterprint", () => { paper = false; applyTheme(); drawParts(); });
applyTheme();
drawParts();
document.documentElement.dataset.ready = "yes";
