// What is shown as files: PNG, GIF, NIfTI, latents as JSON, and an address that restores the view.
import { gifBytes } from "../files/gif.js";
import { gzipped, niftiBytes } from "../files/nifti.js";
import { swing } from "./animation.js";
import { button, element } from "./elements.js";
import { writeFragment } from "./fragment.js";

const FRAMES = 32;
const HUNDREDTHS = 6; // of a second that a frame lasts
const WIDEST_FRAME = 480;

export class Exports {
  constructor(facts, latents, stage, picture, comparison, say) {
    Object.assign(this, { facts, latents, stage, picture, comparison, say });
    const buttons = [
      button("PNG", () => this.png(), { title: "The picture as it is shown" }),
      button("GIF", () => this.gif(), { title: "Animation of the walk from A to B, or of the latents shown, there and back" }),
      button("NIfTI", () => this.nifti(), { title: "The image as numbers" }),
      button("Latents", () => this.json(), { title: "The latents as JSON" }),
      button("Copy link", () => this.link(), { title: "An address of this page that restores the view" }),
    ];
    this.element = element("div", { class: "tools exports", role: "group", "aria-label": "Save" }, ...buttons);
  }

  async png() {
    const blob = await new Promise((resolve) => this.stage.snapshot().toBlob(resolve, "image/png"));
    save(blob, "anamorph.png");
  }

  async nifti() {
    const { image } = await this.picture(this.latents.z, this.stage.options.part, "full");
    save(new Blob([await gzipped(niftiBytes(image, this.facts))]), "anamorph.nii.gz");
  }

  json() {
    const { modes, values } = this.latents;
    const latents = Object.fromEntries(modes.map((mode, k) => [`z${mode.latent}`, values[k] * mode.deviation]));
    save(new Blob([JSON.stringify({ title: this.facts.title, part: this.stage.options.part, latents }, null, 2)], { type: "application/json" }), "anamorph-latents.json");
  }

  link() {
    const address = location.href.replace(/#.*$/, "") + writeFragment(this.latents, this.stage.options, this.stage.cursor);
    const told = () => this.say("The address of this view was copied.");
    navigator.clipboard?.writeText(address).then(told, () => this.say(address)) ?? this.say(address);
  }

  /** Return the latents of frame n: the walk from A to B, else from the opposite to what is shown. */
  frameLatents(shown, n) {
    const share = n / FRAMES, { A, B } = this.comparison.marks;
    if (A !== undefined && B !== undefined) {
      const [a, b] = [A, B].map((row) => this.comparison.latentsOf(row));
      const t = 0.5 - 0.5 * Math.cos(2 * Math.PI * share);
      return a.map((value, k) => value + t * (b[k] - value));
    }
    if (shown.some((value) => value)) return shown.map((value) => value * Math.sin(2 * Math.PI * share));
    return shown.map((_, k) => (k ? 0 : swing(share, ...this.latents.ends[0])));
  }

  async gif() {
    if (this.isRecording) return;
    this.isRecording = true;
    try {
      await this.record();
    } finally {
      this.isRecording = false;
    }
  }

  async record() {
    this.onrecord?.();
    const { latents, stage } = this, shown = Array.from(latents.values), frames = [];
    const source = stage.snapshot(), scale = Math.min(1, WIDEST_FRAME / source.width);
    const [width, height] = [Math.round(source.width * scale), Math.round(source.height * scale)];
    const small = new OffscreenCanvas(width, height), context = small.getContext("2d", { willReadFrequently: true });
    for (let n = 0; n < FRAMES; n++) {
      latents.setAll(this.frameLatents(shown, n), { evenLocked: true });
      this.say(`Frame ${n + 1} of ${FRAMES}`); // after the hint of the latents, which it replaces
      await this.shown();
      context.drawImage(stage.snapshot(), 0, 0, width, height);
      frames.push(context.getImageData(0, 0, width, height).data);
    }
    latents.setAll(shown, { evenLocked: true });
    save(new Blob([gifBytes(frames, width, height, HUNDREDTHS)], { type: "image/gif" }), "anamorph.gif");
    this.say("");
  }
}

function save(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = element("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
