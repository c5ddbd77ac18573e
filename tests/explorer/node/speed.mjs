// How much processor time pictures take, in milliseconds: a model of 16 modes on the grid SPACE.
import { Generator } from "../../../src/anamorph/explorer/scripts/arithmetic/generator.js";

const space = process.env.SPACE.split(",").map(Number), nChannels = Number(process.env.CHANNELS);
const likelihood = process.env.LIKELIHOOD, K = 16;
const n = space.reduce((a, b) => a * b, 1), d = space.length;
const wave = (size, k, height) => Float32Array.from({ length: size }, (_, i) => height * Math.sin((i % n) * 0.001 * (k + 1) + i / n));
const facts = {
  space, voxelSize: space.map(() => 1), likelihood, nChannels, nSteps: 8,
  penalty: [0.001, 0.01, 1, 0.1, 0.1],
  modes: Array.from({ length: K }, (_, k) => ({ appearance: k, shape: k })),
};
const basis = (size, height) => facts.modes.map((_, k) => wave(size, k, height));
const generator = new Generator(facts, wave(nChannels * n, 3, 1), basis(nChannels * n, 0.2), basis(d * n, 0.3));
const z = facts.modes.map((_, k) => Math.cos(k));

const best = {};
for (const resolution of ["preview", "full"]) {
  best[resolution] = Infinity;
  for (let trial = 0; trial < 6; trial++) {
    const before = process.cpuUsage();
    generator.picture(z, "both", resolution);
    const { user, system } = process.cpuUsage(before);
    best[resolution] = Math.min(best[resolution], (user + system) / 1000);
  }
}
console.log(JSON.stringify(best));
