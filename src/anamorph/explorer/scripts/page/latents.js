// The latents that are shown, in standard deviations, and who wants to know when they change.

const WIDEST = 3; // standard deviations that sliders span at least

export class Latents {
  constructor(facts) {
    this.modes = facts.modes;
    this.drawFactor = facts.drawFactor;
    this.values = new Float64Array(this.modes.length);
    this.isLocked = this.modes.map(() => false);
    this.listeners = [];
    this.observed = observedRanges(facts);
    this.ends = this.observed.map((range) => range ?? [-WIDEST, WIDEST]); // what is likely, or was seen
    this.limits = this.ends.map(([low, high]) => [Math.min(-WIDEST, Math.floor(2 * low) / 2), Math.max(WIDEST, Math.ceil(2 * high) / 2)]);
  }

  get count() {
    return this.values.length;
  }

  /** The latents as the model knows them. */
  get z() {
    return Array.from(this.values, (value, k) => value * this.modes[k].deviation);
  }

  inDeviations(z) {
    return z.map((value, k) => value / this.modes[k].deviation);
  }

  onChange(listener) {
    this.listeners.push(listener);
  }

  set(k, value) {
    this.values[k] = Number.isFinite(value) ? value : 0;
    this.tell();
  }

  /** Set all latents, but for locked ones unless they are meant as well. */
  setAll(values, { evenLocked = false } = {}) {
    values.forEach((value, k) => {
      if (evenLocked || !this.isLocked[k]) this.values[k] = Number.isFinite(value) ? value : 0;
    });
    this.tell();
  }

  reset() {
    this.setAll(Array(this.count).fill(0));
  }

  opposite() {
    this.setAll(Array.from(this.values, (value) => -value));
  }

  /** Draw z ~ N(0, A^-1). */
  draw() {
    const noise = this.modes.map(() => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random()));
    const z = this.drawFactor.map((row) => row.reduce((sum, factor, j) => sum + factor * noise[j], 0));
    this.setAll(this.inDeviations(z));
  }

  /** Return in words what lies beyond what was observed; an empty text if nothing does. */
  hint() {
    const beyond = [];
    this.values.forEach((value, k) => {
      const [low, high] = this.ends[k];
      if (value < low - 1e-9 || value > high + 1e-9) beyond.push(`z${this.modes[k].latent}`);
    });
    if (!beyond.length) return "";
    const names = beyond.length > 4 ? `${beyond.length} latents` : beyond.join(", ");
    const what = this.observed[0] ? "beyond every image observed" : "beyond 3 standard deviations";
    return `${names} ${beyond.length > 1 ? "are" : "is"} ${what}: the picture is an extrapolation`;
  }

  tell() {
    for (const listener of this.listeners) listener();
  }
}

function observedRanges({ modes, people }) {
  if (!people || !people.latents.length) return modes.map(() => null);
  return modes.map((mode, k) => {
    const values = people.latents.map((row) => row[k] / mode.deviation);
    return [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
  });
}
