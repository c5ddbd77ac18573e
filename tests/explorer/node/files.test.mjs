import assert from "node:assert/strict";
import test from "node:test";
import { gifBytes } from "../../../src/anamorph/explorer/scripts/files/gif.js";
import { gzipped, niftiBytes } from "../../../src/anamorph/explorer/scripts/files/nifti.js";
import { bytesOfBase64, bytesOfDifferences, fieldsOfDifferences, floatsOfPlanes, inflated } from "../../../src/anamorph/explorer/scripts/files/unpack.js";
import { readFragment, writeFragment } from "../../../src/anamorph/explorer/scripts/page/fragment.js";
import { Latents } from "../../../src/anamorph/explorer/scripts/page/latents.js";
import { isInside } from "../../../src/anamorph/explorer/scripts/page/map.js";
import { assertNear, casesOf, writeOut } from "./golden.mjs";

test("numbers are unpacked as they were packed", async () => {
  for (const one of casesOf("integers")) {
    const found = fieldsOfDifferences(await inflated(one.arrays.packed), one.units, one.space);
    assertNear(found, one.floats("fields"), 1e-7, "fields");
  }
  for (const one of casesOf("floats")) assert.deepEqual(floatsOfPlanes(await inflated(one.arrays.packed)), one.floats("fields"));
  for (const one of casesOf("bytes")) assert.deepEqual(bytesOfDifferences(await inflated(one.arrays.packed), one.length), one.arrays.image);
});

test("base64", () => {
  const bytes = Uint8Array.from({ length: 256 }, (_, i) => i);
  assert.deepEqual(bytesOfBase64(Buffer.from(bytes).toString("base64")), bytes);
});

// pytest reads these files with other programs.
test("files for other programs", async () => {
  const image = Float32Array.from({ length: 2 * 3 * 4 * 5 }, (_, i) => i);
  const facts = { space: [3, 4, 5], voxelSize: [1, 2, 3], nChannels: 2, affine: [[0, 2, 0, -5], [-1, 0, 0, 7], [0, 0, 3, 2], [0, 0, 0, 1]] };
  writeOut("volume.nii.gz", await gzipped(niftiBytes(image, facts)));
  writeOut("labels.nii", niftiBytes(image.map((value, i) => (i % 7) - (i >= 60 ? 3 : 0)), { ...facts, affine: null, holdsClasses: true, classLabels: [0, 500] }));
  writeOut("picture.nii", niftiBytes(image.slice(0, 12), { space: [3, 4], voxelSize: [1, 1], nChannels: 1, affine: null }));
  const frames = [0, 1, 2].map((n) => {
    const frame = new Uint8ClampedArray(4 * 60 * 40);
    for (let i = 0; i < 60 * 40; i++) frame.set([(i % 60) * 4, Math.floor(i / 60) * 6, 80 * n, 255], 4 * i);
    return frame;
  });
  writeOut("animation.gif", gifBytes(frames, 60, 40, 7));
});

const FACTS = {
  modes: [1, 2, 4].map((latent) => ({ latent, deviation: 0.5 })),
  drawFactor: [[0.5, 0, 0], [0, 0.5, 0], [0, 0, 0.5]],
  people: { latents: [[-1, 0, 0.5], [2.2, 0.1, 0]] },
};

test("a fragment restores latents and options", () => {
  const latents = new Latents(FACTS), options = { part: "shape", grid: true, convention: "radiological", surface: "growth" };
  latents.setAll([1.25, 0, -2]);
  const fragment = writeFragment(latents, options, [3, 4, 5]);
  const other = new Latents(FACTS), found = { part: "both", grid: false, convention: "neurological", surface: "class", cursor: null };
  readFragment(fragment, other, found, [6, 6, 6]);
  assert.deepEqual(other.values, latents.values);
  assert.deepEqual(found, { ...options, cursor: [3, 4, 5] });
});

test("a fragment that makes no sense changes nothing", () => {
  const latents = new Latents(FACTS), options = { part: "both", grid: false, convention: "neurological", surface: "class", cursor: null };
  readFragment("#z=9:1,1:x,<b>&part=evil&at=1,99,2&surface=constructor", latents, options, [6, 6, 6]);
  assert.deepEqual(Array.from(latents.values), [0, 0, 0]);
  assert.deepEqual(options, { part: "both", grid: false, convention: "neurological", surface: "class", cursor: null });
});

test("sliders span what was observed, and a hint tells what lies beyond", () => {
  const latents = new Latents(FACTS);
  assert.deepEqual(latents.limits, [[-3, 4.5], [-3, 3], [-3, 3]]);
  assert.equal(latents.hint(), "");
  latents.set(1, 0.5);
  assert.match(latents.hint(), /^z2 is beyond every image observed/);
  latents.isLocked[1] = true;
  latents.opposite();
  latents.reset();
  assert.deepEqual(Array.from(latents.values), [0, 0.5, 0]);
});

test("random latents have the covariance of the model", () => {
  const latents = new Latents({ ...FACTS, drawFactor: [[0.5, 0, 0], [0.3, 0.4, 0], [0, 0, 0.5]] });
  let products = 0, squares = 0;
  for (let n = 0; n < 20000; n++) {
    latents.draw();
    products += latents.values[0] * latents.values[1];
    squares += latents.values[1] ** 2;
  }
  assert.ok(Math.abs(products / 20000 - 0.6) < 0.05);
  assert.ok(Math.abs(squares / 20000 - 1) < 0.05);
});

test("points inside a lasso", () => {
  const path = [[0, 0], [10, 0], [10, 10], [5, 2], [0, 10]];
  assert.ok(isInside([2, 3], path));
  assert.ok(!isInside([5, 8], path));
  assert.ok(!isInside([11, 1], path));
});
