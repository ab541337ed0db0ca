// The table of all figures: sorted, filtered and paged, copied and saved as it is shown. Every cell is text, never markup.
const PAGE = 50;
const WIDE = new Set(["problem", "reason"]);
const rate = (point) => perSecond(point.flops, point.measured_s);
const COLUMNS = [ // name in CSV, heading, value, text, in the short table
  ["number", "#", (p) => p.number, String, true], ["run", "run", (p) => VIEW.sources[p.run], String, VIEW.sources.length > 1],
  ["configuration", "configuration", (p) => p.configuration, String, true], ["implementation", "implementation", (p) => p.implementation, String, true],
  ["phase", "phase", (p) => p.phase, String, true], ["problem", "problem", (p) => p.problem, String, true], ["status", "status", (p) => p.status, String, true],
  ["time_s", "time", (p) => p.measured_s, (v) => si(v, "s"), true], ["p10_s", "p10", (p) => p.p10_s, (v) => si(v, "s")], ["p90_s", "p90", (p) => p.p90_s, (v) => si(v, "s")],
  ["predicted_s", "predicted time", (p) => (p.ours ? predictedTime(p, STATE.roof) : null), (v) => si(v, "s"), true], ["flop_per_s", "FLOP/s", rate, (v) => si(v, ""), true],
  ["hbm_bytes_per_s", "HBM B/s", (p) => perSecond(p.hbm_used, p.measured_s), (v) => si(v, "B/s"), true],
  ["hbm_bytes_used", "bytes used", (p) => p.hbm_used, (v) => si(v, "B")], ["hbm_bytes_source", "bytes are", (p) => p.hbm_source, String],
  ["roof_share", "of the roof", (p) => p["roof_share_" + STATE.roof], percent, true], ["bound", "bound", (p) => (p.ours ? p.bound : null), (v) => BOUNDS[v] || v, true],
  ["hbm_bytes_predicted", "HBM predicted", (p) => (p.ours ? p.hbm_bytes : null), (v) => si(v, "B"), true], ["hbm_bytes_counted", "HBM counted", (p) => p.hbm_counted, (v) => si(v, "B"), true],
  ["prediction_error", "error", (p) => p.prediction_error, signed, true], ["hbm_bytes_min", "HBM minimum", (p) => p.hbm_bytes_min, (v) => si(v, "B")],
  ["hbm_bytes_cold", "HBM cold", (p) => (p.ours ? p.hbm_bytes_cold : null), (v) => si(v, "B")], ["sm_bytes", "SM predicted", (p) => (p.ours ? p.sm_bytes : null), (v) => si(v, "B")],
  ["sm_bytes_counted", "SM counted", (p) => p.sm_counted, (v) => si(v, "B")], ["l2_bytes_counted", "L2 counted", (p) => p.l2_counted, (v) => si(v, "B")],
  ["flops", "FLOPs", (p) => p.flops, (v) => si(v, "")], ["flops_executed", "executed FLOPs", (p) => (p.ours ? p.flops_executed : null), (v) => si(v, "")], ["tensor_flops_counted", "FLOPs counted", (p) => p.tensor_flops_counted, (v) => si(v, "")],
  ["sms_used", "SMs used", (p) => p.sms_used, String], ["kv_cache_bytes", "KV cache", (p) => p.kv_cache_bytes, iec], ["kv_cache_bytes_allocated", "KV allocated", (p) => p.kv_cache_bytes_allocated, iec],
  ["workspace_bytes", "scratch", (p) => p.workspace_bytes, iec], ["clock_hz", "SM clock", (p) => p.clock_hz, (v) => si(v, "Hz")], ["power_w", "power", (p) => p.power_w, (v) => si(v, "W")],
  ["throttled", "throttled by", (p) => p.throttled || null, String], ["discarded", "discarded", (p) => (p.measured_s ? p.discarded : null), String], ["samples", "samples", (p) => p.samples || null, String],
  ["l2_state", "L2", (p) => p.l2_state, String], ["method", "timed by", (p) => p.method, String], ["error", "result error", (p) => p.error, (v) => v.toExponential(1)], ["tolerance", "allowed", (p) => p.tolerance, (v) => v.toExponential(1)],
  ["dtype", "dtype", (p) => p.dtype, String], ["reason", "reason", (p) => p.reason, String],
].map(([key, heading, value, text, short]) => ({ key, heading, value, text, short: Boolean(short) }));

function sorted(points) {
  const column = COLUMNS.find((each) => each.key === STATE.sort);
  if (!column) return points;
  const keyed = points.map((point) => [column.value(point) ?? null, point]);
  keyed.sort(([a], [b]) => {
    if (a === null || b === null) return (a === null) - (b === null); // unknown last, either way
    return (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true })) * (STATE.down ? -1 : 1);
  });
  return keyed.map(([, point]) => point);
}
function columnsShown(points) {
  const full = document.getElementById("all-columns").checked;
  return COLUMNS.filter((column) => (full || column.short) && (column.key === "number" || points.some((point) => { const value = column.value(point); return value !== null && value !== undefined; })));
}
function make(tag, text, attributes) {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = text;
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  return element;
}
function drawTable(points) {
  const table = document.getElementById("table"), columns = columnsShown(points), pages = Math.max(1, Math.ceil(points.length / PAGE));
  STATE.page = Math.min(STATE.page, pages - 1);
  const focused = document.activeElement && document.activeElement.dataset.key, head = make("tr");
  for (const column of columns) {
    const cell = make("th", null, { scope: "col", "aria-sort": STATE.sort === column.key ? (STATE.down ? "descending" : "ascending") : "none" });
    const button = make("button", column.heading + (STATE.sort === column.key ? (STATE.down ? " ▼" : " ▲") : ""), { type: "button", "data-key": column.key });
    button.onclick = () => { STATE.down = STATE.sort === column.key ? !STATE.down : false; STATE.sort = column.key; STATE.page = 0; refresh(); };
    cell.append(button);
    head.append(cell);
  }
  table.tHead.replaceChildren(head);
  table.tBodies[0].replaceChildren(...points.slice(STATE.page * PAGE, (STATE.page + 1) * PAGE).map((point) => {
    const row = make("tr");
    for (const column of columns) {
      const value = column.value(point), cell = make("td", null, typeof value === "number" && column.key !== "number" ? { class: "n" } : {});
      if (column.key === "number") {
        const button = make("button", String(point.number), { type: "button", "aria-label": `Show point ${point.number} in the chart` });
        button.onclick = () => choose(point.number, true);
        cell.className = "pick";
        cell.append(button);
      } else if (value !== null && value !== undefined) cell.textContent = column.text(value);
      if (WIDE.has(column.key)) cell.classList.add("wide");
      if (column.key === "status" && !["ok", "predicted"].includes(value)) cell.classList.add("bad");
      row.append(cell);
    }
    return row;
  }));
  if (focused) table.querySelector(`button[data-key="${focused}"]`)?.focus();
  document.getElementById("page").textContent = points.length ? `${STATE.page * PAGE + 1} to ${Math.min((STATE.page + 1) * PAGE, points.length)} of ${points.length}` : "no points";
  document.getElementById("previous").disabled = STATE.page === 0;
  document.getElementById("next").disabled = STATE.page >= pages - 1;
}
// All points of the filter in the order shown, with the columns shown, in SI base units. A text that a spreadsheet would run is quoted.
function tabulated(separator) {
  const points = sorted(picked()), columns = columnsShown(points);
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    let text = String(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = "'" + text;
    return separator === "\t" ? text.replace(/[\t\r\n]+/g, " ") : /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  return [columns.map((column) => column.key), ...points.map((point) => columns.map((column) => column.value(point)))].map((row) => row.map(cell).join(separator)).join("\n") + "\n";
}
async function copyTable() {
  const text = tabulated("\t"), told = document.getElementById("copied");
  let done = false;
  try { await navigator.clipboard.writeText(text); done = true; } catch {
    const area = make("textarea"); // pages without the clipboard's permission
    area.value = text;
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
  }
  told.textContent = done ? `copied ${text.split("\n").length - 2} rows` : "the browser refused; use Download CSV";
}
function saveCsv() {
  const link = make("a", null, { href: URL.createObjectURL(new Blob([tabulated(",")], { type: "text/csv" })), download: "roofline.csv" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
