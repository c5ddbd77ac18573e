// Sliders of all latents: typed values, locks, play, and what the ends of a mode look like.
import { button, element, shortNumber, toggle } from "./elements.js";

const THUMBNAIL = 56;

export class Sliders {
  constructor(facts, latents, animation) {
    this.latents = latents;
    this.facts = facts;
    this.animation = animation;
    this.rows = facts.modes.map((mode, k) => this.makeRow(mode, k));
    const actions = element("div", { class: "tools", role: "group", "aria-label": "All latents" },
      button("Reset", () => this.stopAnd(() => latents.reset()), { title: "Back to the mean image (0)" }),
      button("Random", () => this.stopAnd(() => latents.draw()), { title: "Draw an image from the model (R)" }),
      button("Opposite", () => this.stopAnd(() => latents.opposite()), { title: "Change the sign of every latent (O)" }),
      this.tour = toggle("Tour", false, (value) => this.play(value ? "tour" : null), { title: "Play every mode in turn (P)" }));
    this.element = element("section", { class: "controls", "aria-label": "Latents" }, actions,
      element("div", { class: "rows" }, ...this.rows.map((row) => row.element)));
    latents.onChange(() => this.show());
    this.show();
  }

  stopAnd(act) {
    this.play(null);
    act();
  }

  /** Play a mode by its number, "tour", or nothing. */
  play(what) {
    if (what === null) this.animation.stop();
    else this.animation.start(what, () => this.showPlayed(null));
    this.showPlayed(what);
  }

  showPlayed(what) {
    this.tour.show(what === "tour");
    this.rows.forEach((row, k) => row.play.show(what === k));
  }

  makeRow(mode, k) {
    const { latents } = this, [low, high] = latents.limits[k], name = this.nameOf(mode);
    const range = element("input", { type: "range", min: low, max: high, step: 0.01, value: 0, "aria-label": `${name}, in standard deviations` });
    range.addEventListener("input", () => this.stopAnd(() => latents.set(k, Number(range.value))));
    range.addEventListener("pointerdown", () => this.play(null));
    range.addEventListener("dblclick", () => latents.set(k, 0));
    const observed = latents.observed[k];
    const share = (value) => `${(100 * (value - low)) / (high - low)}%`;
    range.style.setProperty("--from", share(latents.ends[k][0]));
    range.style.setProperty("--to", share(latents.ends[k][1]));
    if (observed) range.title = `Observed from ${shortNumber(observed[0])} to ${shortNumber(observed[1])}`;
    const number = element("input", { type: "number", step: 0.1, value: 0, "aria-label": `${name}, typed`, inputmode: "decimal" });
    number.addEventListener("change", () => this.stopAnd(() => latents.set(k, Number(number.value))));
    number.addEventListener("blur", () => (number.value = Number(latents.values[k].toFixed(2))));
    const lock = toggle("Lock", false, (value) => (latents.isLocked[k] = value), { class: "small", title: "Keep this latent when others change", "aria-label": `Lock ${name}` });
    const play = toggle("Play", false, (value) => this.play(value ? k : null), { class: "small", "aria-label": `Play ${name}` });
    const ends = latents.ends[k].map((value) => this.makeEnd(k, name, value));
    const made = element("div", { class: "row" },
      element("span", { class: "name" }, name), element("span", { class: "buttons" }, play, lock), number,
      ends[0].button, range, ends[1].button);
    return { element: made, range, number, lock, play, ends };
  }

  /** Return a small picture of the end of a mode, which leads there when it is pressed. */
  makeEnd(k, name, value) {
    const canvas = element("canvas", { width: THUMBNAIL, height: THUMBNAIL, "aria-hidden": "true" });
    const label = `${name} to ${shortNumber(value)} standard deviations`;
    const made = button("", () => this.stopAnd(() => this.latents.set(k, value)), { class: "end", "aria-label": label, title: label });
    made.append(canvas);
    return { button: made, canvas, value };
  }

  nameOf({ latent, appearance, shape }) {
    const name = `z${latent}`;
    const isSeparate = this.facts.modes.some((mode) => mode.appearance === null) && this.facts.modes.some((mode) => mode.shape === null);
    if (!isSeparate) return name;
    return `${name} ${shape === null ? "appearance" : appearance === null ? "shape" : ""}`.trim();
  }

  show() {
    this.rows.forEach(({ element: made, range, number }, k) => {
      const value = this.latents.values[k], [low, high] = this.latents.ends[k];
      range.value = value;
      range.setAttribute("aria-valuetext", `${shortNumber(value)} standard deviations`);
      if (document.activeElement !== number) number.value = Number(value.toFixed(2));
      made.classList.toggle("beyond", value < low - 1e-9 || value > high + 1e-9);
      made.classList.toggle("moved", value !== 0);
    });
  }

  /** Draw the ends of modes one by one, whenever nothing else is to be computed. */
  async drawEnds(picture, plane, cursor, painter) {
    for (let k = 0; k < this.rows.length; k++) {
      for (const { canvas, value } of this.rows[k].ends) {
        const z = this.facts.modes.map((mode, j) => (j === k ? value * mode.deviation : 0));
        const { image } = await picture(z);
        const scale = THUMBNAIL / Math.max(plane.width, plane.height);
        const [width, height] = [plane.width * scale, plane.height * scale];
        const context = canvas.getContext("2d");
        context.imageSmoothingQuality = "high";
        context.drawImage(plane.paint(cursor, painter(image)), (THUMBNAIL - width) / 2, (THUMBNAIL - height) / 2, width, height);
      }
    }
  }
}
