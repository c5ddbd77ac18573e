// The map: images at two of their latents or covariates, and the latents that are shown among them.
import { button, choice, element, shortNumber, toggle } from "./elements.js";

const WIDTH = 720;
const HEIGHT = 560;
const MARGIN = { left: 64, right: 16, top: 16, bottom: 56 };
const NEAR = 14; // pixels
const HUES = ["#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#0072B2", "#D55E00", "#B0A000", "#9467BD", "#8C564B", "#17BECF", "#E377C2", "#808890"];
const LADDER = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

export class ImageMap {
  /** onselect(n) shows an image; onhover(n, canvas) draws its thumbnail. */
  constructor(facts, latents, { onselect, onhover, onmean, onpress }) {
    Object.assign(this, { facts, latents, onselect, onhover, onmean, onpress });
    this.people = facts.people ?? { names: [], latents: [], columns: [], nPictures: 0 };
    this.axes = this.possibleAxes();
    this.isLasso = false;
    this.path = null;
    this.group = new Set();
    this.marks = {};
    this.make();
    latents.onChange(() => this.schedule());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.schedule());
  }

  /** Latents in standard deviations, and covariates that are numbers. */
  possibleAxes() {
    const { facts, people, latents } = this;
    const axes = facts.modes.map((mode, k) => ({
      name: `z${mode.latent}`, latent: k,
      values: people.latents.map((row) => row[k] / mode.deviation),
      limits: latents.limits[k],
    }));
    for (const column of people.columns) {
      if (column.kind !== "number") continue;
      const known = column.values.filter((value) => value !== null);
      const low = known.reduce((a, b) => Math.min(a, b)), high = known.reduce((a, b) => Math.max(a, b));
      axes.push({ name: column.name, latent: null, values: column.values, limits: low < high ? [low, high] : [low - 1, low + 1] });
    }
    return axes;
  }

  make() {
    const names = this.axes.map((axis, n) => [n, axis.name]);
    this.chosen = [0, Math.min(1, this.axes.length - 1)];
    const axisChoice = (n, label) => {
      const made = choice(label, names, (value) => {
        this.chosen[n] = Number(value);
        this.schedule();
      });
      made.value = this.chosen[n];
      return made;
    };
    this.canvas = element("canvas", { width: WIDTH, height: HEIGHT, role: "img", "aria-label": "Map of images; choose one by name beside it" });
    this.tip = element("div", { class: "tip", hidden: true });
    this.thumbnail = element("canvas", { width: 96, height: 96 });
    this.tipName = element("span");
    this.tip.append(this.thumbnail, this.tipName);
    const hasPeople = this.people.names.length > 0;
    this.legend = element("ul", { class: "legend", "aria-label": "Colours" });
    const tools = element("div", { class: "tools" },
      element("label", {}, "Across ", axisChoice(0, "Horizontal axis")), element("label", {}, "Up ", axisChoice(1, "Vertical axis")));
    if (hasPeople && this.people.columns.length) {
      const pairs = [["", "None"], ...this.people.columns.map((column, n) => [n, column.name])];
      tools.append(element("label", {}, "Colour ", choice("Colour of points", pairs, (value) => this.colourBy(value))));
    }
    if (hasPeople) {
      this.lasso = toggle("Lasso", false, (value) => (this.isLasso = value), { title: "Draw around images to see the mean of their latents" });
      this.names = choice("Image", [["", "Choose an image"], ...this.people.names.map((name, n) => [n, name])], (value) => value !== "" && this.onselect(Number(value)));
      tools.append(this.lasso, this.names);
    }
    this.status = element("p", { class: "status", role: "status" });
    this.element = element("section", { class: "map", "aria-label": "Map" },
      element("h2", {}, hasPeople ? "Map of images" : "Map of latents"), tools,
      element("div", { class: "plot" }, this.canvas, this.tip), this.legend, this.status);
    this.colour = null;
    this.listen();
    this.schedule();
  }

  listen() {
    const { canvas } = this;
    const placeOf = (event) => {
      const box = canvas.getBoundingClientRect();
      return [((event.clientX - box.left) / box.width) * WIDTH, ((event.clientY - box.top) / box.height) * HEIGHT];
    };
    let isMoving = false;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      const [x, y] = placeOf(event);
      this.onpress();
      this.hover(null);
      if (this.isLasso) this.path = [[x, y]];
      else if (this.nearest(x, y) !== null) this.onselect(this.nearest(x, y));
      else isMoving = this.moveLatents(x, y);
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = placeOf(event);
      if (this.path) {
        this.path.push([x, y]);
        this.schedule();
      } else if (isMoving) this.moveLatents(x, y);
      else this.hover(this.nearest(x, y), x, y);
    });
    for (const end of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(end, () => {
        isMoving = false;
        if (this.path) this.finishLasso();
      });
    }
    canvas.addEventListener("pointerleave", () => this.hover(null));
    new ResizeObserver(() => this.schedule()).observe(canvas); // texts keep their size
  }

  scaleOf(n) {
    const { limits: [low, high] } = this.axes[this.chosen[n]], pad = 0.05 * (high - low);
    const [from, to] = n === 0 ? [MARGIN.left, WIDTH - MARGIN.right] : [HEIGHT - MARGIN.bottom, MARGIN.top];
    return { low: low - pad, high: high + pad, from, to };
  }

  placeOn(n, value) {
    const { low, high, from, to } = this.scaleOf(n);
    return from + ((value - low) / (high - low)) * (to - from);
  }

  valueAt(n, place) {
    const { low, high, from, to } = this.scaleOf(n);
    return low + ((place - from) / (to - from)) * (high - low);
  }

  pointOf(row) {
    const values = this.chosen.map((axis) => this.axes[axis].values[row]);
    if (values.some((value) => value === null)) return null;
    return values.map((value, n) => this.placeOn(n, value));
  }

  nearest(x, y) {
    let found = null, best = NEAR;
    for (let row = 0; row < this.people.names.length; row++) {
      const point = this.pointOf(row);
      if (!point) continue;
      const distance = Math.hypot(point[0] - x, point[1] - y);
      if (distance < best) [found, best] = [row, distance];
    }
    return found;
  }

  /** Move the latents of the axes to a place; tell whether there are any. */
  moveLatents(x, y) {
    const values = Array.from(this.latents.values);
    let hasMoved = false;
    [x, y].forEach((place, n) => {
      const { latent } = this.axes[this.chosen[n]];
      if (latent === null) return;
      values[latent] = this.valueAt(n, place);
      hasMoved = true;
    });
    if (hasMoved) this.latents.setAll(values, { evenLocked: true });
    return hasMoved;
  }

  hover(row, x, y) {
    this.tip.hidden = row === null;
    this.canvas.classList.toggle("pointing", row !== null);
    if (row === null || row === this.hovered) {
      this.hovered = row;
      return;
    }
    this.hovered = row;
    this.tipName.textContent = this.people.names[row];
    this.thumbnail.hidden = row >= this.people.nPictures;
    this.tip.style.left = `${(100 * x) / WIDTH}%`;
    this.tip.style.top = `${(100 * y) / HEIGHT}%`;
    this.tip.classList.toggle("left", x > 0.6 * WIDTH);
    if (!this.thumbnail.hidden) this.onhover(row, this.thumbnail);
  }

  finishLasso() {
    const path = this.path;
    this.path = null;
    this.group = new Set();
    this.people.names.forEach((_, row) => {
      const point = this.pointOf(row);
      if (point && isInside(point, path)) this.group.add(row);
    });
    this.isLasso = false;
    this.lasso.show(false);
    this.schedule();
    if (!this.group.size) {
      this.say("No image is inside the lasso.");
      return;
    }
    const mean = this.facts.modes.map((_, k) => [...this.group].reduce((sum, row) => sum + this.people.latents[row][k], 0) / this.group.size);
    this.say(`Shown: the mean of ${this.group.size} images.`);
    this.onmean(mean);
  }

  say(text) {
    this.status.textContent = text;
  }

  colourBy(number) {
    const column = number === "" ? null : this.people.columns[Number(number)];
    this.legend.replaceChildren();
    this.colour = null;
    if (column && column.kind === "number") {
      const known = column.values.filter((value) => value !== null);
      const low = known.reduce((a, b) => Math.min(a, b)), high = known.reduce((a, b) => Math.max(a, b));
      this.colour = (row) => column.values[row] === null ? null : rung((column.values[row] - low) / (high - low || 1));
      for (const share of [0, 0.5, 1]) this.addKey(rung(share), shortNumber(low + share * (high - low)));
    } else if (column) {
      const counts = new Map();
      for (const value of column.values) if (value !== null) counts.set(value, (counts.get(value) ?? 0) + 1);
      const kinds = [...counts.keys()].sort();
      const hueOf = (value) => HUES[Math.min(kinds.indexOf(value), HUES.length - 1)];
      this.colour = (row) => column.values[row] === null ? null : hueOf(column.values[row]);
      kinds.slice(0, HUES.length - 1).forEach((kind) => this.addKey(hueOf(kind), kind));
      if (kinds.length >= HUES.length) this.addKey(HUES[HUES.length - 1], kinds.length === HUES.length ? kinds[HUES.length - 1] : "others");
    }
    this.schedule();
  }

  addKey(colour, text) {
    const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = colour;
    this.legend.append(element("li", {}, swatch, text));
  }

  /** Mark an image with a letter, or none. */
  mark(letter, row) {
    this.marks[letter] = row;
    this.schedule();
  }

  schedule() {
    this.isWaiting ??= requestAnimationFrame(() => {
      this.isWaiting = null;
      this.draw();
    });
  }

  draw() {
    const context = this.canvas.getContext("2d"), style = getComputedStyle(this.canvas);
    const [text, quiet, line, accent] = ["--text", "--quiet", "--line", "--accent"].map((name) => style.getPropertyValue(name));
    context.clearRect(0, 0, WIDTH, HEIGHT);
    this.drawAxes(context, quiet, line);
    context.globalAlpha = 0.75;
    const radius = this.people.names.length > 2000 ? 2.5 : 6;
    for (let row = 0; row < this.people.names.length; row++) {
      const point = this.pointOf(row);
      if (!point) continue;
      context.fillStyle = (this.colour ? this.colour(row) : quiet) ?? line;
      context.beginPath();
      context.arc(...point, radius, 0, 2 * Math.PI);
      context.fill();
      if (this.group.has(row)) {
        context.strokeStyle = accent;
        context.lineWidth = 2;
        context.stroke();
      }
    }
    context.globalAlpha = 1;
    this.drawMarks(context, text);
    this.drawCurrent(context, accent);
    if (this.path) this.drawPath(context, accent);
  }

  drawAxes(context, quiet, line) {
    context.font = `${Math.round((13 * WIDTH) / (this.canvas.clientWidth || WIDTH))}px system-ui, sans-serif`;
    context.strokeStyle = line;
    context.lineWidth = 1;
    context.fillStyle = quiet;
    [0, 1].forEach((n) => {
      const { low, high } = this.scaleOf(n), { name, latent } = this.axes[this.chosen[n]];
      for (const tick of ticks(low, high)) {
        const place = this.placeOn(n, tick);
        context.beginPath();
        if (n === 0) {
          context.moveTo(place, MARGIN.top);
          context.lineTo(place, HEIGHT - MARGIN.bottom);
        } else {
          context.moveTo(MARGIN.left, place);
          context.lineTo(WIDTH - MARGIN.right, place);
        }
        context.stroke();
        context.textAlign = n === 0 ? "center" : "right";
        context.textBaseline = n === 0 ? "top" : "middle";
        const at = n === 0 ? [place, HEIGHT - MARGIN.bottom + 6] : [MARGIN.left - 8, place];
        context.fillText(shortNumber(tick), ...at);
      }
      const title = latent === null ? name : `${name} (standard deviations)`;
      context.save();
      if (n === 0) context.translate(WIDTH - MARGIN.right, HEIGHT - 8);
      else {
        context.translate(20, MARGIN.top);
        context.rotate(-Math.PI / 2);
      }
      context.textAlign = "right";
      context.textBaseline = "alphabetic";
      context.fillText(title, 0, 0);
      context.restore();
    });
  }

  drawMarks(context, text) {
    context.font = "700 20px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "bottom";
    for (const [letter, row] of Object.entries(this.marks)) {
      const point = row === null || row === undefined ? null : this.pointOf(row);
      if (!point) continue;
      context.strokeStyle = context.fillStyle = text;
      context.lineWidth = 2;
      context.beginPath();
      context.arc(...point, 10, 0, 2 * Math.PI);
      context.stroke();
      if (letter !== "selected") context.fillText(letter, point[0], point[1] - 11);
    }
  }

  /** A cross where the latents that are shown are, if both axes are latents. */
  drawCurrent(context, accent) {
    const latents = this.chosen.map((axis) => this.axes[axis].latent);
    if (latents.includes(null)) return;
    const [x, y] = latents.map((k, n) => this.placeOn(n, this.latents.values[k]));
    context.strokeStyle = accent;
    context.lineWidth = 2.5;
    context.beginPath();
    context.arc(x, y, 7, 0, 2 * Math.PI);
    for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
      context.moveTo(x + 7 * dx, y + 7 * dy);
      context.lineTo(x + 14 * dx, y + 14 * dy);
    }
    context.stroke();
  }

  drawPath(context, accent) {
    context.beginPath();
    this.path.forEach(([x, y], n) => (n ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.closePath();
    context.strokeStyle = accent;
    context.lineWidth = 2;
    context.stroke();
    context.globalAlpha = 0.12;
    context.fillStyle = accent;
    context.fill();
    context.globalAlpha = 1;
  }
}

/** Tell whether a point is inside a closed path. */
export function isInside([x, y], path) {
  let inside = false;
  for (let i = 0, j = path.length - 1; i < path.length; j = i++) {
    const [xi, yi] = path[i], [xj, yj] = path[j];
    if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) inside = !inside;
  }
  return inside;
}

function ticks(low, high) {
  const rough = (high - low) / 6, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((candidate) => candidate >= rough);
  const all = [];
  for (let n = Math.ceil(low / step); n * step <= high && all.length < 20; n++) all.push(n * step);
  return all;
}

function rung(share) {
  const place = Math.min(1, Math.max(0, share)) * (LADDER.length - 1), n = Math.min(LADDER.length - 2, Math.floor(place));
  return `rgb(${LADDER[n].map((value, i) => Math.round(value + (place - n) * (LADDER[n + 1][i] - value))).join(" ")})`;
}
