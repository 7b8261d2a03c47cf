/* page.js - reads the data in #data and builds the page: notices, figures, curves, tables.
 *
 *   data = { runs: [{ name, folder, config, log, files, notes }] }
 *   log  = { lines, validations, rows, values: { key: [...] }, at: { key: [row, ...] },
 *            best, last, ops }
 *
 * log.at names the rows of keys that are not on every line; null is a value that was no number. */

const runs = JSON.parse(document.getElementById("data").textContent).runs;
const byId = (id) => document.getElementById(id);
const single = runs.length === 1;
/* Values from files may have any type, so it is checked before use. */
/* A copy of an object from a file, in which keys such as "constructor" are not special; empty if it
 * is none. */
const bare = (o) => Object.assign(Object.create(null), typeof o === "object" && !Array.isArray(o) ? o : {});
const positive = (v) => (typeof v === "number" && v > 0 ? v : 0);

/* ---- the keys of a log: name, unit, short name ---- */

const NAMES = bare({
  step: ["updates", ""], epoch: ["epochs", ""], seconds: ["training time", "s"], tokens: ["tokens", ""], images: ["images", ""],
  loss: ["loss", "nats"], test_loss: ["validation loss", "nats"], valid_loss: ["validation loss", "nats"],
  train_loss: ["mean loss of the epoch", "nats", "epoch loss"], bpc: ["bits per character", "", "bpc"], valid_bpc: ["validation bits per character", "", "validation bpc"],
  bits: ["bits per masked token", "", "bits"], valid_bits: ["validation bits per masked token", "", "validation bits"],
  top1: ["validation top-1 accuracy", "%", "top-1"], top5: ["validation top-5 accuracy", "%", "top-5"],
  lr: ["learning rate", ""], grad_norm: ["gradient norm", ""], memory: ["peak device memory", "MB"],
  process: ["peak process memory", "MB"], waited: ["time spent waiting for data", "fraction"], skipped: ["examples skipped", ""],
  exchange_exposed: ["exchange of gradients, exposed", "s an update", "exposed"], exchange_hidden: ["exchange of gradients, hidden", "s an update", "hidden"],
});
const UNITS = runs.map((r) => r.config.unit).filter((u) => typeof u === "string");
const AXES = [...new Set(["step", "epoch", "tokens", "images", ...UNITS, "seconds"])];
const BYTES = new Set(["memory", "process"]);

/* key: a string, or null for the score of runs without validations. */
function nameOf(key) {
  if (typeof key !== "string") return "validation";
  if (NAMES[key]) return NAMES[key][0];
  return key.endsWith("_per_s") ? "speed" : key;
}

function shortOf(key) {
  return (NAMES[key] && NAMES[key][2]) || nameOf(key);
}

function unitOf(key) {
  if (typeof key !== "string") return "";
  if (NAMES[key]) return NAMES[key][1];
  return key.endsWith("_per_s") ? `${key.slice(0, -"_per_s".length)}/s` : "";
}

function labelOf(key, name = nameOf(key)) {
  return unitOf(key) && unitOf(key) !== name ? `${name} (${unitOf(key)})` : name;
}

function megabytes(bytes) {
  return `${bytes < 1e7 ? (bytes / 1e6).toFixed(1) : grouped(Math.round(bytes / 1e6))} MB`;
}

function duration(seconds) {
  if (typeof seconds !== "number") return "\u2013";
  const s = Math.round(seconds), two = (n) => String(n).padStart(2, "0");
  if (s < 60) return `${Number(seconds.toPrecision(3))} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${two(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${two(Math.floor((s % 3600) / 60))} min`;
}

/* ---- the runs: columns as long as the log's rows; undefined: the key is not on that line ---- */

runs.forEach((run, i) => {
  const log = run.log;
  log.at = bare(log.at);
  for (const name of ["last", "best"]) if (log[name]) log[name] = bare(log[name]);
  run.columns = bare({});
  for (const [key, values] of Object.entries(log.values)) {
    const factor = BYTES.has(key) ? 1e-6 : 1, scaled = values.map((v) => (v === null ? null : v * factor));
    if (!log.at[key]) run.columns[key] = scaled;
    else {
      run.columns[key] = new Array(log.rows).fill(undefined);
      log.at[key].forEach((row, k) => { run.columns[key][row] = scaled[k]; });
    }
  }
  run.color = `var(--c${i % 8})`;
  run.dash = ["none", "7 4", "2 4", "10 3 2 3"][Math.floor(i / 8) % 4];
  run.shown = true;
  run.settings = Object.assign(bare(run.config.settings), bare(run.config.derived)); /* those it ran with */
});

/* Is the key only on lines with a validation? */
function ofValidation(run, key) {
  const score = run.columns[run.log.score];
  return score && run.log.at[key] && run.log.at[key].every((row) => score[row] !== undefined);
}

const has = (key) => runs.some((r) => r.columns[key]);

function points(run, key, axis) {
  const xs = run.columns[axis], ys = run.columns[key], list = [];
  if (!xs || !ys) return list;
  for (let i = 0; i < ys.length; i++) if (ys[i] !== undefined && xs[i] != null) list.push({ x: xs[i], y: ys[i] });
  return list;
}

/* Quantities to draw: training values with validation values where both are logged. */
function quantities() {
  const keys = [...new Set(runs.flatMap((r) => Object.keys(r.columns)))].filter((k) => !AXES.includes(k));
  const scores = new Set(runs.map((r) => r.log.score)), taken = new Set(), list = [];
  for (const key of keys) {
    const validation = [`valid_${key}`, `test_${key}`].find(has);
    if (validation) {
      taken.add(validation);
      list.push({ training: key, validation });
    }
  }
  for (const key of keys)
    if (!taken.has(key) && !list.some((q) => q.training === key)) {
      const sparse = runs.every((r) => !r.columns[key] || ofValidation(r, key)) || scores.has(key) || key.startsWith("top");
      list.push(sparse ? { validation: key } : { training: key });
    }
  const rank = (q) => (scores.has(q.validation) ? 0 : q.training === "loss" ? 1 : q.validation !== undefined ? 2 : 3);
  return list.sort((a, b) => rank(a) - rank(b));
}

/* ---- learning curves ---- */

function option(text, value) {
  return element("option", { value }, text);
}

const keyOf = (q) => q.training ?? q.validation; /* may be "" */

function startCurves() {
  const choices = quantities(), axes = AXES.filter(has);
  if (choices.length === 0 || axes.length === 0) {
    byId("curves").replaceChildren(element("h2", {}, "Learning curves"), element("p", {}, "There are no reports yet."));
    return;
  }
  choices.forEach((q, i) => byId("quantity").append(option(nameOf(keyOf(q)), i)));
  axes.forEach((a) => byId("axis").append(option(nameOf(a), a)));
  const now = () => ({ q: choices[byId("quantity").value], axis: byId("axis").value });
  const curvesOf = (run, { q, axis }) => ["training", "validation"].filter((kind) => q[kind] !== undefined).map((kind) => (
    { kind, run, name: run.name, color: run.color, dash: run.dash, points: points(run, q[kind], axis) }));

  const readout = (x) => {
    const { q, axis } = now(), at = axis === "seconds" ? duration : number;
    const value = (s) => { /* the point nearest to x, unless the curve has ended */
      const known = s.points.filter((p) => p.y !== null);
      if (known.length === 0 || x > known[known.length - 1].x + (known[known.length - 1].x - known[0].x) * 0.1) return { text: "\u2013" };
      const point = known.reduce((best, p) => (Math.abs(p.x - x) < Math.abs(best.x - x) ? p : best));
      return { point, text: number(point.y), at: point.x === x ? null : at(point.x) };
    };
    const rows = runs.filter((r) => r.shown).map((run) => (
      { name: run.name, color: run.color, values: curvesOf(run, { q, axis }).map(value) }));
    return { title: `${at(x)} ${axis === "seconds" ? "of training" : nameOf(axis)}`, head: ["training", "validation"].filter((kind) => q[kind] !== undefined), rows };
  };
  const chart = new Chart(byId("chart"), readout, (text) => { byId("live").textContent = text; },
    (on) => { byId("whole").disabled = !on; });

  const update = () => {
    const { q, axis } = now();
    const name = labelOf(keyOf(q));
    byId("chart").querySelector("svg").setAttribute("aria-label", `${name} by ${labelOf(axis)}`);
    byId("legend").querySelectorAll(".kind").forEach((k) => { k.hidden = q.training === undefined || q.validation === undefined; });
    byId("smoothing").disabled = q.training === undefined;
    chart.show({ xLabel: labelOf(axis), yLabel: name, log: byId("log").checked, smoothing: Number(byId("smoothing").value),
      series: runs.filter((r) => r.shown).flatMap((r) => curvesOf(r, { q, axis })).filter((s) => s.points.length > 0) });
  };
  startLegend(update);
  for (const id of ["quantity", "axis", "log"]) byId(id).addEventListener("change", update);
  byId("smoothing").addEventListener("input", update);
  byId("whole").addEventListener("click", () => chart.magnify(null));
  update();
}

function sample(stroke, width, dash, dot) {
  const svg = shape("svg", { width: 26, height: 10, "aria-hidden": "true" });
  svg.append(shape("line", { x1: 1, x2: 25, y1: 5, y2: 5, stroke, "stroke-width": width, "stroke-dasharray": dash }));
  if (dot) svg.append(shape("circle", { cx: 13, cy: 5, r: 3.4, fill: stroke }));
  return svg;
}

function startLegend(update) {
  for (const run of runs) {
    const button = element("button", { type: "button", "aria-pressed": "true" }, sample(run.color, 3, run.dash), run.name);
    button.addEventListener("click", () => {
      run.shown = !run.shown;
      button.setAttribute("aria-pressed", String(run.shown));
      update();
    });
    byId("legend").append(button);
  }
  byId("legend").append(
    element("span", { class: "kind" }, sample("currentColor", 1.6, "none"), "training"),
    element("span", { class: "kind" }, sample("currentColor", 2.6, "none", true), "validation"));
}

/* ---- sections ---- */

function section(title, ...children) {
  const shown = children.flat().filter(Boolean);
  if (shown.length) byId("sections").append(element("section", {}, element("h2", {}, title), ...shown));
}

/* One part per run; several fold, and of three or more only the first is open. */
function perRun(title, make) {
  const parts = runs.map((run) => ({ run, parts: [make(run)].flat().filter(Boolean) })).filter((p) => p.parts.length);
  section(title, ...parts.flatMap((p, i) => (single ? p.parts
    : [element("details", { open: runs.length <= 2 || i === 0 }, element("summary", { class: "run" }, colored(p.run.color), p.run.name), ...p.parts)])));
}

/* head: [{ text, number }]; a row is a list of texts or nodes, or { best, cells }. */
function table(label, head, rows, whole) {
  const cell = (c, i) => (i === 0 ? element("th", { scope: "row", class: head[0].number && "number" }, c)
    : element("td", { class: head[i].number && "number" }, c));
  const body = rows.map((r) => element("tr", { class: r.best && "best" }, ...(r.cells || r).map(cell)));
  return element("div", { class: whole ? "scroll whole" : "scroll", tabindex: 0, role: "region", "aria-label": label },
    element("table", {}, head.some((h) => h.text) && element("thead", {}, element("tr", {}, ...head.map((h) => element("th", { scope: "col", class: h.number && "number" }, h.text)))),
      element("tbody", {}, ...body)));
}

const words = (...texts) => texts.map((text) => ({ text }));
const numbers = (...texts) => texts.map((text) => ({ text, number: true }));

function valueText(v) {
  if (v === undefined) return "\u2013";
  if (v === null || v === "") return "not set";
  if (typeof v === "boolean") return v ? "yes" : "no";
  if (typeof v === "number") return String(v);
  return typeof v === "string" ? v : JSON.stringify(v);
}

function scoreText(run, row) {
  const key = run.log.score;
  return row && row[key] !== undefined ? `${number(row[key])}${unitOf(key) === "%" ? " %" : ""}` : "\u2013";
}

const speedKey = (run) => Object.keys(run.log.values).find((k) => k.endsWith("_per_s"));

/* ---- the top of the page ---- */

function startTop() {
  const c = runs[0].config;
  const facts = single ? [c.program, c.model, runs[0].folder] : [`${runs.length} runs`];
  byId("subtitle").textContent = facts.filter((f) => typeof f === "string").join(" \u00b7 ");
  for (const run of runs)
    for (const note of run.notes) byId("notices").append(element("li", {}, single ? note : `${run.name}: ${note}`));
}

function tile(name, value, more) {
  byId("tiles").append(element("div", {}, element("dt", {}, name), element("dd", {}, value, more && element("small", {}, more))));
}

function startTiles() {
  const run = runs[0], { last, best, score } = run.log, c = run.config;
  if (!single || !last) return;
  if (best) tile(`best ${shortOf(score)}`, scoreText(run, best), `after update ${number(best.step)}`);
  const whole = Number.isInteger(c.updates) && c.updates > 0 ? `of ${number(c.updates)}, ${number(Math.floor((100 * last.step) / c.updates))} %` : "";
  tile("updates", number(last.step), whole);
  tile("training time", duration(last.seconds), last.epoch !== undefined ? `${number(last.epoch && Number(last.epoch.toPrecision(3)))} epochs` : "");
  tile("loss", number(last.loss), "at the last report");
  const speed = speedKey(run);
  if (speed && positive(last[speed])) tile("speed", number(Math.round(last[speed])), unitOf(speed));
  if (positive(c.parameters)) tile("parameters", number(c.parameters), typeof c.model === "string" ? c.model : "");
  if (positive(last.memory)) tile("peak memory", megabytes(last.memory), "of the device");
}

function startResults() {
  if (single) return;
  const score = runs[0].log.score, same = runs.every((r) => r.log.score === score);
  const values = runs.map((r) => r.log.best && r.log.best[r.log.score]);
  const known = values.filter((v) => typeof v === "number");
  const top = runs[0].log.higher ? Math.max(...known) : Math.min(...known);
  section("Results", table("Results of the runs", [...words("run"), ...numbers(same ? `best ${shortOf(score)}` : "best validation", "after update", "updates", "loss", "training time", "speed", "parameters", "peak memory")],
    runs.map((r, i) => {
      const l = r.log.last || {}, b = r.log.best, speed = speedKey(r);
      const cells = [element("span", {}, colored(r.color), r.name), scoreText(r, b), b ? number(b.step) : "\u2013", number(l.step), number(l.loss), duration(l.seconds),
        speed && l[speed] ? `${number(Math.round(l[speed]))} ${unitOf(speed)}` : "\u2013", number(r.config.parameters), l.memory ? megabytes(l.memory) : "\u2013"];
      return { best: same && known.length > 1 && values[i] === top, cells };
    }), true));
}

/* ---- settings ---- */

const HOUSEKEEPING = new Set(["run-dir", "resume", "overwrite", "plan", "report"]);

function startSettings() {
  const all = [...new Set(runs.flatMap((r) => Object.keys(r.settings)))];
  const differing = all.filter((k) => !HOUSEKEEPING.has(k) && new Set(runs.map((r) => JSON.stringify(r.settings[k]))).size > 1);
  if (!single)
    section("Differences between the settings", differing.length === 0 ? element("p", {}, "All settings are equal.")
      : table("Settings that differ", words("setting", ...runs.map((r) => r.name)), differing.map((k) => [k, ...runs.map((r) => valueText(r.settings[k]))]), true));
  perRun("Settings", (run) => {
    const preset = run.config.preset_values ? bare(run.config.preset_values) : null, keys = Object.keys(run.settings), parts = [];
    const changed = preset && Object.keys(preset).filter((k) => !HOUSEKEEPING.has(k) && valueText(preset[k]) !== valueText(run.settings[k]));
    const name = typeof run.settings.preset === "string" ? `the preset ${run.settings.preset}` : "the defaults";
    if (changed && changed.length)
      parts.push(table("Settings that differ from the preset", words("setting", "this run", name), changed.map((k) => [k, valueText(run.settings[k]), valueText(preset[k])]), true));
    else if (changed) parts.push(element("p", {}, `Nothing differs from ${name}.`));
    if (keys.length)
      parts.push(element("details", {}, element("summary", {}, `All ${keys.length} settings`),
        table("All settings", words("setting", "value"), keys.map((k) => [k, valueText(run.settings[k])]))));
    return parts;
  });
}

/* ---- the machine ---- */

const MACHINE = [
  ["processor", "processor"], ["cores", "cores"], ["processes", "processes"], ["threads", "threads"], ["kernels", "kernels"], ["device", "device"],
  ["memory", "memory"], ["system", "system"],
];

function startMachine() {
  const facts = (run) => Object.assign(bare(run.config.machine), { tapegrad: run.config.version });
  const rows = [...MACHINE, ["tapegrad", "tapegrad"]].map(([key, name]) => [name, ...runs.map((r) => {
    const v = facts(r)[key];
    return key === "memory" && typeof v === "number" ? `${Number((v / 1e9).toPrecision(3))} GB` : valueText(v);
  })]).filter((row) => row.slice(1).some((v) => v !== "\u2013"));
  if (rows.length) section("Machine", table("Machine", words("", ...(single ? [""] : runs.map((r) => r.name))), rows, true));
}

/* ---- validations ---- */

function startValidations() {
  perRun("Validations", (run) => {
    const score = run.columns[run.log.score];
    if (!score) return null;
    const at = score.map((v, i) => (v === undefined ? -1 : i)).filter((i) => i >= 0);
    const keys = Object.keys(run.columns);
    const own = keys.filter((k) => !AXES.includes(k) && !BYTES.has(k) && (k === run.log.score || k === "loss" || k.startsWith("test_") || k.startsWith("top")
      || (run.log.at[k] && at.every((i) => run.columns[k][i] !== undefined))));
    const shown = [...AXES.filter((k) => keys.includes(k) && k !== "seconds"), ...own];
    const best = run.log.best && run.log.best.step;
    const rows = at.map((i) => ({ best: run.columns.step[i] === best,
      cells: shown.map((k) => (run.columns.step[i] === best && k === run.log.score
        ? element("span", {}, element("span", { class: "mark" }, "best "), number(run.columns[k][i])) : number(run.columns[k][i]))) }));
    const left = run.log.validations - at.length;
    return [table("Validations", numbers(...shown.map((k) => labelOf(k, shortOf(k)))), rows),
      left > 0 && element("p", { class: "faint" }, `${number(left)} further validations between these are in log.jsonl.`)];
  });
}

/* ---- memory ---- */

const PARTS = [
  ["weights", "weights"], ["gradients", "gradients"], ["optimizer", "optimiser"], ["averages", "weight averages"],
  ["state", "carried state"], ["activations", "activations"],
];

const bar = (name, spans) => element("div", {}, element("span", { class: "faint" }, name), element("div", { class: "bar" }, ...spans));

/* A part of a bar of length `most`. */
function pieceOf(most, size, color, title) {
  const span = element("span", { title });
  span.style.cssText = `width:${(100 * size) / most}%;background:${color}`;
  return span;
}

function startMemory() {
  perRun("Memory", (run) => {
    const plan = bare(run.config.memory_plan), last = run.log.last || {}, peak = positive(plan.peak), process = positive(plan.process);
    if (!peak) return null;
    const most = Math.max(peak, positive(last.memory)), piece = (bytes, color, title) => pieceOf(most, bytes, color, title);
    const parts = PARTS.map(([key, name], i) => ({ name, bytes: positive(plan[key]), color: `var(--c${i})` })).filter((p) => p.bytes > 0);
    const bars = element("div", { class: "bars", "aria-hidden": "true" }, bar("planned", parts.map((p) => piece(p.bytes, p.color, `${p.name}: ${megabytes(p.bytes)}`))),
      last.memory && bar("used", [piece(last.memory, "var(--faint)", `used: ${megabytes(last.memory)}`)]));
    const share = (used, planned) => (used && planned ? `${number(Math.round((1000 * used) / planned) / 10)} %` : "");
    const rows = parts.map((p) => [element("span", {}, colored(p.color), p.name), megabytes(p.bytes), "", ""]);
    rows.push(["peak of a step", megabytes(peak), last.memory ? megabytes(last.memory) : "\u2013", share(last.memory, peak)]);
    if (process) rows.push(["whole process", megabytes(process), last.process ? megabytes(last.process) : "\u2013", share(last.process, process)]);
    return [bars, table("Memory", [...words("part"), ...numbers("planned", "used", "share")], rows, true)];
  });
}

/* ---- the exchange of gradients ---- */

function startExchange() {
  perRun("Exchange of gradients", (run) => {
    const last = run.log.last || {}, hidden = positive(last.exchange_hidden), exposed = positive(last.exchange_exposed);
    const update = positive(last.seconds) / positive(last.step);
    if (!(hidden + exposed > 0) || !(update > 0)) return null;
    const parts = [["computing", Math.max(0, update - hidden - exposed)], ["exchange behind backward", hidden], ["exchange exposed", exposed]]
      .map(([name, seconds], i) => ({ name, seconds, color: `var(--c${i})` }));
    const most = parts.reduce((sum, p) => sum + p.seconds, 0), ms = (s) => `${number(Number((1e3 * s).toPrecision(3)))} ms`;
    return [element("div", { class: "bars", "aria-hidden": "true" }, bar("an update", parts.map((p) => pieceOf(most, p.seconds, p.color, `${p.name}: ${ms(p.seconds)}`)))),
      table("Exchange of gradients", [...words("part"), ...numbers("an update", "share")],
        parts.map((p) => [element("span", {}, colored(p.color), p.name), ms(p.seconds), `${number(Number(((100 * p.seconds) / most).toPrecision(3)))} %`]), true)];
  });
}

/* ---- time by op ---- */

function startOps() {
  perRun("Time by op", (run) => {
    const ops = (Array.isArray(run.log.ops) ? run.log.ops : []).filter((o) => Array.isArray(o) && o.length >= 4 && typeof o[2] === "number" && typeof o[3] === "number");
    if (!ops.length) return null;
    const all = ops.reduce((sum, o) => sum + o[3], 0);
    const rows = ops.map(([op, direction, calls, seconds]) => {
      const fill = element("i", {});
      fill.style.width = `${(100 * seconds) / all}%`;
      return [valueText(op), valueText(direction), number(calls), number(Number(seconds.toPrecision(4))), number(Number(((1e6 * seconds) / calls).toPrecision(3))),
        element("span", {}, `${((100 * seconds) / all).toFixed(1)} %`, element("span", { class: "share" }, fill))];
    });
    return [element("p", { class: "faint" }, `Total kernel time since the process started, including validations: ${duration(all)}.`),
      table("Time by op", [...words("op", "direction"), ...numbers("calls", "seconds", "\u00b5s a call", "share")], rows)];
  });
}

/* ---- pictures and samples ---- */

/* A click makes it as wide as the page, or small again. */
function pictureOf(file, run) {
  const button = element("button", { type: "button", "aria-expanded": "false", "aria-label": `Enlarge ${file.name}` },
    element("img", { src: file.picture, alt: `${file.name} of ${run.name}` }));
  const figure = element("figure", {}, button, element("figcaption", {}, file.name));
  button.addEventListener("click", () => button.setAttribute("aria-expanded", String(figure.classList.toggle("wide"))));
  return figure;
}

function startFiles() {
  perRun("Pictures", (run) => {
    const pictures = run.files.filter((f) => f.picture);
    return pictures.length && element("div", { class: "gallery" }, ...pictures.map((f) => pictureOf(f, run)));
  });
  perRun("Samples", (run) => run.files.filter((f) => f.text !== undefined).flatMap((f) => [
    element("p", { class: "faint" }, f.name), element("pre", { tabindex: 0 }, f.text),
    f.cut && element("p", { class: "faint" }, "The file continues.")]));
}

byId("page").hidden = false;
for (const part of [startTop, startTiles, startResults, startCurves, startSettings, startValidations, startFiles, startMemory, startExchange, startOps, startMachine])
  try {
    part();
  } catch (e) { /* the other parts are still worth reading */
    console.error(e);
    byId("notices").append(element("li", {}, `A part of this page cannot be shown: ${e.message}`));
  }
