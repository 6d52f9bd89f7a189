// Drawings: the decision graph with its box, rows coloured by cluster, sizes of clusters.

const LEFT = 52;
const BOTTOM = 30;
const EDGE = 14;
const MAX_DISCS = 20000; // more points are drawn as a density of pixels
const KEY_STEP = 0.01; // fraction of the width or height by which an arrow key moves

function dark() {
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

// These colours differ from those in reports, because they follow the light or dark scheme of the page.
export function clusterColour(k) {
  return `hsl(${(215 + 137.508 * k) % 360} 62% ${dark() ? 62 : 44}%)`;
}

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
  return { context, width, height, scale };
}

function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low < high ? [low, high] : [low - 1, low + 1];
}

function ticks(low, high) {
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const found = [];
  for (let at = Math.ceil(low / step); at * step <= high; at++) found.push(Number((at * step).toPrecision(12)));
  return found;
}

export class Graph {
  // `names` are the names of two values per row, `right` and `up` the values. `chosen` is called with the limits NAME_min
  // and NAME_max of the box; an upper limit beyond all rows is null.
  constructor(canvas, overlay, names, right, up, chosen) {
    Object.assign(this, { canvas, overlay, names, right, up, chosen, corners: null });
    const some = right.length > 0;
    this.x = some ? extent(right) : [0, 1];
    this.y = some ? [0, extent(up)[1]] : [0, 1];
    overlay.addEventListener("pointerdown", (event) => this.begin(event));
    overlay.addEventListener("pointermove", (event) => this.drag(event));
    for (const end of ["pointerup", "pointercancel"]) overlay.addEventListener(end, () => (this.anchor = null));
    overlay.addEventListener("keydown", (event) => this.key(event));
  }

  inner() {
    const { width, height } = this.canvas.getBoundingClientRect();
    return { width: width - LEFT - EDGE, height: height - BOTTOM - EDGE };
  }

  // Position of a row in the plot, from 0 to 1 from the lower left, by its two values.
  share(right, up) {
    return [(right - this.x[0]) / (this.x[1] - this.x[0]), (up - this.y[0]) / (this.y[1] - this.y[0])];
  }

  draw(centers) {
    const { context, width, height, scale } = prepared(this.canvas);
    const inner = this.inner();
    context.font = "12px system-ui, sans-serif";
    context.fillStyle = colour("--quiet", this.canvas);
    context.strokeStyle = colour("--line", this.canvas);
    context.textAlign = "center";
    for (const tick of ticks(...this.x)) {
      const at = LEFT + this.share(tick, 0)[0] * inner.width;
      context.fillText(tick.toLocaleString("en"), at, height - BOTTOM + 18);
    }
    context.textAlign = "right";
    for (const tick of ticks(...this.y)) {
      const at = EDGE + (1 - this.share(0, tick)[1]) * inner.height;
      context.fillText(tick.toLocaleString("en"), LEFT - 8, at + 4);
      context.strokeRect(LEFT, at, width - LEFT - EDGE, 0);
    }
    if (this.right.length <= MAX_DISCS) this.drawDiscs(context, inner);
    else this.drawDensity(context, inner, scale);
    for (let k = Math.min(centers.length, MAX_DISCS) - 1; k >= 0; k--) {
      const [x, y] = this.share(this.right[centers[k]], this.up[centers[k]]);
      context.fillStyle = clusterColour(k);
      context.beginPath();
      context.arc(LEFT + x * inner.width, EDGE + (1 - y) * inner.height, 5, 0, 7);
      context.fill();
    }
    this.drawBox();
  }

  drawDiscs(context, inner) {
    context.fillStyle = colour("--quiet", this.canvas);
    context.globalAlpha = 0.6;
    for (let i = 0; i < this.right.length; i++) {
      const [x, y] = this.share(this.right[i], this.up[i]);
      context.beginPath();
      context.arc(LEFT + x * inner.width, EDGE + (1 - y) * inner.height, 2, 0, 7);
      context.fill();
    }
    context.globalAlpha = 1;
  }

  // The opacity of a pixel depends on its number of rows; a million rows take some milliseconds.
  drawDensity(context, inner, scale) {
    const wide = Math.max(1, Math.round(inner.width * scale));
    const high = Math.max(1, Math.round(inner.height * scale));
    const counts = new Uint32Array(wide * high);
    const [x0, x1] = this.x;
    const [y0, y1] = this.y;
    let most = 1;
    for (let i = 0; i < this.right.length; i++) {
      const x = Math.min(wide - 1, Math.floor(((this.right[i] - x0) / (x1 - x0)) * wide));
      const y = Math.min(high - 1, Math.floor((1 - (this.up[i] - y0) / (y1 - y0)) * high));
      const count = ++counts[y * wide + x];
      if (count > most) most = count;
    }
    const image = new ImageData(wide, high);
    const grey = dark() ? 170 : 80;
    const faintest = 120; // a single row is visible
    for (let at = 0; at < counts.length; at++) {
      if (!counts[at]) continue;
      image.data.fill(grey, 4 * at, 4 * at + 3);
      image.data[4 * at + 3] = faintest + (255 - faintest) * (Math.log(counts[at]) / Math.log(most + 1));
    }
    // Draw from another canvas: unlike `putImageData`, this keeps the content below.
    const layer = new OffscreenCanvas(wide, high);
    layer.getContext("2d").putImageData(image, 0, 0);
    context.drawImage(layer, LEFT, EDGE, inner.width, inner.height);
  }

  drawBox() {
    const { context } = prepared(this.overlay);
    if (!this.corners) return;
    const inner = this.inner();
    const [x0, y0, x1, y1] = this.corners;
    const box = [
      LEFT + x0 * inner.width, EDGE + (1 - y1) * inner.height, (x1 - x0) * inner.width, (y1 - y0) * inner.height,
    ];
    const accent = colour("--accent", this.overlay);
    context.globalAlpha = 0.14;
    context.fillStyle = accent;
    context.fillRect(...box);
    context.globalAlpha = 1;
    context.strokeStyle = accent;
    context.lineWidth = 2;
    context.strokeRect(...box);
  }

  // Show a box with these limits; null: no box.
  place(box) {
    const limits = ["min", "max"].map((end) => this.names.map((name) => box?.[`${name}_${end}`]));
    if (limits.flat().every((limit) => limit === undefined)) this.corners = null;
    else {
      const [low, high] = [0, Infinity].map((none, end) => this.share(...limits[end].map((limit) => limit ?? none)));
      this.corners = [...low, ...high].map((share) => Math.max(0, Math.min(1, share)));
    }
    this.drawBox();
  }

  at(event) {
    const edge = this.overlay.getBoundingClientRect();
    const inner = this.inner();
    const x = (event.clientX - edge.left - LEFT) / inner.width;
    const y = 1 - (event.clientY - edge.top - EDGE) / inner.height;
    return [x, y].map((share) => Math.max(0, Math.min(1, share)));
  }

  begin(event) {
    if (event.button > 0) return;
    this.overlay.setPointerCapture(event.pointerId);
    this.anchor = this.at(event);
  }

  drag(event) {
    if (!this.anchor) return;
    const [x, y] = this.at(event);
    const [ax, ay] = this.anchor;
    this.corners = [Math.min(x, ax), Math.min(y, ay), Math.max(x, ax), Math.max(y, ay)];
    this.tell();
  }

  key(event) {
    const moves = { ArrowLeft: [-KEY_STEP, 0], ArrowRight: [KEY_STEP, 0], ArrowDown: [0, -KEY_STEP], ArrowUp: [0, KEY_STEP] };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    this.corners ??= [0.2, 0.2, 1, 1];
    const first = event.shiftKey ? 2 : 0;
    for (const axis of [0, 1]) {
      const moved = Math.max(0, Math.min(1, this.corners[first + axis] + move[axis]));
      const other = this.corners[2 - first + axis];
      this.corners[first + axis] = first ? Math.max(moved, other) : Math.min(moved, other);
    }
    this.tell();
  }

  tell() {
    this.drawBox();
    const [x0, y0, x1, y1] = this.corners;
    const of = (share, [low, high]) => low + share * (high - low);
    const [right, up] = this.names;
    this.chosen({
      [`${right}_min`]: of(x0, this.x), [`${up}_min`]: of(y0, this.y),
      [`${right}_max`]: x1 >= 1 ? null : of(x1, this.x), [`${up}_max`]: y1 >= 1 ? null : of(y1, this.y),
    });
  }
}

// Rows by two features, coloured by cluster.
export function drawMap(canvas, points, labels) {
  const { context, width, height } = prepared(canvas);
  if (!width) return;
  const [x0, x1] = extent(points.x);
  const [y0, y1] = extent(points.y);
  const colours = new Map();
  for (let i = 0; i < labels.length; i++) {
    if (!colours.has(labels[i])) colours.set(labels[i], clusterColour(labels[i]));
    context.fillStyle = colours.get(labels[i]);
    const x = EDGE + ((points.x[i] - x0) / (x1 - x0)) * (width - 2 * EDGE);
    const y = height - EDGE - ((points.y[i] - y0) / (y1 - y0)) * (height - 2 * EDGE);
    context.fillRect(x - 1.5, y - 1.5, 3, 3);
  }
}

// One bar per cluster, the largest first.
export function drawSizes(place, sizes) {
  const canvas = place.querySelector("canvas") || place.appendChild(document.createElement("canvas"));
  const { context, width, height } = prepared(canvas);
  const order = Array.from(sizes.keys()).sort((a, b) => sizes[b] - sizes[a]);
  const step = Math.min(28, width / order.length);
  const gap = step > 4 ? 2 : 0;
  for (const [at, k] of order.entries()) {
    const tall = Math.max(1, (sizes[k] / sizes[order[0]]) * height);
    context.fillStyle = clusterColour(k);
    context.fillRect(at * step, height - tall, Math.max(step - gap, 0.5), tall);
  }
}
