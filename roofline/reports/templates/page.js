// The state of the page, its controls, verdicts and theme; everything is drawn anew from the state.
const STATE = { axis: "hbm", roof: VIEW.roof, dtype: "", phase: "", run: "", words: [], bytes: "times", sort: "", down: false, page: 0, chosen: null, verdicts: 12 };

function picked() {
  return VIEW.points.filter((point) => (!STATE.dtype || point.dtype === STATE.dtype) && (!STATE.phase || point.phase === STATE.phase) && (STATE.run === "" || point.run === Number(STATE.run))
    && STATE.words.every((word) => point.search.includes(word)));
}
function verdictOf(point, tag) {
  const box = make(tag), head = make("div", `${point.number} ${point.configuration} `, { class: "what" });
  head.append(make("small", `${point.implementation}${VIEW.sources.length > 1 ? ", " + VIEW.sources[point.run] : ""}`));
  box.append(head, make("div", `${point.phase}, ${point.problem}`, { class: "problem" }));
  box.append(make("div", point.verdict ? point.verdict.replace(/\.?$/, ".").replace(/ %/g, "\u00a0%") : "Nothing is known of its limits.", { class: ["ok", "predicted"].includes(point.status) ? "" : "bad" }));
  for (const note of point.notes) box.append(make("div", note.slice(0, 1).toUpperCase() + note.slice(1) + ".", { class: "bad" }));
  if (point.advice) box.append(make("div", point.advice, { class: "next" }));
  return box;
}
function drawVerdicts(points) {
  at("verdicts").replaceChildren(...points.slice(0, STATE.verdicts).map((point) => verdictOf(point, "li")));
  at("more-verdicts").hidden = points.length <= STATE.verdicts;
  at("more-verdicts").textContent = `Show more (${points.length - STATE.verdicts} left)`;
}
function choose(number, scroll) {
  STATE.chosen = number;
  const point = VIEW.points[number - 1], box = at("selected");
  box.classList.add("chosen");
  box.replaceChildren(verdictOf(point, "div"));
  drawRoofline(sorted(picked()), STATE);
  if (scroll) at("h-roofline").scrollIntoView({ block: "start" });
}
const LATER = [["bytes", drawBytes], ["accuracy", drawAccuracy], ["time", drawTime], ["kv", drawKv]];
const visible = new Set();
let drawn = {};
function refresh() {
  const points = sorted(picked());
  at("shown").textContent = `${points.length} of ${VIEW.points.length} points`;
  drawRoofline(points, STATE);
  drawVerdicts(points);
  drawTable(points);
  drawn = {};
  drawVisible(points);
}
function drawVisible(points) { // what is below the screen is drawn when it comes near
  for (const [id, chart] of LATER) if (visible.has(id) && !drawn[id]) { drawn[id] = true; chart(points, STATE); }
}
function drawEverything() { const points = sorted(picked()); for (const [id] of LATER) visible.add(id); drawn = {}; drawRoofline(points, STATE); drawVisible(points); }

function fill(id, values, all, texts) {
  const options = values.map((value, index) => { const option = make("option", (texts || values)[index]); option.value = value; return option; });
  if (values.length > 1) { const option = make("option", all); option.value = ""; options.unshift(option); }
  at(id).replaceChildren(...options);
}
function start() {
  fill("dtype", [...new Set(VIEW.points.map((point) => point.dtype))], "all");
  fill("phase", [...new Set(VIEW.points.map((point) => point.phase))], "both");
  fill("run", VIEW.sources.map((_, index) => index), "all", VIEW.sources);
  at("run-label").hidden = VIEW.sources.length < 2;
  const measured = VIEW.ceilings.some((line) => line.roof === "measured");
  at("roof").querySelector("[value=measured]").disabled = !measured;
  at("roof").value = STATE.roof;
  const change = (id, field) => at(id).addEventListener("change", () => { STATE[field] = at(id).value; STATE.page = 0; refresh(); });
  for (const [id, field] of [["axis", "axis"], ["roof", "roof"], ["dtype", "dtype"], ["phase", "phase"], ["run", "run"], ["bytes-mode", "bytes"]]) change(id, field);
  for (const field of ["dtype", "phase", "run"]) STATE[field] = at(field).options.length > 1 ? "" : at(field).value;
  let timer;
  at("filter").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => { STATE.words = at("filter").value.toLowerCase().split(/\s+/).filter(Boolean); STATE.page = 0; refresh(); }, 120); });
  at("controls").addEventListener("submit", (event) => event.preventDefault());
  at("all-columns").addEventListener("change", () => drawTable(sorted(picked())));
  at("previous").onclick = () => { STATE.page -= 1; drawTable(sorted(picked())); };
  at("next").onclick = () => { STATE.page += 1; drawTable(sorted(picked())); };
  at("more-verdicts").onclick = () => { STATE.verdicts += 48; drawVerdicts(sorted(picked())); };
  at("copy").onclick = copyTable;
  at("csv").onclick = saveCsv;
  at("theme").onclick = () => { theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]; applyTheme(); refresh(); };
  wantsDark.addEventListener("change", () => { applyTheme(); refresh(); });
  applyTheme();
  refresh();
  at("roofline").on("plotly_click", (event) => { const number = event.points[0]?.customdata; if (number) choose(number, false); });
  const watch = new IntersectionObserver((entries) => { for (const entry of entries) if (entry.isIntersecting) visible.add(entry.target.id); drawVisible(sorted(picked())); }, { rootMargin: "300px" });
  for (const [id] of LATER) if (at(id)) watch.observe(at(id));
  let resized, width = innerWidth;
  addEventListener("resize", () => { if (innerWidth === width) return; width = innerWidth; clearTimeout(resized); resized = setTimeout(refresh, 150); });
  // On paper: light, and every chart.
  addEventListener("beforeprint", () => { paper = true; document.documentElement.dataset.theme = "light"; STATE.verdicts = Math.max(STATE.verdicts, 100); drawVerdicts(sorted(picked())); drawEverything(); });
  addEventListener("afterprint", () => { paper = false; applyTheme(); refresh(); });
  document.documentElement.dataset.ready = "yes";
}
start();
