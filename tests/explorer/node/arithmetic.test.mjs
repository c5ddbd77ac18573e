import test from "node:test";
import { logGrowth } from "../../../src/anamorph/explorer/scripts/arithmetic/deformation.js";
import { RealTransform } from "../../../src/anamorph/explorer/scripts/arithmetic/fft.js";
import { Generator } from "../../../src/anamorph/explorer/scripts/arithmetic/generator.js";
import { Grid, Warper, resample } from "../../../src/anamorph/explorer/scripts/arithmetic/interpolation.js";
import { Shooting } from "../../../src/anamorph/explorer/scripts/arithmetic/shooting.js";
import { normalsOf, surfaceOf } from "../../../src/anamorph/explorer/scripts/arithmetic/surface.js";
import { operatorSymbols } from "../../../src/anamorph/explorer/scripts/arithmetic/symbols.js";
import assert from "node:assert/strict";
import { assertNear, casesOf } from "./golden.mjs";

for (const one of casesOf("fft")) {
  test(`transforms of ${one.space}, and back`, () => {
    const transform = new RealTransform(one.space), field = one.floats("field");
    const [re, im] = [0, 1].map(() => new Float32Array(transform.nFrequencies));
    transform.forward(field, 0, re, im);
    assertNear(Float32Array.of(...re, ...im), Float32Array.of(...one.floats("re"), ...one.floats("im")), 1e-6, "spectrum");
    const back = new Float32Array(field.length);
    transform.inverse(re, im, back, 0);
    assertNear(back.map((value) => value / field.length), field, 1e-6, "inverse");
  });
}

for (const one of casesOf("symbol")) {
  test(`symbols of ${one.space}`, () => {
    const { operator, inverse } = operatorSymbols(one.space, one.penalty, one.voxelSize);
    const n = one.space.reduce((a, b) => a * b, 1);
    assertNear(operator.map((value) => value * n), one.floats("operator"), 1e-6, "L");
    assertNear(inverse.map((value) => value * n), one.floats("inverse"), 1e-6, "G");
  });
}

for (const one of casesOf("operator")) {
  test(`L and G on ${one.space}, w0 = ${one.penalty[0]}`, () => {
    const shooting = new Shooting(one.space, one.penalty, one.voxelSize, 8), v = one.floats("v");
    const u = new Float32Array(v.length), back = new Float32Array(v.length);
    shooting.multiply(shooting.symbols.operator, v, u, null);
    assertNear(u, one.floats("u"), 1e-5, "L v");
    shooting.multiply(shooting.symbols.inverse, one.floats("u"), back, shooting.totals(v));
    assertNear(back, one.floats("back"), 1e-4, "G L v");
  });
}

for (const one of casesOf("pull")) {
  test(`pull on ${one.space}`, () => {
    const images = one.floats("images"), out = new Float32Array(images.length);
    new Warper(new Grid(one.space)).pull(images, 2, one.floats("displacement"), out);
    assertNear(out, one.floats("pulled"), 1e-5, "pulled");
  });
}

for (const one of casesOf("shoot")) {
  test(`shooting on ${one.space} in ${one.nSteps} steps, w0 = ${one.penalty[0]}`, () => {
    const { space, penalty, voxelSize, nSteps } = one;
    const found = new Shooting(space, penalty, voxelSize, nSteps).shoot(one.floats("v"));
    assertNear(found, one.floats("displacement"), 1e-4, "displacement");
  });
}

for (const one of casesOf("growth")) {
  test(`growth on ${one.space}`, () => {
    assertNear(logGrowth(one.floats("displacement"), new Grid(one.space)), one.floats("growth"), 1e-3, "growth");
  });
}

for (const one of casesOf("picture")) {
  test(`pictures of ${one.likelihood} on ${one.space}`, () => {
    const split = (name, n) => {
      const all = one.floats(name), size = n ? all.length / n : 0;
      return Array.from({ length: n }, (_, k) => all.subarray(k * size, (k + 1) * size));
    };
    const count = (name) => one.modes.filter((mode) => mode[name] !== null).length;
    const generator = new Generator(one, one.floats("mean"), split("appearance", count("appearance")), split("shape", count("shape")));
    for (const [part, name] of [["both", "both"], ["shape", "onlyShape"], ["appearance", "onlyAppearance"]]) {
      assertNear(generator.picture(one.z, part).image, one.floats(name), 1e-4, part);
    }
  });
}

test("a preview is near the full picture where velocities are smooth", () => {
  const space = [32, 30], n = 960, size = 2 * n;
  const wave = new Float32Array(size), mean = new Float32Array(n);
  for (let x = 0; x < n; x++) {
    wave[x] = 2 * Math.sin((2 * Math.PI * Math.floor(x / 30)) / 32);
    wave[n + x] = Math.cos((2 * Math.PI * (x % 30)) / 30);
    mean[x] = Math.sin((4 * Math.PI * (x % 30)) / 30);
  }
  const facts = { space, voxelSize: [1, 1], likelihood: "gaussian", nChannels: 1, penalty: [0.01, 0.1, 1, 0.1, 0.1], nSteps: 8, modes: [{ appearance: null, shape: 0 }] };
  const generator = new Generator(facts, mean, [], [wave]);
  assertNear(generator.picture([1], "both", "preview").image, generator.picture([1], "both", "full").image, 0.05, "preview");
});

test("resampling keeps fields that are linear, and constants", () => {
  const out = new Float32Array(6 * 4);
  resample(new Float32Array(3 * 8).fill(2), 1, [3, 8], [6, 4], [1.5], out);
  assertNear(out, new Float32Array(24).fill(3), 1e-7, "constant");
});

test("the surface of a ball is closed, round, and turned outwards", () => {
  const n = 24, grid = new Grid([n, n, n]), field = new Float32Array(n ** 3), radius = 8;
  for (let z = 0; z < n; z++) for (let y = 0; y < n; y++) for (let x = 0; x < n; x++) {
    field[(z * n + y) * n + x] = radius - Math.hypot(x - 11.5, y - 11.5, z - 11.5);
  }
  const { vertices, triangles } = surfaceOf(field, 0, grid, 0), normals = normalsOf(vertices, triangles);
  const edges = new Map();
  for (let t = 0; t < triangles.length; t += 3) {
    for (let i = 0; i < 3; i++) {
      const key = [triangles[t + i], triangles[t + ((i + 1) % 3)]].join();
      edges.set(key, (edges.get(key) ?? 0) + 1);
    }
  }
  for (const [key, count] of edges) {
    assert.equal(count, 1);
    assert.equal(edges.get(key.split(",").reverse().join()), 1, "every edge has a triangle on both sides");
  }
  for (let i = 0; i < vertices.length; i += 3) {
    const from = [0, 1, 2].map((j) => vertices[i + j] - 11.5), length = Math.hypot(...from);
    assert.ok(Math.abs(length - radius) < 0.15, `radius ${length}`);
    const along = from.reduce((sum, value, j) => sum + value * normals[i + j], 0) / length;
    assert.ok(along > 0.95, `normal ${along}`);
  }
});
