// Golden cases that pytest has written to the folder GOLDEN, and measures of how near arrays are.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";

const FOLDER = process.env.GOLDEN;

/** Return the cases of a kind, with their arrays; fails if there are none. */
export function casesOf(kind) {
  const all = JSON.parse(fs.readFileSync(path.join(FOLDER, "cases.json"), "utf8"));
  const found = all.filter((one) => one.kind === kind);
  assert.ok(found.length > 0, `no golden cases of ${kind}`);
  return found.map((one) => {
    const arrays = Object.fromEntries(Object.entries(one.arrays).map(([name, file]) => [name, bytesOf(file)]));
    return { ...one, arrays, floats: (name) => new Float32Array(arrays[name].slice().buffer) };
  });
}

export function bytesOf(file) {
  return new Uint8Array(fs.readFileSync(path.join(FOLDER, file)));
}

export function writeOut(file, bytes) {
  fs.writeFileSync(path.join(FOLDER, file), bytes);
}

/** Fail unless all numbers are within a share of the largest one; NaN must be where it is expected. */
export function assertNear(found, expected, tolerance, what) {
  assert.equal(found.length, expected.length, what);
  let largest = 1e-30, worst = 0;
  for (let i = 0; i < expected.length; i++) {
    if (Number.isFinite(expected[i])) largest = Math.max(largest, Math.abs(expected[i]));
  }
  for (let i = 0; i < expected.length; i++) {
    if (Number.isNaN(expected[i])) assert.ok(Number.isNaN(found[i]), `${what}: ${found[i]} in place of NaN`);
    else worst = Math.max(worst, found[i] === expected[i] ? 0 : Math.abs(found[i] - expected[i]) / largest);
  }
  assert.ok(worst <= tolerance, `${what}: error ${worst}, at most ${tolerance} is allowed`);
}
