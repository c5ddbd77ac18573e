// The stage: the picture of the latents, as slices with a linked cursor and as a surface.
import { choice, element, segmented, toggle } from "./elements.js";
import { Plane, painterOf } from "./planes.js";
import { SurfaceView } from "./surfaceview.js";

const LONGEST = { 2: 768, 3: 480 }; // pixels of the longest side of all, by the number of axes

export class Stage {
  /** options: what is shown besides the image; `onchange` is called when a new image is needed. */
  constructor(facts, options, onchange) {
    this.facts = facts;
    this.options = options;
    this.onchange = onchange;
    this.answer = null;
    this.isVolume = facts.space.length === 3;
    this.cursor = options.cursor ?? Array.from(facts.start);
    this.planes = facts.views.map((_, number) => new Plane(facts, number));
    this.canvases = this.planes.map((plane, number) => this.makeCanvas(plane, number));
    this.hasSurface = this.isVolume && (facts.holdsClasses || (facts.likelihood === "bernoulli" && facts.nChannels === 1));
    this.surface = this.hasSurface ? new SurfaceView(facts, this.planes) : null;
    const panels = this.canvases.map((canvas, n) => this.makePanel(canvas, this.planes[n].name));
    if (this.surface) panels.push(this.makeSurfacePanel());
    this.status = element("p", { class: "status", role: "status" });
    this.element = element("section", { class: `stage ${this.isVolume ? "volume" : "plane"} ${this.surface ? "" : "flat"}`, "aria-label": "Picture" },
      element("div", { class: "panels" }, ...panels), this.makeTools(), ...this.makeLegend(), this.status);
    this.mirror();
  }

  makeCanvas(plane, number) {
    const canvas = element("canvas", { role: "img", class: "slice" });
    plane.fit(canvas, LONGEST[this.facts.space.length] / Math.max(...this.planes.map(({ width, height }) => Math.max(width, height))));
    if (!this.isVolume) return canvas;
    const widest = Math.max(...this.planes.map(({ width }) => width));
    canvas.style.setProperty("--share", plane.width / widest); // slices keep their proportions to each other
    canvas.tabIndex = 0;
    const point = (event) => {
      const box = canvas.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * canvas.width;
      const y = ((event.clientY - box.top) / box.height) * canvas.height;
      const [across, along] = plane.voxelAt(canvas, x, y);
      this.cursor[plane.view.horizontal] = across;
      this.cursor[plane.view.vertical] = along;
      this.draw();
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      point(event);
    });
    canvas.addEventListener("pointermove", (event) => event.buttons && point(event));
    canvas.addEventListener("keydown", (event) => this.moveCursor(event, number));
    return canvas;
  }

  moveCursor(event, number) {
    const plane = this.planes[number], { horizontal, vertical } = plane.view;
    const right = plane.firstIsLeft ? 1 : -1, down = plane.firstIsTop ? 1 : -1;
    const moves = {
      ArrowRight: [horizontal, right], ArrowLeft: [horizontal, -right],
      ArrowDown: [vertical, down], ArrowUp: [vertical, -down],
      PageUp: [plane.third, 1], PageDown: [plane.third, -1],
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    const [axis, by] = move;
    this.cursor[axis] = Math.min(this.facts.space[axis] - 1, Math.max(0, this.cursor[axis] + by));
    this.draw();
  }

  makePanel(canvas, name) {
    if (!this.isVolume) return element("figure", {}, canvas);
    return element("figure", {}, canvas, element("figcaption", {}, name));
  }

  makeSurfacePanel() {
    this.colouring = choice("Colour of the surface", [
      ["class", this.facts.holdsClasses ? "Classes" : "Plain"],
      ["growth", "Growth (Jacobian)"],
      ["displacement", "Displacement"],
    ], (value) => {
      this.options.surface = value;
      this.onchange();
    });
    this.colouring.value = this.options.surface;
    return element("figure", { class: "surface" }, this.surface.canvas,
      element("figcaption", {}, "Surface ", this.colouring, this.surface.scale));
  }

  makeTools() {
    const { facts, options } = this;
    const hasBoth = facts.modes.some((mode) => mode.shape !== null) && facts.modes.some((mode) => mode.appearance !== null);
    const tools = element("div", { class: "tools" });
    if (hasBoth) {
      this.parts = segmented("What the latents change", [["both", "Both"], ["shape", "Shape"], ["appearance", "Appearance"]], options.part, (value) => {
        options.part = value;
        this.onchange();
      });
      tools.append(this.parts);
    }
    if (facts.modes.some((mode) => mode.shape !== null)) {
      this.gridToggle = toggle("Grid", options.grid, (value) => {
        options.grid = value;
        this.onchange();
      }, { title: "Lines of a regular grid of the mean, as the warp moves them" });
      tools.append(this.gridToggle);
    }
    tools.append(toggle("Smooth", options.smooth, (value) => {
      options.smooth = value;
      this.draw();
    }, { title: "Interpolate between pixels" }));
    if (facts.views.some((view) => view.sides[0] === "L")) {
      this.convention = choice("Convention", [["neurological", "Neurological: left is left"], ["radiological", "Radiological: left is right"]], (value) => {
        options.convention = value;
        this.mirror();
        this.draw();
      });
      this.convention.value = options.convention;
      tools.append(this.convention);
    }
    return tools;
  }

  makeLegend() {
    const { facts } = this;
    if (!facts.holdsClasses) return [];
    const items = facts.classLabels.map((label, c) => {
      const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
      swatch.style.background = `rgb(${facts.palette.colours[c].map((share) => Math.round(255 * share)).join(" ")})`;
      return element("li", {}, swatch, c === facts.background ? `${label} (background)` : `${label}`);
    });
    return [element("ul", { class: "legend", "aria-label": "Classes" }, ...items)];
  }

  /** Show in the tools what options say, after they were read from an address. */
  restore() {
    const { options } = this;
    this.parts?.show(options.part);
    this.gridToggle?.show(options.grid);
    if (this.convention) this.convention.value = options.convention;
    if (this.colouring) this.colouring.value = options.surface;
    this.mirror();
  }

  mirror() {
    for (const plane of this.planes) plane.isMirrored = this.options.convention === "radiological";
  }

  /** Show an answer of the worker. */
  show(answer, description) {
    this.answer = answer;
    this.description = description;
    this.draw();
    if (this.surface && answer.surfaces) this.surface.show(answer.surfaces, this.options.surface);
  }

  draw() {
    if (!this.answer) return;
    const paint = painterOf(this.answer.image, this.facts);
    this.planes.forEach((plane, n) => {
      const canvas = this.canvases[n];
      plane.draw(canvas, plane.paint(this.cursor, paint), this.options.smooth);
      if (this.options.grid) plane.drawGrid(canvas, this.answer.displacement, this.cursor);
      if (this.isVolume) plane.drawCursor(canvas, this.cursor);
      plane.drawSides(canvas);
      const sides = plane.sides[0] ? `, left of the picture is ${plane.sides[0]}` : "";
      canvas.setAttribute("aria-label", `${plane.name} of the image with latents ${this.description}${sides}`);
    });
    this.oncursor?.();
  }

  /** Return one canvas with all that is shown, as wide as its parts together. */
  snapshot() {
    const parts = this.surface ? [...this.canvases, this.surface.canvas] : this.canvases;
    if (parts.length === 1) return parts[0];
    const height = Math.max(...parts.map((part) => part.height));
    const width = parts.reduce((sum, part) => sum + part.width, 0);
    const all = element("canvas", { width, height }), context = all.getContext("2d");
    context.fillStyle = "#000000";
    context.fillRect(0, 0, width, height);
    let left = 0;
    this.surface?.draw();
    for (const part of parts) {
      context.drawImage(part, left, (height - part.height) / 2);
      left += part.width;
    }
    return all;
  }
}
