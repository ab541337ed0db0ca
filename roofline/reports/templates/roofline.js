// The roofline chart: ceilings, predicted and measured markers, and labels that keep out of each other's way.
const LABELLED = 40; // points up to which each is numbered
const DRAWN = 1500; // markers up to which every point is drawn
const log = Math.log10;

// Ticks at powers of ten, and at 2 and 5 times them where there are few; every one says its unit.
function logTicks([low, high], format, most) {
  const ticks = [];
  for (let power = Math.floor(low); power <= high; power += 1) for (const digit of [1, 2, 5]) ticks.push(digit * 10 ** power);
  const inside = ticks.filter((tick) => log(tick) >= low && log(tick) <= high), decades = inside.filter((tick) => Math.abs(log(tick) - Math.round(log(tick))) < 1e-9);
  const kept = decades.length > 1 && inside.length > (most || 9) ? decades : inside;
  return { tickvals: kept, ticktext: kept.map(format) };
}
// Put each text beside its marker where it covers neither a marker nor an earlier text; leave it out where no place is free.
const around = ([x, y], reach) => [x - reach, y - reach, x + reach, y + reach];
const meets = (box, others) => others.some((other) => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1]);
function place(items, toPixel, taken) {
  const offsets = [[0, -13], [0, 13], [1, 0], [-1, 0], [1, -11], [-1, -11], [1, 11], [-1, 11], [0, -24], [0, 24]];
  const found = [];
  for (const item of items) {
    const [x, y] = toPixel(item), half = 3.2 * item.text.length + 1;
    for (const [dx, dy] of offsets) {
      const cx = x + dx * (half + 9), cy = y + dy, box = [cx - half, cy - 6, cx + half, cy + 6];
      if (meets(box, taken)) continue;
      taken.push(box);
      found.push({ x: log(item.x), y: log(item.y), text: escapeText(item.text), showarrow: false, xshift: cx - x, yshift: y - cy, font: { size: 10, color: css("--soft") } });
      break;
    }
  }
  return found;
}
// One marker for the points of one cell of the screen, so that 10,000 points stay quick; its hover says how many there are.
function thin(marks) {
  if (marks.length <= DRAWN) return marks;
  for (let cell = 30; ; cell *= 0.75) {
    const cells = new Map();
    for (const mark of marks) {
      const key = `${mark.point.series}|${mark.kind}|${Math.round(log(mark.x) * cell)}|${Math.round(log(mark.y) * cell)}`, there = cells.get(key);
      if (there) there.more += 1; else cells.set(key, { ...mark, more: 0 });
    }
    if (cells.size <= DRAWN || cell < 2) return [...cells.values()];
  }
}
const predictedTime = (point, roof) => point["predicted_s_" + roof] ?? point.predicted_s_datasheet ?? point.predicted_s_measured;
function marks(points, state) {
  const found = [];
  for (const point of points) {
    const predicted = { hbm: point.hbm_bytes, l2: null, sm: point.sm_bytes }[state.axis];
    const measured = { hbm: point.hbm_used, l2: point.l2_counted, sm: point.sm_counted ?? (point.ours ? point.sm_bytes : null) }[state.axis];
    const at = predictedTime(point, state.roof);
    if (point.flops && predicted && at && point.ours) found.push({ point, kind: "predicted", x: point.flops / predicted, y: point.flops / at });
    if (point.flops && measured && point.measured_s) found.push({ point, kind: "measured", x: point.flops / measured, y: point.flops / point.measured_s });
  }
  return found;
}
function hover(mark, state) {
  const point = mark.point, bytes = { hbm: mark.kind === "measured" ? point.hbm_used : point.hbm_bytes, l2: point.l2_counted, sm: point.sm_counted ?? point.sm_bytes }[state.axis];
  const source = mark.kind === "predicted" ? "predicted" : state.axis === "hbm" ? point.hbm_source : "counted";
  const lines = [`<b>${point.number} ${escapeText(point.configuration)}</b> ${escapeText(point.implementation)} (${mark.kind})`, escapeText(point.problem),
    `${si(mark.y, "FLOP/s")} at ${digits(mark.x)} FLOP/B`, `${si(point.flops, "FLOP")}, ${si(bytes, "B")} ${state.axis.toUpperCase()} (${source})`];
  if (mark.kind === "measured") {
    lines.push(`${si(point.measured_s, "s")} (p10 ${si(point.p10_s, "s")}, p90 ${si(point.p90_s, "s")})`);
    const share = point["roof_share_" + state.roof];
    if (share) lines.push(`${percent(share)} of the ${state.roof === "measured" ? "measured" : "data-sheet"} roof`);
    if (point.prediction_error !== null) lines.push(`prediction of HBM bytes: ${signed(point.prediction_error)}`);
  } else lines.push(`${si(predictedTime(point, state.roof), "s")} at least`);
  if (point.bound && point.ours) lines.push(`limited by ${escapeText(BOUNDS[point.bound] || point.bound)}`);
  if (VIEW.sources.length > 1) lines.push(escapeText(VIEW.sources[point.run]));
  if (mark.more) lines.push(`and ${mark.more} more points here: filter to part them`);
  return lines.join("<br>");
}
// Ceilings of the chosen roof as drawn: equal lines of several runs once, all names of one value together.
function ceilings(state, roof, points) {
  const runs = new Set(points.map((point) => point.run)), dtypes = new Set(points.map((point) => point.dtype)), lines = new Map();
  for (const line of VIEW.ceilings) {
    const memory = line.level === "HBM" || line.level === "L2";
    if (!runs.has(line.run) || line.roof !== roof || (!memory && !dtypes.has(line.level)) || (line.level === "HBM" && state.axis !== "hbm")) continue;
    const key = memory + ":" + line.level.replace(/^(?!HBM|L2).*/, "") + line.per_s, there = lines.get(key);
    if (there) there.names.add(line.level); else lines.set(key, { memory, per_s: line.per_s, names: new Set([line.level]), kind: line.kind });
  }
  return [...lines.values()];
}
// The name of a ceiling along its line, from ``ends``, the first of ``texts`` for which there is room: where it covers no marker and
// none of the ``others`` (boxes along other lines), from the left on a slope, there also below it, from the right on a peak.
function named(texts, ends, toPixel, taken, others, area, slopes) {
  const [[x0, y0], [x1, y1]] = ends.map(([x, y]) => toPixel({ x, y })), angle = Math.atan2(y1 - y0, x1 - x0), steps = 40;
  const from = y0 > area[1] ? x0 + ((y0 - area[1]) * (x1 - x0)) / (y0 - y1) : x0; // where the line enters the plot
  const at = (text, step, off) => {
    const half = 3.1 * text.length + 4, room = Math.max((x1 - from) / Math.cos(angle) - 2 * half, 0), along = half + 4 + (room * step) / steps, boxes = [];
    const centre = [from + along * Math.cos(angle) + off * Math.sin(angle), y0 + (from - x0) * Math.tan(angle) + along * Math.sin(angle) - off * Math.cos(angle)];
    for (let step = -half; step <= half; step += 8) boxes.push(around([centre[0] + step * Math.cos(angle), centre[1] + step * Math.sin(angle)], 6));
    return { text, centre, boxes };
  };
  const candidates = texts.flatMap((text) => (slopes ? [9, -11, 22, -24] : [9, 22]).flatMap((off) => Array.from({ length: steps + 1 }, (_, step) => at(text, slopes ? step : steps - step, off))));
  const free = ({ boxes }) => !boxes.some((box) => box[0] < 0 || box[3] > area[1] || meets(box, taken) || meets(box, others));
  const { text, centre, boxes } = candidates.find(free) || at(texts.at(-1), slopes ? 0 : steps, 9);
  taken.push(...boxes);
  return { x: centre[0] / area[0], y: 1 - centre[1] / area[1], xref: "paper", yref: "paper", xanchor: "center", yanchor: "middle", text, textangle: (angle * 180) / Math.PI, showarrow: false, font: { size: 11, color: css("--soft") } };
}
// Small boxes along the slopes of ``lines``.
function along(lines, left, right, toPixel) {
  const steps = 200, ratio = right / left;
  return lines.flatMap((line) => Array.from({ length: steps + 1 }, (_, step) => left * ratio ** (step / steps)).map((x) => around(toPixel({ x, y: x * line.per_s }), 2)));
}
function drawRoofline(points, state) {
  const everything = marks(VIEW.points, state), chosen = marks(points, state), shown = thin(chosen);
  const words = document.getElementById("roofline-note");
  words.textContent = shown.length < chosen.length ? `${shown.length} markers stand for ${chosen.length}: close ones share one, filter to part them.` : "";
  if (!shown.length) return empty("roofline", state.axis === "l2" ? "No point here has L2 bytes: they come from hardware counters." : "No point here has both FLOPs and bytes.");
  const width = widthOf("roofline"), phone = width < 560;
  const roofs = ceilings(state, state.roof, VIEW.points), other = ceilings(state, state.roof === "measured" ? "datasheet" : "measured", VIEW.points);
  const peaks = roofs.filter((line) => !line.memory).map((line) => line.per_s), rates = roofs.filter((line) => line.memory).map((line) => line.per_s);
  const top = Math.max(...peaks, ...everything.map((mark) => mark.y)), most = peaks.length ? Math.max(...peaks) : Infinity;
  const xs = everything.map((mark) => mark.x), ridges = peaks.length && rates.length ? [most / Math.max(...rates), most / Math.min(...rates)] : [];
  const xRange = [log(Math.min(...xs, ...ridges)) - 0.35, log(Math.max(...xs, ...ridges)) + 0.35];
  const yRange = [log(Math.min(...everything.map((mark) => mark.y))) - 0.3, log(top) + 0.35];
  const names = [...new Set(shown.map((mark) => mark.point.series))], height = (phone ? 436 : 500) + 24 * legendRows(names, width);
  const bottom = height - (phone ? 380 : 444), area = [width - MARGIN.l - MARGIN.r, height - MARGIN.t - bottom];
  const toPixel = (at) => [((log(at.x) - xRange[0]) / (xRange[1] - xRange[0])) * area[0], (1 - (log(at.y) - yRange[0]) / (yRange[1] - yRange[0])) * area[1]];
  const traces = [], notes = [], taken = shown.map((mark) => around(toPixel(mark), 6)), left = 10 ** xRange[0], right = 10 ** xRange[1];
  for (const [lines, strong] of [[other, false], [roofs, true]]) {
    const highest = Math.max(...lines.filter((line) => !line.memory).map((line) => line.per_s), 0) || 10 ** yRange[1];
    const memory = lines.filter((line) => line.memory).map((line) => line.per_s);
    for (const line of lines) {
      const x = line.memory ? [left, Math.min(highest / line.per_s, right)] : [memory.length ? line.per_s / Math.max(...memory) : left, right];
      const y = line.memory ? x.map((at) => at * line.per_s) : [line.per_s, line.per_s];
      const unit = line.memory ? "B/s" : "FLOP/s", label = `${[...line.names].join(", ")} ${si(line.per_s, unit)}`;
      traces.push({ x, y, mode: "lines", type: "scatter", showlegend: false, hoverinfo: "text", hovertext: `${label} (${strong === (state.roof === "measured") ? "measured" : "data sheet"})`,
        line: { color: css("--text"), width: strong ? 1.6 : 1, dash: strong ? (line.names.has("L2") ? "dashdot" : "solid") : "dot" }, opacity: strong ? 0.9 : 0.45, meta: "ceiling" });
      if (!strong) continue;
      const twin = other.find((each) => [...each.names].some((name) => line.names.has(name))), upper = Math.max(line.per_s, twin ? twin.per_s : 0);
      const both = twin && twin.per_s !== line.per_s && !phone ? [`${label} (${state.roof === "measured" ? "data sheet" : "measured"} ${si(twin.per_s, unit)})`, label] : [label];
      notes.push(named(both, line.memory ? x.map((at) => [at, at * upper]) : x.map((at) => [at, upper]), toPixel, taken, along(lines.filter((each) => each !== line && each.memory), left, right, toPixel), area, line.memory));
    }
  }
  const joined = { x: [], y: [], mode: "lines", type: "scatter", hoverinfo: "skip", showlegend: false, line: { color: css("--soft"), width: 1 }, opacity: 0.6, meta: "joined" };
  const measured = new Map(shown.filter((mark) => mark.kind === "measured").map((mark) => [mark.point, mark]));
  for (const mark of shown) {
    const to = mark.kind === "predicted" && measured.get(mark.point);
    if (to) { joined.x.push(mark.x, to.x, null); joined.y.push(mark.y, to.y, null); }
  }
  traces.push(joined);
  for (const name of names) {
    for (const kind of ["predicted", "measured"]) {
      const own = shown.filter((mark) => mark.point.series === name && mark.kind === kind);
      if (!own.length) continue;
      const first = kind === "measured" || !shown.some((mark) => mark.point.series === name && mark.kind === "measured");
      traces.push({ x: own.map((mark) => mark.x), y: own.map((mark) => mark.y), mode: "markers", type: "scatter", name: escapeText(name), legendgroup: name, showlegend: first,
        hoverinfo: "text", hovertext: own.map((mark) => hover(mark, state)), customdata: own.map((mark) => mark.point.number), meta: kind,
        marker: { symbol: own.map((mark) => shape(mark.point, kind === "predicted")), size: kind === "measured" ? 10 : 9, color: tone(COLOURS[own[0].point.variant]), line: { width: kind === "measured" ? 0.8 : 1.6, color: kind === "measured" ? css("--bg") : tone(COLOURS[own[0].point.variant]) } } });
    }
  }
  const ringed = shown.find((mark) => mark.point.number === state.chosen && (mark.kind === "measured" || !measured.has(mark.point)));
  if (ringed) traces.push({ x: [ringed.x], y: [ringed.y], mode: "markers", type: "scatter", hoverinfo: "skip", showlegend: false, meta: "ring", marker: { symbol: "circle-open", size: 20, color: css("--accent"), line: { width: 2.5 } } });
  const labelled = shown.filter((mark) => mark.kind === "measured" || !measured.has(mark.point));
  if (labelled.length <= LABELLED) notes.push(...place(labelled.map((mark) => ({ ...mark, text: String(mark.point.number) })), toPixel, taken));
  const title = { hbm: "FLOP per HBM byte", l2: "FLOP per L2 byte (counted)", sm: "FLOP per byte at the SMs" }[state.axis];
  const shownLayout = layout("roofline", height, { margin: { b: bottom }, annotations: notes, showlegend: true, legend: legendBelow(area[1]),
    xaxis: { type: "log", range: xRange, title: { text: title, standoff: 8 }, ...logTicks(xRange, (tick) => tick.toLocaleString("en"), width / 75), tickangle: 0 },
    yaxis: { type: "log", range: yRange, title: "FLOP/s", ...logTicks(yRange, (tick) => si(tick, "")) } });
  return draw("roofline", traces, shownLayout);
}
