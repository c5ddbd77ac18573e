// The page: reads what it holds, starts the worker, and joins latents, picture, map and files.
import { Animation } from "./page/animation.js";
import { Comparison } from "./page/compare.js";
import { element, segmented } from "./page/elements.js";
import { Engine } from "./page/engine.js";
import { Exports } from "./page/exporting.js";
import { readFragment, writeFragment } from "./page/fragment.js";
import { Latents } from "./page/latents.js";
import { ImageMap } from "./page/map.js";
import { painterOf, painterOfObserved } from "./page/planes.js";
import { Sliders } from "./page/sliders.js";
import { Stage } from "./page/stage.js";

const REST = 160; // milliseconds after which latents are at rest, and a volume is computed in full

/** Keeps the picture up with the latents: one question at a time, always about the newest. */
class Follower {
  constructor(engine, latents, stage, say) {
    Object.assign(this, { engine, latents, stage, say });
    this.isBusy = false;
    this.isStale = false;
    this.timer = null;
    this.milliseconds = {};
    this.waiting = [];
  }

  /** Show the latents as they are now. */
  async follow(resolution = this.stage.isVolume ? "preview" : "full") {
    clearTimeout(this.timer);
    if (this.isBusy) {
      this.isStale = true;
      return;
    }
    this.isBusy = true;
    const { options } = this.stage;
    try {
      const answer = await this.engine.ask("picture", {
        z: this.latents.z, part: options.part, resolution,
        wantsDisplacement: options.grid, surface: this.stage.hasSurface ? options.surface : null,
      });
      this.stage.show(answer, describe(this.latents));
      this.milliseconds[resolution] = answer.milliseconds;
      if (answer.image.every(Number.isNaN)) this.say("No picture: latents this large give no image");
    } catch (error) {
      this.say(`No picture: ${error.message}`);
    }
    this.isBusy = false;
    if (this.isStale) {
      this.isStale = false;
      this.follow();
    } else if (resolution === "full") {
      for (const resolve of this.waiting.splice(0)) resolve();
    } else this.timer = setTimeout(() => this.follow("full"), REST);
  }

  /** Wait until the picture is that of the latents, in full. */
  settled() {
    return new Promise((resolve) => {
      this.waiting.push(resolve);
      this.follow();
    });
  }
}

function describe(latents) {
  const moved = latents.modes.map((mode, k) => [mode.latent, latents.values[k]]).filter(([, value]) => value);
  return moved.length ? moved.map(([name, value]) => `z${name} ${value.toFixed(1)}`).join(", ") : "all zero: the mean";
}

function makeHeader(facts, exports) {
  const unit = facts.space.length === 2 ? "pixels" : "voxels";
  const summary = `${facts.modes.length} modes of ${facts.likelihood} images of ${facts.space.join(" \u00d7 ")} ${unit}, learnt from ${facts.nImages} images`;
  return element("header", {}, element("div", {}, element("h1", {}, facts.title), element("p", {}, summary)), exports.element);
}

/** What people should know of the page: whose data it holds, and what it leaves out. */
function makeNotices(facts) {
  const notices = [], { people } = facts, nDropped = facts.nLatents - facts.modes.length;
  if (people) {
    const held = ["names", "latents", people.columns.length && "covariates", people.nPictures && "images"].filter(Boolean);
    notices.push(element("p", { class: "notice personal", role: "note" },
      element("strong", {}, "This page holds data of individuals: "),
      `${held.slice(0, -1).join(", ")} and ${held[held.length - 1]} of ${people.names.length} people or objects. Share it only as you may share those data.`));
    if (facts.hasPoses && people.nPictures) {
      notices.push(element("p", { class: "notice" }, "Observed images are in their own pose, and reconstructions in that of the template: a residual shows the difference of poses too."));
    }
    if (people.givesPictures && people.nPictures < people.names.length) {
      notices.push(element("p", { class: "notice" }, `${people.names.length - people.nPictures} images did not fit into the page: they are on the map without their pictures.`));
    }
  }
  if (nDropped) notices.push(element("p", { class: "notice" }, `${nDropped} of ${facts.nLatents} modes did not fit into the page, and are left out.`));
  return notices;
}

/** Sliders and map, of which narrow windows show one at a time, so that the picture stays in sight. */
function makePanel(facts, sliders, side) {
  const panel = element("div", { class: "panel" });
  const show = (name) => (panel.dataset.shown = name);
  const tabs = segmented("What moves the latents", [["sliders", "Sliders"], ["map", facts.people ? "Map of images" : "Map"]], "sliders", show);
  tabs.classList.add("tabs");
  show("sliders");
  panel.append(tabs, sliders, side);
  return panel;
}

function makeFooter(facts) {
  const error = facts.storedError < 1e-4 ? "less than 0.01 %" : `${(100 * facts.storedError).toPrecision(2)} %`;
  return element("footer", {}, element("p", {},
    `Every picture is computed in this page, by the formulas of the model; nothing is sent anywhere. Modes are rounded to 14 bits: random images differ from those of the model file by ${error} of their range at most. Written by anamorph ${facts.version}.`));
}

async function start() {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const app = document.getElementById("app");
  const options = { part: "both", grid: false, smooth: true, convention: "neurological", surface: "class", cursor: null };
  const latents = new Latents(facts);
  readFragment(location.hash, latents, options, facts.space);
  const engine = new Engine(document.getElementById("worker").textContent);
  const data = document.getElementById("data");
  const loaded = engine.ask("load", { facts: { ...facts, people: null }, text: data.textContent });
  data.remove();

  const stage = new Stage(facts, options, () => follower.follow());
  const say = (text) => (stage.status.textContent = text);
  const follower = new Follower(engine, latents, stage, say);
  const picture = (z, part = "both", resolution = "full", more = {}) => engine.ask("picture", { z, part, resolution, ...more });
  const animation = new Animation(latents);
  const sliders = new Sliders(facts, latents, animation);
  const map = new ImageMap(facts, latents, {
    onselect: (row) => comparison.select(row),
    onhover: (row, canvas) => drawThumbnail(engine, facts, stage, row, canvas),
    onpress: () => animation.stop(),
    onmean: (z) => latents.setAll(latents.inDeviations(z), { evenLocked: true }),
  });
  const comparison = new Comparison(facts, latents, stage, engine, animation, map);
  const exports = new Exports(facts, latents, stage, picture, comparison, say);
  exports.shown = () => follower.settled();
  exports.onrecord = () => animation.stop();
  stage.oncursor = () => {
    comparison.draw();
    remember();
  };
  app.append(makeHeader(facts, exports), ...makeNotices(facts),
    element("main", {}, stage.element, makePanel(facts, sliders.element, element("div", { class: "side" }, map.element, comparison.element))), makeFooter(facts));

  let pending = null;
  const remember = () => {
    clearTimeout(pending);
    pending = setTimeout(() => {
      try {
        history.replaceState(null, "", writeFragment(latents, options, stage.cursor));
      } catch {
        // A frame of a notebook has no address to change.
      }
    }, 400);
  };
  latents.onChange(() => {
    say(latents.hint());
    follower.follow();
    remember();
  });
  addEventListener("hashchange", (event) => {
    animation.stop();
    latents.setAll(Array(latents.count).fill(0), { evenLocked: true });
    readFragment(new URL(event.newURL).hash, latents, options, facts.space);
    if (options.cursor) stage.cursor = options.cursor;
    stage.restore();
    follower.follow();
  });
  addEventListener("keydown", (event) => {
    if (event.target.closest("input:not([type=range]), select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = { r: () => latents.draw(), 0: () => latents.reset(), o: () => latents.opposite() }[event.key.toLowerCase()];
    if (act) sliders.stopAnd(act);
    else if (event.key.toLowerCase() === "p") sliders.play(animation.isPlaying ? null : "tour");
  });

  say("Loading the model\u2026");
  await loaded;
  say(latents.hint());
  await follower.settled();
  const whenIdle = async (z) => {
    while (!engine.isIdle || animation.isPlaying) await new Promise((resolve) => setTimeout(resolve, 60));
    return picture(z, "both", stage.isVolume ? "preview" : "full");
  };
  const ends = sliders.drawEnds(whenIdle, stage.planes[stage.planes.length - 1], facts.start, (image) => painterOf(image, facts));
  return { facts, latents, stage, follower, engine, picture, exports, sliders, map, comparison, ends };
}

async function drawThumbnail(engine, facts, stage, row, canvas) {
  const { image } = await engine.ask("observed", { n: row });
  const plane = stage.planes[stage.planes.length - 1], context = canvas.getContext("2d");
  const scale = canvas.width / Math.max(plane.width, plane.height);
  const [width, height] = [plane.width * scale, plane.height * scale];
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.drawImage(plane.paint(stage.cursor, painterOfObserved(image, facts)), (canvas.width - width) / 2, (canvas.height - height) / 2, width, height);
}

// What programs may ask of the page, in the console or in tests: `await explorer`.
globalThis.explorer = start();
globalThis.explorer.catch((error) => {
  const text = `The explorer cannot start: ${error.message}. It needs a browser of 2023 or later.`;
  document.getElementById("app").prepend(element("p", { class: "notice personal", role: "alert" }, text));
});
