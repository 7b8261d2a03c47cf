/* chart.js - learning curves as SVG: axes, one curve per run and kind, a crosshair, a magnifier. It
 * knows nothing of runs: page.js gives it series and callbacks.
 *
 *   plot = { xLabel, yLabel, log, smoothing,
 *            series: [{ name, kind, color, dash, points: [{ x, y }] }] }
 *
 * kind is "training" or "validation"; y is null where the log has no number, which breaks the
 * curve. */

/* ---- elements: text enters a page only as text ---- */

function element(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {}))
    if (value === true) e.setAttribute(name, "");
    else if (value !== false && value != null) e.setAttribute(name, value);
  e.append(...children.filter((c) => c != null && c !== false));
  return e;
}

/* A small colored square. */
function colored(color) {
  const swatch = element("span", { class: "swatch" });
  swatch.style.background = color;
  return swatch;
}

const svgNames = document.querySelector("#chart > svg").namespaceURI;

function shape(tag, attributes, text) {
  const e = document.createElementNS(svgNames, tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  if (text !== undefined) e.textContent = text;
  return e;
}

/* ---- numbers ---- */

function exponential(x, digits) {
  return x.toExponential(digits).replace(/\.?0+e/, "e");
}

function grouped(x) {
  return Math.abs(x) < 1e15 ? x.toLocaleString("en-US", { maximumFractionDigits: 0 }) : exponential(x, 4);
}

/* Six significant digits, enough to compare two runs. */
function number(x) {
  if (typeof x !== "number") return "\u2013";
  if (Number.isInteger(x)) return grouped(x);
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return exponential(x, 4);
  return String(Number(x.toPrecision(6)));
}

/* For ticks: 1500000 is 1.5M. */
function short(x) {
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-3 || size >= 1e13)) return exponential(x, size < 1 ? 6 : 2);
  for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]])
    if (size >= unit) {
      const by = letter === "k" ? 1e3 : unit;
      return String(Number((x / by).toPrecision(6))) + letter;
    }
  return String(Number(x.toPrecision(6)));
}

/* ---- scales ---- */

/* Beyond this, or below its inverse on a logarithmic scale, the ends of an axis would not be
 * finite. */
const LARGEST = 1e150;

/* About `count` round values from lo to hi. */
function roundTicks(lo, hi, count) {
  const raw = (hi - lo) / Math.max(count, 1), ten = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((k) => k * ten).find((s) => s >= raw * 0.999) || 10 * ten;
  const first = Math.ceil(lo / step - 1e-9), ticks = [];
  for (let i = 0; i <= 2 * count + 2 && (first + i) * step <= hi + step * 1e-9; i++) ticks.push((first + i) * step);
  return ticks;
}

function logTicks(lo, hi, count) {
  const all = [], tens = [];
  for (let e = Math.floor(Math.log10(lo)); e <= Math.ceil(Math.log10(hi)); e++)
    for (const k of [1, 2, 5]) {
      const t = k * 10 ** e;
      if (t < lo * 0.999 || t > hi * 1.001) continue;
      all.push(t);
      if (k === 1) tens.push(t);
    }
  if (all.length < 3) return roundTicks(lo, hi, count).filter((t) => t > 0);
  if (all.length <= count * 1.5) return all;
  return tens.filter((_, i) => i % Math.ceil(tens.length / count) === 0);
}

function scale(lo, hi, from, to, log) {
  const f = log ? Math.log10 : (v) => v, a = f(lo), b = f(hi);
  const at = (v) => from + ((f(v) - a) / (b - a)) * (to - from);
  at.inverse = (p) => {
    const v = a + ((p - from) / (to - from)) * (b - a);
    return log ? 10 ** v : v;
  };
  return at;
}

/* The range of values with a margin; a single value gets a range around it. */
function padded(lo, hi, log) {
  if (log) {
    const factor = hi / lo < 1 + 1e-9 ? 1.5 : (hi / lo) ** 0.04;
    return [lo / factor, hi * factor];
  }
  const margin = lo === hi ? Math.abs(lo) * 0.1 || 1 : (hi - lo) * 0.04;
  return [lo - margin, hi + margin];
}

/* The moving average over updates, bias-corrected. */
function smoothed(points, weight) {
  let sum = 0, weights = 0;
  return points.map((p) => {
    if (p.y === null) return p;
    sum = weight * sum + (1 - weight) * p.y;
    weights = weight * weights + (1 - weight);
    return { ...p, y: sum / weights };
  });
}

/* ---- the chart ---- */

class Chart {
  /* readout(x): { title, head, rows: [{ name, color, values: [{ point, text, at }] }] }, a value
   * per kind; announce(text): to a screen reader; magnified(on): the shown range changed. */
  constructor(box, readout, announce, magnified) {
    Object.assign(this, { box, readout, announce, magnified });
    this.svg = box.querySelector("svg");
    this.note = box.querySelector("#readout");
    this.span = null; /* the magnified part of the x axis */
    this.at = null; /* index of the crosshair in this.stops */
    new ResizeObserver(() => this.draw()).observe(box);
    this.svg.addEventListener("pointermove", (e) => this.follow(e));
    this.svg.addEventListener("pointerleave", () => this.drag === undefined && this.place(null));
    this.svg.addEventListener("pointerdown", (e) => this.press(e));
    this.svg.addEventListener("pointerup", (e) => this.release(e));
    this.svg.addEventListener("pointercancel", () => this.release(null));
    this.svg.addEventListener("dblclick", () => this.magnify(null));
    this.svg.addEventListener("keydown", (e) => this.key(e));
    this.svg.addEventListener("blur", () => this.place(null));
  }

  show(plot) {
    if (!this.plot || plot.xLabel !== this.plot.xLabel) this.magnify(null);
    this.plot = plot;
    this.draw();
  }

  /* Sets the shown part of the axis: [from, to], or null for all. */
  magnify(span) {
    this.span = span;
    this.at = null;
    this.magnified(span !== null);
    this.draw();
  }

  drawable(p) {
    return p.y !== null && Math.max(Math.abs(p.x), Math.abs(p.y)) < LARGEST && (!this.plot.log || p.y > 1 / LARGEST);
  }

  visible(p) {
    return this.drawable(p) && (!this.span || (p.x >= this.span[0] && p.x <= this.span[1]));
  }

  measure() {
    const drawn = this.plot.series.flatMap((s) => s.points.filter((p) => this.visible(p)));
    const least = (f) => drawn.reduce((m, p) => Math.min(m, f(p)), Infinity);
    const most = (f) => drawn.reduce((m, p) => Math.max(m, f(p)), -Infinity);
    this.stops = [...new Set(drawn.map((p) => p.x))].sort((a, b) => a - b);
    if (drawn.length === 0) return false;
    const [x0, x1] = this.span || [least((p) => p.x), most((p) => p.x)];
    this.xRange = x0 < x1 ? [x0, x1] : padded(x0, x1, false);
    this.yRange = padded(least((p) => p.y), most((p) => p.y), this.plot.log);
    return true;
  }

  draw() {
    const width = this.box.clientWidth;
    if (!this.plot || !width) return;
    const height = Math.round(Math.min(Math.max(width * 0.5, 270), 440));
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("height", height);
    this.svg.replaceChildren();
    if (!this.measure()) {
      this.svg.append(shape("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "nothing to show"));
      return;
    }
    this.axes(width, height);
    const clip = shape("clipPath", { id: "area" }), { left, right, top, bottom } = this.area;
    clip.append(shape("rect", { x: left - 5, y: top - 5, width: right - left + 10, height: bottom - top + 10 }));
    this.lines = shape("g", { "clip-path": "url(#area)" });
    this.svg.append(clip, this.lines);
    this.curves();
    this.hair = shape("g", {});
    this.svg.append(this.hair);
    this.place(this.at);
  }

  axes(width, height) {
    const plot = this.plot, tickRoom = 12 + 7.2 * 6;
    const top = 28, bottom = height - 44, yCount = (bottom - top) / 48;
    const yTicks = plot.log ? logTicks(...this.yRange, yCount) : roundTicks(...this.yRange, yCount);
    const left = Math.min(Math.max(...yTicks.map((t) => short(t).length), 3) * 7.2 + 12, tickRoom + 20), right = width - 14;
    this.x = scale(...this.xRange, left, right, false);
    this.y = scale(...this.yRange, bottom, top, plot.log);
    this.area = { left, right, top, bottom };
    for (const t of yTicks) {
      const y = this.y(t);
      this.svg.append(shape("line", { class: "grid", x1: left, x2: right, y1: y, y2: y }),
        shape("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, short(t)));
    }
    for (const t of roundTicks(...this.xRange, (right - left) / 90)) {
      const x = this.x(t);
      this.svg.append(shape("line", { class: "grid", x1: x, x2: x, y1: top, y2: bottom }),
        shape("text", { x, y: bottom + 18, "text-anchor": x > right - 16 ? "end" : "middle" }, short(t)));
    }
    this.svg.append(shape("path", { class: "frame", fill: "none", d: `M${left} ${top}V${bottom}H${right}` }),
      shape("text", { class: "label", x: 2, y: 14 }, plot.yLabel),
      shape("text", { class: "label", x: right, y: height - 6, "text-anchor": "end" }, plot.xLabel));
  }

  path(points) {
    let d = "", pen = false;
    for (const p of points) {
      const drawn = this.drawable(p);
      if (drawn) d += `${pen ? "L" : "M"}${this.x(p.x).toFixed(1)} ${this.y(p.y).toFixed(1)}`;
      pen = drawn;
    }
    return d;
  }

  curves() {
    const plot = this.plot;
    for (const s of plot.series) {
      const smooth = s.kind === "training" && plot.smoothing > 0;
      const points = smooth ? smoothed(s.points, plot.smoothing) : s.points;
      const style = { stroke: s.color, "stroke-dasharray": s.dash };
      if (smooth) this.lines.append(shape("path", { class: "raw", d: this.path(s.points), ...style }));
      this.lines.append(shape("path", { class: `curve ${s.kind}`, "data-run": s.name, d: this.path(points), ...style }));
      const drawn = points.filter((p) => this.visible(p));
      if (s.kind === "validation" ? drawn.length <= 60 : drawn.length === 1)
        for (const p of drawn)
          this.lines.append(shape("circle", { cx: this.x(p.x), cy: this.y(p.y), r: 3.2, fill: s.color }));
    }
  }

  /* ---- the crosshair ---- */

  nearest(px) {
    const x = this.x.inverse(px), stops = this.stops;
    let lo = 0, hi = stops.length - 1;
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if (stops[mid] < x) lo = mid + 1;
      else hi = mid;
    }
    return lo > 0 && x - stops[lo - 1] < stops[lo] - x ? lo - 1 : lo;
  }

  /* Puts the crosshair on a stop, or removes it (null). */
  place(index) {
    this.at = index;
    if (!this.hair) return;
    this.hair.replaceChildren();
    this.note.hidden = index === null;
    if (index === null) return;
    const stop = this.stops[index], px = this.x(stop), { top, bottom, left, right } = this.area;
    this.hair.append(shape("line", { class: "hair", x1: px, x2: px, y1: top, y2: bottom }));
    const shown = this.readout(stop);
    const table = element("table", {}, element("caption", {}, shown.title));
    if (shown.head.length > 1) table.append(element("tr", {}, element("th"), ...shown.head.map((h) => element("th", {}, h))));
    for (const r of shown.rows) {
      for (const { point } of r.values)
        if (point && this.visible(point))
          this.hair.append(shape("circle", { cx: this.x(point.x), cy: this.y(point.y), r: 4.5, fill: "none", stroke: r.color, "stroke-width": 2 }));
      table.append(element("tr", {}, element("td", {}, colored(r.color), r.name),
        ...r.values.map((v) => element("td", {}, v.text, v.at && element("small", {}, ` at ${v.at}`)))));
    }
    this.note.replaceChildren(table);
    const room = this.note.offsetWidth + 14, beside = px + room < right ? px + 14 : px - room;
    this.note.style.left = `${Math.min(Math.max(beside, 0), Math.max(this.box.clientWidth - this.note.offsetWidth, 0))}px`;
    this.note.style.top = `${top + 4}px`;
    return shown;
  }

  /* A pointer event's position in the drawing. */
  pointer(e) {
    const box = this.svg.getBoundingClientRect();
    return { px: e.clientX - box.left, inside: this.area && this.stops.length > 0 };
  }

  follow(e) {
    const { px, inside } = this.pointer(e);
    if (!inside) return;
    this.place(this.nearest(px));
    if (this.drag === undefined) return;
    const a = Math.max(Math.min(this.drag, px), this.area.left), b = Math.min(Math.max(this.drag, px), this.area.right);
    if (b > a) this.hair.append(shape("rect", { class: "box", x: a, width: b - a, y: this.area.top, height: this.area.bottom - this.area.top }));
  }

  press(e) {
    if (e.button !== 0 || e.pointerType === "touch" || !this.pointer(e).inside) return;
    this.drag = this.pointer(e).px;
    this.svg.setPointerCapture(e.pointerId);
  }

  release(e) {
    const from = this.drag;
    this.drag = undefined;
    if (!e || from === undefined) return;
    const { px } = this.pointer(e);
    if (Math.abs(px - from) > 8) this.narrow(this.x.inverse(Math.min(from, px)), this.x.inverse(Math.max(from, px)));
  }

  /* Magnifies the axis from a to b, if anything is in it. */
  narrow(a, b) {
    const [lo, hi] = this.xRange, from = Math.max(a, lo), to = Math.min(b, hi);
    if (this.stops.filter((s) => s >= from && s <= to).length > 1) this.magnify([from, to]);
  }

  key(e) {
    const last = (this.stops || []).length - 1, at = this.at;
    const page = Math.max(Math.round(last / 10), 1);
    const moves = {
      ArrowRight: at === null ? 0 : at + 1, ArrowLeft: at === null ? last : at - 1, Home: 0, End: last,
      PageDown: (at ?? 0) + page, PageUp: (at ?? last) - page,
    };
    if (last < 0 || e.ctrlKey || e.altKey || e.metaKey) return;
    if (e.key in moves) {
      const shown = this.place(Math.min(Math.max(moves[e.key], 0), last));
      const said = (r) => r.values.map((v, i) => `${shown.head.length > 1 ? `${shown.head[i]} ` : ""}${v.text}${v.at ? ` at ${v.at}` : ""}`);
      this.announce(`${shown.title}: ${shown.rows.map((r) => `${r.name} ${said(r).join(", ")}`).join("; ")}`);
    } else if (e.key === "+" || e.key === "=") {
      const [lo, hi] = this.xRange, middle = at === null ? (lo + hi) / 2 : this.stops[at];
      this.narrow(middle - (hi - lo) / 4, middle + (hi - lo) / 4);
    } else if (e.key === "-" || e.key === "0") this.magnify(null);
    else if (e.key === "Escape") this.place(null);
    else return;
    e.preventDefault();
  }
}
