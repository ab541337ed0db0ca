// Bytes per tensor, prediction against counters, time against n, KV-cache sizes.
const ROWS = 24; // configurations that a chart of rows shows
const ours = (points) => {
  const seen = new Set();
  return points.filter((point) => {
    const key = [point.configuration, point.problem, point.phase].join("|");
    if (!point.ours || seen.has(key)) return false;
    seen.add(key);
    return true;
  });
};
const rowName = (point, width) => {
  const [length, batch] = point.problem.split(", "), many = batch === "batch 1" || !batch ? "" : ` × ${batch.slice(6)}`;
  const name = `${point.number} ${point.configuration}, ${length}${many}${point.phase !== "decode" ? "" : width < 560 ? " dec." : ", decode"}`;
  return escapeText(width < 560 && name.length > 27 ? name.slice(0, 26) + "…" : name.length > 44 ? name.slice(0, 43) + "…" : name);
};
const rowMargin = (names) => 14 + 6.6 * Math.max(8, ...names.map((name) => name.replace(/&[a-z]+;/g, "x").length));
const noteOf = (id, shown, all) => { document.getElementById(id).textContent = shown < all ? `The first ${shown} of ${all} configurations; filter or sort the table to see others.` : ""; };

function drawBytes(points, state) {
  const all = ours(points).filter((point) => point.tensors.length), level = state.axis === "sm" ? "sm" : "hbm", shown = all.slice(0, ROWS);
  noteOf("bytes-note", shown.length, all.length);
  if (!shown.length) return empty("bytes", "No configuration here has bytes by tensor.");
  const width = widthOf("bytes"), names = shown.map((point) => rowName(point, width)), mode = state.bytes;
  const tensors = [...new Set(shown.flatMap((point) => point.tensors.map((tensor) => tensor.name)))];
  tensors.sort((a, b) => (a === "S" || a === "P") - (b === "S" || b === "P"));
  const total = (point) => point.tensors.reduce((sum, tensor) => sum + tensor[level], 0);
  const scale = (point) => (mode === "bytes" ? 1 : mode === "share" ? total(point) / 100 : point.hbm_bytes_min) || 1;
  const greys = isDark() ? ["#8b949e", "#b8c0c8", "#6c757f", "#d0d6dc"] : ["#8c959f", "#5f6973", "#b3bac2", "#434b54"];
  const traces = tensors.map((name, at) => {
    const moved = shown.map((point) => point.tensors.filter((tensor) => tensor.name === name).reduce((sum, tensor) => sum + tensor[level], 0));
    return { type: "bar", orientation: "h", name: escapeText(name), y: names, x: moved.map((bytes, row) => bytes / scale(shown[row])), hoverinfo: "text", textposition: "none",
      hovertext: moved.map((bytes, row) => `<b>${escapeText(name)}</b>: ${si(bytes, "B")}, ${percent(bytes / (total(shown[row]) || 1))}<br>${names[row]}<br>${escapeText(shown[row].problem)}`),
      marker: { color: tone(TENSORS[name], greys[at % greys.length]), pattern: { shape: name === "P" ? "/" : TENSORS[name] ? "" : ".", size: 6, solidity: 0.25, fillmode: "overlay", fgcolor: css("--bg"), fgopacity: 0.8 }, line: { width: 0.5, color: css("--bg") } } };
  });
  const title = { bytes: `${level.toUpperCase()} bytes, predicted`, times: `${level.toUpperCase()} bytes, × minimum`, share: `share of ${level.toUpperCase()} bytes` }[mode];
  const bars = 24 * shown.length, rows = legendRows(tensors, width), bottom = 60 + 22 * rows;
  return draw("bytes", traces, layout("bytes", bars + 40 + bottom, { barmode: "stack", bargap: 0.25, margin: { l: rowMargin(names), b: bottom, t: 8 }, legend: { ...legendBelow(bars + 32), traceorder: "normal" }, showlegend: true,
    xaxis: { title: { text: title, standoff: 8 }, rangemode: "tozero", tickformat: mode === "bytes" ? "~s" : undefined, ticksuffix: mode === "bytes" ? "B" : mode === "share" ? " %" : "×", nticks: width < 560 ? 5 : 10 },
    yaxis: { autorange: "reversed", type: "category", showgrid: false } }));
}

function drawAccuracy(points) {
  if (!document.getElementById("accuracy")) return null;
  const counted = points.filter((point) => point.prediction_error !== null);
  if (!counted.length) return empty("accuracy", "No point here has counted HBM bytes.");
  const width = widthOf("accuracy"), variants = [...new Set(counted.map((point) => point.variant))];
  const step = Math.max(1, Math.ceil(counted.length / DRAWN));
  const tell = (point, what, bytes) => `<b>${point.number} ${escapeText(point.configuration)}</b><br>${escapeText(point.problem)}<br>${what} ${si(bytes, "B")}, counted ${si(point.hbm_counted, "B")}: ${signed(bytes / point.hbm_counted - 1)}`;
  const traces = [["minimum", "hbm_bytes_min", "line-ew-open"], ["cold launches", "hbm_bytes_cold", "asterisk-open"]].map(([name, field, symbol]) => {
    const own = counted.filter((point, at) => point[field] && at % step === 0);
    return { x: own.map((point) => point.hbm_counted), y: own.map((point) => point[field] / point.hbm_counted), mode: "markers", type: "scatter", name, hoverinfo: "text", hovertext: own.map((point) => tell(point, name, point[field])),
      marker: { symbol, size: 8, color: css("--soft"), line: { width: 1.4, color: css("--soft") } }, opacity: 0.75 };
  });
  for (const variant of variants) {
    const own = counted.filter((point, at) => point.variant === variant && (step === 1 || at % step === 0));
    traces.push({ x: own.map((point) => point.hbm_counted), y: own.map((point) => point.hbm_bytes / point.hbm_counted), mode: "markers", type: "scatter", name: escapeText(variant), hoverinfo: "text", meta: "prediction",
      hovertext: own.map((point) => tell(point, "predicted", point.hbm_bytes)), customdata: own.map((point) => point.number), marker: { symbol: own.map((point) => shape(point, false)), size: 9, color: tone(COLOURS[variant]), line: { width: 0.8, color: css("--bg") } } });
  }
  const sizes = counted.map((point) => log(point.hbm_counted)), span = [Math.min(...sizes) - 0.2, Math.max(...sizes) + 0.2];
  const ratios = traces.flatMap((trace) => trace.y), low = Math.min(0.8, ...ratios) / 1.15, high = Math.max(1.25, ...ratios) * 1.15;
  const ticks = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 1, 1.25, 2, 5, 10, 20, 50, 100].filter((tick) => tick >= low && tick <= high);
  const rows = legendRows([...variants, "minimum", "cold launches"], width), bottom = 60 + 22 * rows;
  return draw("accuracy", traces, layout("accuracy", 320 + bottom, { margin: { b: bottom }, showlegend: true, legend: legendBelow(304),
    shapes: [{ type: "rect", xref: "paper", x0: 0, x1: 1, y0: 0.9, y1: 1.1, fillcolor: css("--accent"), opacity: 0.1, line: { width: 0 } }, { type: "line", xref: "paper", x0: 0, x1: 1, y0: 1, y1: 1, line: { color: css("--soft"), width: 1 } }],
    annotations: [{ xref: "paper", x: 1, xanchor: "right", y: log(1.1), yanchor: "bottom", text: "±10 %", showarrow: false, font: { size: 11, color: css("--soft") } }],
    xaxis: { type: "log", range: span, title: { text: "counted HBM bytes", standoff: 8 }, ...logTicks(span, (tick) => si(tick, "B"), width / 90) },
    yaxis: { type: "log", range: [log(low), log(high)], tickvals: ticks, ticktext: ticks.map((tick) => tick + "×"), title: "bytes / counted" } }));
}

function drawTime(points, state) {
  const lines = new Map();
  for (const point of points) {
    if (!point.tokens || (!point.measured_s && !(point.ours && predictedTime(point, state.roof)))) continue;
    const key = [point.series, point.configuration, point.family, point.phase, point.run].join("|");
    if (!lines.has(key)) lines.set(key, []);
    lines.get(key).push(point);
  }
  let chosen = [...lines.values()], words = "";
  const long = chosen.filter((line) => new Set(line.map((point) => point.tokens)).size > 1);
  if (long.length) { words = long.length < chosen.length ? "Only what was run at several n; filter to see less." : ""; chosen = long; }
  if (chosen.length && !long.length) return drawTimeRows(points, state);
  chosen.sort((a, b) => b.length - a.length);
  if (chosen.length > 30) { words = `The 30 longest of ${chosen.length} series; filter to see others.`; chosen = chosen.slice(0, 30); }
  document.getElementById("time-note").textContent = words;
  if (!chosen.length) return empty("time", "No point here has a time and one length.");
  const width = widthOf("time"), traces = [], items = [], obstacles = [], named = new Set();
  for (const line of chosen) {
    line.sort((a, b) => a.tokens - b.tokens);
    const first = line[0], name = `${first.configuration}${first.ours ? "" : " " + first.implementation}${first.phase === "decode" ? " (decode)" : ""}`, colour = tone(COLOURS[first.variant]);
    for (const kind of ["predicted", "measured"]) {
      const time = (point) => (kind === "measured" ? point.measured_s : point.ours ? predictedTime(point, state.roof) : null);
      const own = line.filter(time);
      if (!own.length) continue;
      own.forEach((point, index) => { // the bound is named where a line starts and where it changes
        const at = { x: point.tokens, y: time(point), point };
        obstacles.push(at);
        if (kind === "predicted" && point.bound && (!index || own[index - 1].bound !== point.bound)) items.push({ ...at, text: BOUNDS[point.bound] || point.bound });
      });
      traces.push({ x: own.map((point) => point.tokens), y: own.map(time), mode: "lines+markers", type: "scatter", name: escapeText(name), legendgroup: name, showlegend: !named.has(name), hoverinfo: "text", meta: kind,
        hovertext: own.map((point) => `<b>${point.number} ${escapeText(name)}</b><br>${escapeText(point.problem)}<br>${kind} ${si(time(point), "s")}${point.bound && point.ours ? `, limited by ${escapeText(BOUNDS[point.bound] || point.bound)}` : ""}`),
        line: { color: colour, width: 1.4, dash: kind === "predicted" ? "dash" : "solid" }, marker: { symbol: own.map((point) => shape(point, kind === "predicted")), size: 8, color: colour, line: { width: 1.2, color: kind === "predicted" ? colour : css("--bg") } } });
      named.add(name);
    }
  }
  const xs = obstacles.map((at) => at.x), ys = obstacles.map((at) => at.y), xRange = [log(Math.min(...xs)) - 0.15, log(Math.max(...xs)) + 0.15], yRange = [log(Math.min(...ys)) - 0.25, log(Math.max(...ys)) + 0.25];
  const rows = legendRows([...named], width), bottom = 60 + 22 * rows, area = [width - MARGIN.l - MARGIN.r, 360];
  const toPixel = (at) => [((log(at.x) - xRange[0]) / (xRange[1] - xRange[0])) * area[0], (1 - (log(at.y) - yRange[0]) / (yRange[1] - yRange[0])) * area[1]];
  const ticks = [...new Set(xs)].sort((a, b) => a - b), kept = ticks.length > 8 ? ticks.filter((_, at) => at % Math.ceil(ticks.length / 8) === 0) : ticks;
  return draw("time", traces, layout("time", 376 + bottom, { margin: { b: bottom }, showlegend: true, legend: legendBelow(360), annotations: items.length <= 60 ? place(items, toPixel, obstacles.map((at) => around(toPixel(at), 6))) : [],
    xaxis: { type: "log", range: xRange, title: { text: "n, tokens (1k is 1024)", standoff: 8 }, tickvals: kept, ticktext: kept.map((tick) => (tick % 1024 ? tick : tick / 1024 + "k")) },
    yaxis: { type: "log", range: yRange, title: "time of one call", ...logTicks(yRange, (tick) => si(tick, "s")) } }));
}

// Where nothing was run at several n: one row a configuration.
function drawTimeRows(points, state) {
  const timed = points.filter((point) => point.measured_s || (point.ours && predictedTime(point, state.roof))), shown = timed.slice(0, ROWS);
  document.getElementById("time-note").textContent = `Each n was run once, so by configuration${shown.length < timed.length ? `: the first ${shown.length} of ${timed.length}` : ""}.`;
  const width = widthOf("time"), names = shown.map((point) => rowName(point, width) + (point.ours ? "" : width < 560 ? "*" : ` ${escapeText(point.implementation)}`)), traces = [];
  for (const kind of ["predicted", "measured"]) {
    const time = (point) => (kind === "measured" ? point.measured_s : point.ours ? predictedTime(point, state.roof) : null), kept = shown.map((point, row) => ({ point, row })).filter(({ point }) => time(point));
    const texts = kept.map(({ point }) => (kind === "measured" ? si(time(point), "s") : BOUNDS[point.bound] || ""));
    traces.push({ x: kept.map(({ point }) => time(point)), y: kept.map(({ row }) => names[row]), type: "scatter", mode: "markers+text", text: texts, textposition: kind === "measured" ? "middle right" : "middle left", textfont: { size: 10, color: css("--soft") }, cliponaxis: false, showlegend: false, meta: kind,
      hoverinfo: "text", hovertext: kept.map(({ point }) => `<b>${point.number} ${escapeText(point.configuration)}</b> ${escapeText(point.implementation)}<br>${escapeText(point.problem)}<br>${kind} ${si(time(point), "s")}${point.ours && point.bound ? `, limited by ${escapeText(BOUNDS[point.bound] || point.bound)}` : ""}`),
      marker: { size: 9, symbol: kept.map(({ point }) => shape(point, kind === "predicted")), color: kept.map(({ point }) => tone(COLOURS[point.variant])) } });
  }
  const times = traces.flatMap((trace) => trace.x), range = [log(Math.min(...times)) - 0.45, log(Math.max(...times)) + 0.45];
  return draw("time", traces, layout("time", 24 * shown.length + 84, { margin: { l: rowMargin(names), t: 8, b: 52 }, xaxis: { type: "log", range, title: { text: "time of one call", standoff: 8 }, ...logTicks(range, (tick) => si(tick, "s"), width / 90) }, yaxis: { autorange: "reversed", type: "category", categoryorder: "array", categoryarray: names } }));
}

function drawKv(points) {
  const all = ours(points).filter((point) => point.kv_cache_bytes), shown = all.slice(0, ROWS);
  noteOf("kv-note", shown.length, all.length);
  if (!shown.length) return empty("kv", "No configuration here has a KV cache.");
  const width = widthOf("kv"), names = shown.map((point) => rowName(point, width)), phone = width < 560;
  const more = shown.map((point, row) => ({ point, name: names[row] })).filter(({ point }) => point.kv_cache_bytes_allocated > point.kv_cache_bytes);
  const sizes = shown.flatMap((point) => [point.kv_cache_bytes, point.kv_cache_bytes_allocated || point.kv_cache_bytes]);
  const range = [log(Math.min(...sizes)) - 0.2, log(Math.max(...sizes)) + (phone ? 0.9 : 0.45)], ticks = [];
  for (let power = 0; power < 50; power += 1) if (log(2 ** power) >= range[0] && log(2 ** power) <= range[1]) ticks.push(2 ** power);
  const every = Math.ceil(ticks.length / (phone ? 4 : 9)), kept = ticks.filter((_, at) => at % every === 0);
  const tell = (point) => `<b>${point.number} ${escapeText(point.configuration)}</b><br>${escapeText(point.problem)}<br>${iec(point.kv_cache_bytes)} in use, ${iec(point.kv_cache_bytes_allocated)} allocated`;
  const traces = [{ x: shown.map((point) => point.kv_cache_bytes), y: names, type: "scatter", mode: "markers+text", text: shown.map((point) => iec(point.kv_cache_bytes_allocated > point.kv_cache_bytes ? null : point.kv_cache_bytes)), textposition: "middle right", cliponaxis: false,
    hoverinfo: "text", hovertext: shown.map(tell), showlegend: false, marker: { size: 10, symbol: shown.map((point) => shape(point, false)), color: shown.map((point) => tone(COLOURS[point.variant])) } }];
  if (more.length) traces.push({ x: more.map(({ point }) => point.kv_cache_bytes_allocated), y: more.map(({ name }) => name), type: "scatter", mode: "markers+text", text: more.map(({ point }) => `${iec(point.kv_cache_bytes)} of ${iec(point.kv_cache_bytes_allocated)}`), textposition: "middle right",
    hoverinfo: "text", hovertext: more.map(({ point }) => tell(point)), showlegend: false, marker: { size: 10, symbol: more.map(({ point }) => shape(point, true)), color: more.map(({ point }) => tone(COLOURS[point.variant])) } });
  return draw("kv", traces, layout("kv", 24 * shown.length + 84, { margin: { l: rowMargin(names), t: 8, b: 52 }, xaxis: { type: "log", range, tickvals: kept, ticktext: kept.map(iec), title: { text: "KV cache in use", standoff: 8 } }, yaxis: { autorange: "reversed", type: "category", categoryorder: "array", categoryarray: names } }));
}
