// An observed image beside its reconstruction and what is left; walks and sums between images.
import { button, element, toggle } from "./elements.js";
import { painterOf, painterOfObserved, painterOfResidual } from "./planes.js";

const FIGURE_HEIGHT = 240;
const MARKS = ["A", "B", "C"];

export class Comparison {
  constructor(facts, latents, stage, engine, animation, map) {
    Object.assign(this, { facts, latents, stage, engine, animation, map });
    this.selected = null;
    this.marks = {};
    this.canvases = ["Observed", "Reconstruction", "Residual"].map((name) => ({ name, canvas: element("canvas", { role: "img" }) }));
    this.figures = element("div", { class: stage.isVolume ? "figures wide" : "figures" }, ...this.canvases.map(({ name, canvas }) => element("figure", {}, canvas, element("figcaption", {}, name))));
    this.title = element("h2", {}, "No image chosen");
    this.letters = Object.fromEntries(MARKS.map((letter) => [letter, element("span", { class: "chosen" }, "none")]));
    const setters = MARKS.map((letter) => element("div", {}, button(`Set ${letter}`, () => this.mark(letter)), " ", this.letters[letter]));
    this.range = element("input", { type: "range", min: 0, max: 1, step: 0.01, value: 0, "aria-label": "From A to B", disabled: true });
    this.range.addEventListener("input", () => {
      this.stop();
      this.walk(Number(this.range.value));
    });
    this.play = toggle("Walk", false, (value) => this.playWalk(value), { disabled: true });
    this.sum = button("A \u2212 B + C", () => this.add(), { disabled: true, title: "Show the image with latents A \u2212 B + C" });
    this.element = element("section", { class: "compare", "aria-label": "Chosen image" }, this.title, this.figures,
      element("div", { class: "letters" }, ...setters),
      element("div", { class: "tools" }, this.play, element("label", { class: "walk" }, "A ", this.range, " B"), this.sum));
    this.figures.hidden = true;
    this.element.hidden = !facts.people;
  }

  latentsOf(row) {
    return this.latents.inDeviations(this.facts.people.latents[row]);
  }

  async select(row) {
    this.selected = row;
    this.title.textContent = this.facts.people.names[row];
    this.map.mark("selected", row);
    this.map.names.value = row;
    this.stop();
    this.latents.setAll(this.latentsOf(row), { evenLocked: true });
    this.figures.hidden = row >= this.facts.people.nPictures;
    if (this.figures.hidden) return;
    const [{ image: observed }, { image: expected }] = await Promise.all([
      this.engine.ask("observed", { n: row }),
      this.engine.ask("picture", { z: this.facts.people.latents[row], part: "both", resolution: "full" }),
    ]);
    if (this.selected !== row) return;
    this.painters = [painterOfObserved(observed, this.facts), painterOf(expected, this.facts), painterOfResidual(observed, expected, this.facts)];
    this.draw();
  }

  draw() {
    if (!this.painters || this.figures.hidden) return;
    const { planes, cursor, options } = this.stage;
    const tallest = Math.max(...planes.map((plane) => plane.height)), scale = FIGURE_HEIGHT / tallest;
    this.canvases.forEach(({ name, canvas }, n) => {
      canvas.width = Math.round(planes.reduce((sum, plane) => sum + plane.width, 0) * scale);
      canvas.height = FIGURE_HEIGHT;
      canvas.setAttribute("aria-label", `${name} of ${this.title.textContent}`);
      const context = canvas.getContext("2d");
      context.imageSmoothingEnabled = options.smooth;
      let left = 0;
      for (const plane of planes) {
        const [width, height] = [plane.width * scale, plane.height * scale];
        context.drawImage(plane.paint(cursor, this.painters[n]), left, (FIGURE_HEIGHT - height) / 2, width, height);
        left += width;
      }
    });
  }

  mark(letter) {
    if (this.selected === null) return;
    this.marks[letter] = this.selected;
    this.letters[letter].textContent = this.facts.people.names[this.selected];
    this.map.mark(letter, this.selected);
    const has = (...letters) => letters.every((one) => this.marks[one] !== undefined);
    this.range.disabled = this.play.disabled = !has("A", "B");
    this.sum.disabled = !has("A", "B", "C");
  }

  walk(share) {
    const [a, b] = ["A", "B"].map((letter) => this.latentsOf(this.marks[letter]));
    this.range.value = share;
    this.latents.setAll(a.map((value, k) => value + share * (b[k] - value)), { evenLocked: true });
  }

  playWalk(isOn) {
    if (isOn) this.animation.start((share) => this.walk(share), () => this.play.show(false));
    else this.animation.stop();
  }

  stop() {
    this.animation.stop();
    this.play.show(false);
  }

  add() {
    this.stop();
    const [a, b, c] = MARKS.map((letter) => this.latentsOf(this.marks[letter]));
    this.latents.setAll(a.map((value, k) => value - b[k] + c[k]), { evenLocked: true });
  }
}
