// Drawings: the decision graph with its box and zoom, the products of its quantities, rows by cluster, sizes of clusters.

const EDGE = 12; // free space to the right of a plot
const TOP = 26; // for the title of the vertical axis
const BOTTOM = 40; // for labels and the title of the horizontal axis
const GAP = 8; // between labels
const FONT = "12px system-ui, sans-serif";
const KEY_STEP = 0.01; // fraction of the width or height by which an arrow key moves
const ZOOM = 1.5; // factor of a step of the zoom
const REACH = 14; // pixels from the pointer within which a row is named
const NONE = "#a9aeb6"; // of rows without a cluster, as in reports

function colour(name, of) {
  return getComputedStyle(of).getPropertyValue(name).trim();
}

// Return the context of a canvas, scaled to units of the page for any pixel density.
function prepared(canvas) {
  const { width, height } = canvas.getBoundingClientRect();
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = FONT;
  return { context, width, height };
}

function disc(context, x, y, radius) {
  context.beginPath();
  context.arc(x, y, radius, 0, 7);
  context.fill();
}

export function number(value) {
  if (value && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e7)) return value.toExponential(2).replace(/\.?0+e\+?/, "e");
  return value.toLocaleString("en", { maximumSignificantDigits: 6 });
}

// An axis from one value to another; values to positions from 0 to 1.
export class Scale {
  constructor(low, high, log = false) {
    const same = !(low < high);
    Object.assign(this, { log, low: same ? (log ? low / 2 : low - 1) : low, high: same ? (log ? high * 2 : high + 1) : high });
    [this.first, this.last] = [this.bent(this.low), this.bent(this.high)];
  }

  bent(value) {
    return this.log ? Math.log(Math.max(value, this.low)) : value; // zeros, which have no logarithm, are at the end
  }

  at(value) {
    if (value === Infinity) return 1;
    return (this.bent(value) - this.first) / (this.last - this.first);
  }

  value(at) {
    const bent = this.first + at * (this.last - this.first);
    return this.log ? Math.exp(bent) : bent;
  }

  ticks() {
    const found = [];
    if (this.log && this.high / this.low >= 10) {
      const factors = this.high / this.low < 1e3 ? [1, 2, 5] : [1];
      for (let power = Math.floor(Math.log10(this.low)); power <= Math.log10(this.high); power++) {
        for (const factor of factors) found.push(Number((factor * 10 ** power).toPrecision(1)));
      }
      return found.filter((tick) => tick >= this.low && tick <= this.high);
    }
    const rough = (this.high - this.low) / 5;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
    for (let at = Math.ceil(this.low / step); at * step <= this.high; at++) found.push(Number((at * step).toPrecision(12)));
    return found;
  }
}

// Draw axes with their titles. The labels are measured first. Return the plot's place in the canvas.
function frame(canvas, context, width, height, x, y, titles) {
  const labels = y.ticks().map((tick) => [tick, number(tick)]);
  const left = GAP + Math.max(20, ...labels.map(([, text]) => context.measureText(text).width)) + GAP;
  const plot = { left, top: TOP, width: Math.max(1, width - left - EDGE), height: Math.max(1, height - TOP - BOTTOM) };
  context.fillStyle = colour("--quiet", canvas);
  context.strokeStyle = colour("--line", canvas);
  context.textAlign = "right";
  let last = Infinity;
  for (const [tick, text] of labels) {
    const at = TOP + (1 - y.at(tick)) * plot.height;
    context.strokeRect(left, at, plot.width, 0);
    if (last - at < 14) continue;
    context.fillText(text, left - GAP, at + 4);
    last = at;
  }
  context.textAlign = "left";
  let end = 0;
  for (const tick of x.ticks()) {
    const text = number(tick);
    const wide = context.measureText(text).width;
    const start = Math.min(width - wide - 1, left + x.at(tick) * plot.width - wide / 2);
    if (start < end) continue;
    context.fillText(text, start, height - BOTTOM + 16);
    end = start + wide + GAP;
  }
  context.fillText(`↑ ${titles[1]}`, GAP, 15, width - 2 * GAP);
  context.textAlign = "right";
  context.fillText(`${titles[0]} →`, width - EDGE, height - 6, width - 2 * GAP);
  return plot;
}

function dashed(context, canvas, ...line) {
  context.strokeStyle = colour("--text", canvas);
  context.setLineDash([4, 3]);
  context.strokeRect(...line);
  context.setLineDash([]);
}

// Position of an event in a plot, from 0 to 1 from the lower left.
function within(canvas, plot, event) {
  const edge = canvas.getBoundingClientRect();
  const x = (event.clientX - edge.left - plot.left) / plot.width;
  const y = 1 - (event.clientY - edge.top - plot.top) / plot.height;
  return [x, y].map((share) => Math.max(0, Math.min(1, share)));
}

function least(values) {
  let found = Infinity;
  for (const value of values) if (value > 0 && value < found) found = value;
  return found === Infinity ? 1 : found;
}

// Whether a linear axis would press most centres into its lowest tenth; reports decide in the same way.
function squeezed(values, centers) {
  const sorted = [...centers].sort((a, b) => a - b);
  return sorted.length > 2 && sorted[sorted.length >> 1] < 0.1 * Math.max(...values);
}

export class Graph {
  // `axes` have names and words, `data` is the answer of /graph. `chosen` is called with the limits NAME_min and NAME_max
  // of the box; an upper limit beyond all rows is null. `pointed` is called with the index of a row, or null.
  constructor(canvas, overlay, axes, data, chosen, pointed) {
    Object.assign(this, { canvas, overlay, axes, data, chosen, pointed, box: null, log: null, zoom: null, drags: "choose" });
    this.told = { centers: [], places: [], colors: [] };
    overlay.addEventListener("pointerdown", (event) => this.begin(event));
    overlay.addEventListener("pointermove", (event) => this.move(event));
    overlay.addEventListener("pointerleave", () => this.point(null));
    for (const end of ["pointerup", "pointercancel"]) overlay.addEventListener(end, (event) => this.end(event.type === "pointerup"));
    overlay.addEventListener("keydown", (event) => this.key(event));
    overlay.addEventListener("dblclick", () => this.show(null));
  }

  // Scales of the whole graph, or of the part that is shown.
  scales(zoom = this.zoom) {
    if (zoom) return zoom.map(([low, high]) => new Scale(low, high, this.log));
    const { right, up } = this.data;
    const lows = this.log ? [least(right), least(up) / 2] : [Math.min(...right), 0];
    return [right, up].map((values, axis) => new Scale(lows[axis], Math.max(...values), this.log));
  }

  show(zoom) {
    this.zoom = zoom;
    this.draw();
  }

  // Show a part that is smaller by a factor, around the middle.
  magnify(factor) {
    const half = 0.5 / factor;
    const part = this.scales().map((scale) => [scale.value(0.5 - half), scale.value(0.5 + half)]);
    const whole = this.scales(null);
    const clipped = part.map(([low, high], axis) => [Math.max(low, whole[axis].low), Math.min(high, whole[axis].high)]);
    this.show(clipped.every(([low, high], axis) => low === whole[axis].low && high === whole[axis].high) ? null : clipped);
  }

  draw(told = this.told) {
    this.told = told;
    const { right, up } = this.data;
    this.log ??= [right, up].some((values, axis) => squeezed(values, told.places.map((place) => place[axis])));
    const { context, width, height } = prepared(this.canvas);
    if (!width) return;
    const [x, y] = this.scales();
    this.plot = frame(this.canvas, context, width, height, x, y, this.axes.map(({ words }) => words));
    const place = (a, b) => [this.plot.left + x.at(a) * this.plot.width, this.plot.top + (1 - y.at(b)) * this.plot.height];
    context.save();
    context.beginPath();
    context.rect(this.plot.left - 6, this.plot.top - 6, this.plot.width + 12, this.plot.height + 12);
    context.clip();
    context.fillStyle = colour("--quiet", this.canvas);
    context.globalAlpha = 0.55;
    this.positions = right.map((value, i) => place(value, up[i]));
    for (const [a, b] of this.positions) disc(context, a, b, 2);
    context.globalAlpha = 1;
    context.strokeStyle = colour("--card", this.canvas);
    for (let k = told.places.length - 1; k >= 0; k--) {
      context.fillStyle = told.colors[k];
      disc(context, ...place(...told.places[k]), 5);
      context.stroke();
    }
    context.restore();
    this.drawBox();
  }

  drawBox() {
    const { context } = prepared(this.overlay);
    if (!this.plot) return;
    const accent = colour("--accent", this.overlay);
    const rectangle = ([x0, y0, x1, y1]) => [
      this.plot.left + x0 * this.plot.width, this.plot.top + (1 - y1) * this.plot.height,
      (x1 - x0) * this.plot.width, (y1 - y0) * this.plot.height,
    ];
    if (this.box) {
      context.fillStyle = context.strokeStyle = accent;
      context.lineWidth = 2;
      context.globalAlpha = 0.14;
      context.fillRect(...rectangle(this.corners()));
      context.globalAlpha = 1;
      context.strokeRect(...rectangle(this.corners()));
    }
    context.lineWidth = 1;
    if (this.lens) dashed(context, this.overlay, ...rectangle(this.lens));
    if (this.pointedAt != null) {
      context.strokeStyle = colour("--text", this.overlay);
      context.beginPath();
      context.arc(...this.positions[this.pointedAt], 7, 0, 7);
      context.stroke();
    }
  }

  // Corners of the box in the part that is shown: left, low, right, high.
  corners() {
    const [x, y] = this.scales();
    const [low, high] = this.box;
    return [x.at(low[0]), y.at(low[1]), x.at(high[0]), y.at(high[1])].map((share) => Math.max(0, Math.min(1, share)));
  }

  // Show a box with these limits; null: no box.
  place(limits) {
    const [low, high] = ["min", "max"].map((end) => this.axes.map(({ name }) => limits?.[`${name}_${end}`]));
    const none = [...low, ...high].every((limit) => limit === undefined);
    this.box = none ? null : [low.map((limit) => limit ?? 0), high.map((limit) => limit ?? Infinity)];
    this.drawBox();
  }

  begin(event) {
    if (event.button > 0 || !this.plot) return;
    this.overlay.setPointerCapture(event.pointerId);
    this.anchor = within(this.overlay, this.plot, event);
  }

  move(event) {
    if (!this.plot) return;
    if (!this.anchor) {
      this.point(this.nearest(event));
      return;
    }
    const [x, y] = within(this.overlay, this.plot, event);
    const [ax, ay] = this.anchor;
    const corners = [Math.min(x, ax), Math.min(y, ay), Math.max(x, ax), Math.max(y, ay)];
    if (this.drags === "zoom") {
      this.lens = corners;
      this.drawBox();
    } else this.tell(corners);
  }

  end(done) {
    const lens = this.lens;
    this.anchor = this.lens = null;
    if (!lens) return;
    const [x, y] = this.scales();
    const [x0, y0, x1, y1] = lens;
    if (done && x1 - x0 > 0.01 && y1 - y0 > 0.01) this.show([[x.value(x0), x.value(x1)], [y.value(y0), y.value(y1)]]);
    else this.drawBox();
  }

  nearest(event) {
    const edge = this.overlay.getBoundingClientRect();
    let [found, best] = [null, REACH ** 2];
    this.positions.forEach(([x, y], i) => {
      const distance = (x + edge.left - event.clientX) ** 2 + (y + edge.top - event.clientY) ** 2;
      if (distance < best) [found, best] = [i, distance];
    });
    return found;
  }

  point(index) {
    if (index === (this.pointedAt ?? null)) return;
    this.pointedAt = index;
    this.drawBox();
    this.pointed(index);
  }

  key(event) {
    const zooms = { "+": () => this.magnify(ZOOM), "-": () => this.magnify(1 / ZOOM), 0: () => this.show(null) };
    const moves = { ArrowLeft: [-KEY_STEP, 0], ArrowRight: [KEY_STEP, 0], ArrowDown: [0, -KEY_STEP], ArrowUp: [0, KEY_STEP] };
    const move = moves[event.key];
    if (!(move || zooms[event.key]) || !this.plot) return;
    event.preventDefault();
    if (!move) {
      zooms[event.key]();
      return;
    }
    const corners = this.box ? this.corners() : [0.2, 0.2, 1, 1];
    const first = event.shiftKey ? 2 : 0;
    for (const axis of [0, 1]) {
      const moved = Math.max(0, Math.min(1, corners[first + axis] + move[axis]));
      const other = corners[2 - first + axis];
      corners[first + axis] = first ? Math.max(moved, other) : Math.min(moved, other);
    }
    this.tell(corners);
  }

  // The box has new corners.
  tell([x0, y0, x1, y1]) {
    const [x, y] = this.scales();
    const whole = this.scales(null);
    const upper = (scale, at, axis) => (at >= 1 && scale.high >= whole[axis].high ? null : scale.value(at));
    const high = [upper(x, x1, 0), upper(y, y1, 1)];
    this.box = [[x.value(x0), y.value(y0)], high.map((limit) => limit ?? Infinity)];
    this.drawBox();
    const [right, up] = this.axes.map(({ name }) => name);
    this.chosen({
      [`${right}_min`]: this.box[0][0], [`${up}_min`]: this.box[0][1], [`${right}_max`]: high[0], [`${up}_max`]: high[1],
    });
  }
}

// The products of both quantities by rank: the number of clusters is where they fall. A click chooses a number.
export class Ranks {
  constructor(canvas, data, chosen, pointed) {
    Object.assign(this, { canvas, data });
    this.products = data.right.slice(0, data.ranked).map((value, i) => value * data.up[i]);
    canvas.addEventListener("pointermove", (event) => pointed(this.index(event)));
    canvas.addEventListener("pointerleave", () => pointed(null));
    canvas.addEventListener("click", (event) => {
      const index = this.index(event);
      if (index !== null) chosen(index + 1);
    });
  }

  index(event) {
    if (!this.plot) return null;
    return Math.min(this.shown, Math.max(1, Math.round(this.x.value(within(this.canvas, this.plot, event)[0])))) - 1;
  }

  draw(told) {
    const { context, width, height } = prepared(this.canvas);
    if (!width) return;
    this.shown = Math.min(this.products.length, Math.max(30, 3 * told.centers.length));
    const products = this.products.slice(0, this.shown);
    const floor = least(products);
    this.x = new Scale(1, this.shown, this.shown > 60);
    const y = new Scale(floor, Math.max(floor, ...products), true);
    this.plot = frame(this.canvas, context, width, height, this.x, y, ["rank", "product of both"]);
    const clusters = new Map(told.centers.map((row, k) => [row, k]));
    const grey = colour("--quiet", this.canvas);
    products.forEach((product, i) => {
      const k = clusters.get(this.data.rows[i]);
      context.fillStyle = k === undefined ? grey : told.colors[k];
      disc(context, this.plot.left + this.x.at(i + 1) * this.plot.width, this.plot.top + (1 - y.at(product)) * this.plot.height, 3.5);
    });
    if (told.centers.length < this.shown) {
      const at = this.plot.left + this.x.at(told.centers.length + 0.5) * this.plot.width;
      dashed(context, this.canvas, at, this.plot.top, 0, this.plot.height);
    }
  }
}

// Rows by two features, coloured by cluster.
export function drawMap(canvas, points, labels, colors, names) {
  const { context, width, height } = prepared(canvas);
  if (!width) return;
  const [x, y] = [points.x, points.y].map((values) => new Scale(Math.min(...values), Math.max(...values)));
  const plot = frame(canvas, context, width, height, x, y, names);
  for (let i = 0; i < labels.length; i++) {
    context.fillStyle = colors[labels[i]] || NONE;
    context.fillRect(plot.left + x.at(points.x[i]) * plot.width - 1.5, plot.top + (1 - y.at(points.y[i])) * plot.height - 1.5, 3, 3);
  }
}

// One bar per cluster, the largest first.
export function drawSizes(canvas, sizes, colors) {
  const { context, width, height } = prepared(canvas);
  if (!width) return;
  const order = Array.from(sizes.keys()).sort((a, b) => sizes[b] - sizes[a]);
  const [x, y] = [new Scale(0, order.length), new Scale(0, sizes[order[0]])];
  const plot = frame(canvas, context, width, height, x, y, ["clusters", "rows"]);
  const step = plot.width / order.length;
  const gap = step > 4 ? 2 : 0;
  for (const [at, k] of order.entries()) {
    const tall = Math.max(1, y.at(sizes[k]) * plot.height);
    context.fillStyle = colors[k];
    context.fillRect(plot.left + at * step, plot.top + plot.height - tall, Math.max(step - gap, 0.5), tall);
  }
}
