// Fourier transforms of real fields on grids of any size, float32 in memory.
//
// Lines are transformed many at a time: `LinePlan` works on arrays [length][batch], in which the
// numbers of neighbouring lines are side by side, so that all its inner loops are long. It is the
// self-sorting algorithm of Stockham with radices 4, 2, 3, 5 and other small primes, and that of
// Bluestein for lengths with a large prime factor. Nothing is scaled: forward, then inverse,
// multiplies by the number of voxels.

const LARGEST_RADIX = 97; // beyond it, a convolution is faster
const MOST_LINES = 32; // at a time, which a processor's cache holds
const SMALL_RADICES = [4, 2, 3, 5];

/** Return the radices of a length: 4, 2, 3, 5, then other primes. */
export function radicesOf(length) {
  const radices = [];
  let rest = length;
  for (let radix of SMALL_RADICES) {
    while (rest % radix === 0) {
      radices.push(radix);
      rest /= radix;
    }
  }
  for (let radix = 7; rest > 1; radix += 2) {
    while (rest % radix === 0) {
      radices.push(radix);
      rest /= radix;
    }
  }
  return radices;
}

/** Return a plan for complex lines of a length. */
export function planLines(length) {
  const radices = radicesOf(length);
  return Math.max(1, ...radices) > LARGEST_RADIX ? new ChirpPlan(length) : new LinePlan(length, radices);
}

/** Complex numbers of many lines, [length][batch], and room for as many. */
export class Lines {
  constructor(size) {
    this.re = new Float32Array(size);
    this.im = new Float32Array(size);
    this.spareRe = new Float32Array(size);
    this.spareIm = new Float32Array(size);
  }

  swapSpare() {
    [this.re, this.spareRe] = [this.spareRe, this.re];
    [this.im, this.spareIm] = [this.spareIm, this.im];
  }

  /** Swap real and imaginary parts: a forward transform between two swaps is an inverse one. */
  swapParts() {
    [this.re, this.im] = [this.im, this.re];
    [this.spareRe, this.spareIm] = [this.spareIm, this.spareRe];
  }
}

/** The transform of lines whose length has small prime factors only. */
export class LinePlan {
  constructor(length, radices = radicesOf(length)) {
    this.length = length;
    this.workLength = length;
    let left = length;
    this.stages = radices.map((radix) => {
      const stage = new Stage(radix, left);
      left /= radix;
      return stage;
    });
  }

  /** Transform lines [length][batch] in place; `Lines` may be longer. */
  forward(lines, batch) {
    let stride = batch;
    for (const stage of this.stages) {
      stage.run(lines.re, lines.im, lines.spareRe, lines.spareIm, stride);
      lines.swapSpare();
      stride *= stage.radix;
    }
  }
}

/** One stage: y[k of p] = w^(pk) sum_j x[p + m j] r^(jk), with w and r roots of unity. */
class Stage {
  constructor(radix, length) {
    this.radix = radix;
    this.groups = length / radix; // m
    const n = this.groups * (radix - 1);
    this.cos = new Float64Array(n);
    this.sin = new Float64Array(n);
    for (let p = 0, t = 0; p < this.groups; p++) {
      for (let k = 1; k < radix; k++, t++) {
        const angle = (-2 * Math.PI * ((p * k) % length)) / length;
        this.cos[t] = Math.cos(angle);
        this.sin[t] = Math.sin(angle);
      }
    }
    this.run = { 2: this.run2, 3: this.run3, 4: this.run4, 5: this.run5 }[radix] ?? this.runAny;
    if (this.run === this.runAny) this.roots = rootsOfUnity(radix);
  }

  run2(xr, xi, yr, yi, s) {
    const m = this.groups;
    for (let p = 0; p < m; p++) {
      const c = this.cos[p], d = this.sin[p];
      let a = s * p, b = a + s * m, y = 2 * s * p;
      for (let q = 0; q < s; q++, a++, b++, y++) {
        const re = xr[a] - xr[b], im = xi[a] - xi[b];
        yr[y] = xr[a] + xr[b];
        yi[y] = xi[a] + xi[b];
        yr[y + s] = re * c - im * d;
        yi[y + s] = re * d + im * c;
      }
    }
  }

  run3(xr, xi, yr, yi, s) {
    const m = this.groups, half = Math.sqrt(3) / 2;
    for (let p = 0; p < m; p++) {
      const c1 = this.cos[2 * p], d1 = this.sin[2 * p];
      const c2 = this.cos[2 * p + 1], d2 = this.sin[2 * p + 1];
      let a = s * p, y = 3 * s * p;
      for (let q = 0; q < s; q++, a++, y++) {
        const b = a + s * m, c = b + s * m;
        const sumRe = xr[b] + xr[c], sumIm = xi[b] + xi[c];
        const turnedRe = half * (xi[b] - xi[c]), turnedIm = half * (xr[c] - xr[b]);
        const midRe = xr[a] - 0.5 * sumRe, midIm = xi[a] - 0.5 * sumIm;
        yr[y] = xr[a] + sumRe;
        yi[y] = xi[a] + sumIm;
        const re1 = midRe + turnedRe, im1 = midIm + turnedIm;
        yr[y + s] = re1 * c1 - im1 * d1;
        yi[y + s] = re1 * d1 + im1 * c1;
        const re2 = midRe - turnedRe, im2 = midIm - turnedIm;
        yr[y + 2 * s] = re2 * c2 - im2 * d2;
        yi[y + 2 * s] = re2 * d2 + im2 * c2;
      }
    }
  }

  run4(xr, xi, yr, yi, s) {
    const m = this.groups;
    for (let p = 0; p < m; p++) {
      const c1 = this.cos[3 * p], d1 = this.sin[3 * p];
      const c2 = this.cos[3 * p + 1], d2 = this.sin[3 * p + 1];
      const c3 = this.cos[3 * p + 2], d3 = this.sin[3 * p + 2];
      let a = s * p, y = 4 * s * p;
      for (let q = 0; q < s; q++, a++, y++) {
        const b = a + s * m, c = b + s * m, d = c + s * m;
        const evenRe = xr[a] + xr[c], evenIm = xi[a] + xi[c];
        const oddRe = xr[b] + xr[d], oddIm = xi[b] + xi[d];
        const acRe = xr[a] - xr[c], acIm = xi[a] - xi[c];
        const bdRe = xr[b] - xr[d], bdIm = xi[b] - xi[d];
        yr[y] = evenRe + oddRe;
        yi[y] = evenIm + oddIm;
        const re1 = acRe + bdIm, im1 = acIm - bdRe;
        yr[y + s] = re1 * c1 - im1 * d1;
        yi[y + s] = re1 * d1 + im1 * c1;
        const re2 = evenRe - oddRe, im2 = evenIm - oddIm;
        yr[y + 2 * s] = re2 * c2 - im2 * d2;
        yi[y + 2 * s] = re2 * d2 + im2 * c2;
        const re3 = acRe - bdIm, im3 = acIm + bdRe;
        yr[y + 3 * s] = re3 * c3 - im3 * d3;
        yi[y + 3 * s] = re3 * d3 + im3 * c3;
      }
    }
  }

  run5(xr, xi, yr, yi, s) {
    const m = this.groups;
    const u = Math.cos((2 * Math.PI) / 5), v = Math.cos((4 * Math.PI) / 5);
    const g = Math.sin((2 * Math.PI) / 5), h = Math.sin((4 * Math.PI) / 5);
    for (let p = 0; p < m; p++) {
      const t = 4 * p, cos = this.cos, sin = this.sin;
      let a = s * p, y = 5 * s * p;
      for (let q = 0; q < s; q++, a++, y++) {
        const b = a + s * m, c = b + s * m, d = c + s * m, e = d + s * m;
        const beRe = xr[b] + xr[e], beIm = xi[b] + xi[e], cdRe = xr[c] + xr[d], cdIm = xi[c] + xi[d];
        const beRe_ = xr[b] - xr[e], beIm_ = xi[b] - xi[e];
        const cdRe_ = xr[c] - xr[d], cdIm_ = xi[c] - xi[d];
        const re1 = xr[a] + u * beRe + v * cdRe, im1 = xi[a] + u * beIm + v * cdIm;
        const re2 = xr[a] + v * beRe + u * cdRe, im2 = xi[a] + v * beIm + u * cdIm;
        const f1 = g * beIm_ + h * cdIm_, e1 = g * beRe_ + h * cdRe_;
        const f2 = h * beIm_ - g * cdIm_, e2 = h * beRe_ - g * cdRe_;
        yr[y] = xr[a] + beRe + cdRe;
        yi[y] = xi[a] + beIm + cdIm;
        writeTurned(yr, yi, y + s, re1 + f1, im1 - e1, cos[t], sin[t]);
        writeTurned(yr, yi, y + 2 * s, re2 + f2, im2 - e2, cos[t + 1], sin[t + 1]);
        writeTurned(yr, yi, y + 3 * s, re2 - f2, im2 + e2, cos[t + 2], sin[t + 2]);
        writeTurned(yr, yi, y + 4 * s, re1 - f1, im1 + e1, cos[t + 3], sin[t + 3]);
      }
    }
  }

  // X_k and X_(r-k) are made of the same sums and differences of x_j and x_(r-j).
  runAny(xr, xi, yr, yi, s) {
    const m = this.groups, r = this.radix, half = (r - 1) / 2;
    const { cosines, sines, sums } = this.roots, jump = s * m;
    for (let p = 0; p < m; p++) {
      for (let q = 0; q < s; q++) {
        const first = q + s * p, y = q + s * r * p;
        let re = xr[first], im = xi[first];
        for (let j = 0, a = first + jump, b = first + (r - 1) * jump; j < half; j++, a += jump, b -= jump) {
          re += sums[4 * j] = xr[a] + xr[b];
          im += sums[4 * j + 1] = xi[a] + xi[b];
          sums[4 * j + 2] = xi[a] - xi[b];
          sums[4 * j + 3] = xr[b] - xr[a];
        }
        yr[y] = re;
        yi[y] = im;
        for (let k = 1, t = 0; k <= half; k++) {
          let midRe = xr[first], midIm = xi[first], turnedRe = 0, turnedIm = 0;
          for (let j = 0; j < 4 * half; j += 4, t++) {
            midRe += cosines[t] * sums[j];
            midIm += cosines[t] * sums[j + 1];
            turnedRe += sines[t] * sums[j + 2];
            turnedIm += sines[t] * sums[j + 3];
          }
          const w = p * (r - 1) + k - 1, v = p * (r - 1) + r - k - 1;
          writeTurned(yr, yi, y + k * s, midRe + turnedRe, midIm + turnedIm, this.cos[w], this.sin[w]);
          writeTurned(yr, yi, y + (r - k) * s, midRe - turnedRe, midIm - turnedIm, this.cos[v], this.sin[v]);
        }
      }
    }
  }
}

function writeTurned(yr, yi, y, re, im, cos, sin) {
  yr[y] = re * cos - im * sin;
  yi[y] = re * sin + im * cos;
}

/** Return cosines and sines of 2 pi jk / n for j and k from 1 to (n - 1) / 2, and room for sums. */
function rootsOfUnity(n) {
  const half = (n - 1) / 2;
  const cosines = new Float64Array(half * half), sines = new Float64Array(half * half);
  for (let k = 1, t = 0; k <= half; k++) {
    for (let j = 1; j <= half; j++, t++) {
      cosines[t] = Math.cos((2 * Math.PI * ((j * k) % n)) / n);
      sines[t] = Math.sin((2 * Math.PI * ((j * k) % n)) / n);
    }
  }
  return { cosines, sines, sums: new Float64Array(4 * half) };
}

/** The transform of lines of any length as a convolution with a chirp (Bluestein). */
export class ChirpPlan {
  constructor(length) {
    this.length = length;
    this.workLength = smoothLength(2 * length - 1);
    this.plan = new LinePlan(this.workLength);
    this.cos = new Float64Array(length);
    this.sin = new Float64Array(length);
    const chirp = new Lines(this.workLength);
    for (let k = 0; k < length; k++) {
      const angle = (Math.PI * ((k * k) % (2 * length))) / length;
      this.cos[k] = chirp.re[k] = Math.cos(angle);
      this.sin[k] = chirp.im[k] = Math.sin(angle);
      if (k) {
        chirp.re[this.workLength - k] = chirp.re[k];
        chirp.im[this.workLength - k] = chirp.im[k];
      }
    }
    this.plan.forward(chirp, 1);
    this.chirp = chirp;
  }

  forward(lines, batch) {
    const { length, workLength, cos, sin } = this;
    this.turn(lines, batch, 1);
    lines.re.fill(0, length * batch, workLength * batch);
    lines.im.fill(0, length * batch, workLength * batch);
    this.plan.forward(lines, batch);
    const { re, im } = lines;
    for (let k = 0; k < workLength; k++) {
      const c = this.chirp.re[k], d = this.chirp.im[k];
      for (let i = k * batch; i < (k + 1) * batch; i++) {
        const real = re[i] * c - im[i] * d;
        im[i] = re[i] * d + im[i] * c;
        re[i] = real;
      }
    }
    lines.swapParts();
    this.plan.forward(lines, batch);
    lines.swapParts();
    this.turn(lines, batch, 1 / workLength);
  }

  /** Multiply by the conjugate chirp and a factor. */
  turn(lines, batch, factor) {
    const { re, im } = lines;
    for (let k = 0; k < this.length; k++) {
      const c = factor * this.cos[k], d = -factor * this.sin[k];
      for (let i = k * batch; i < (k + 1) * batch; i++) {
        const real = re[i] * c - im[i] * d;
        im[i] = re[i] * d + im[i] * c;
        re[i] = real;
      }
    }
  }
}

function smoothLength(least) {
  for (let n = least; ; n++) if (Math.max(...radicesOf(n)) <= 5) return n;
}

/** Transforms of real fields (*space), with half the frequencies along the last axis. */
export class RealTransform {
  constructor(space) {
    this.space = space;
    this.nVoxels = space.reduce((a, b) => a * b, 1);
    this.last = space[space.length - 1];
    this.half = Math.floor(this.last / 2) + 1;
    this.nFrequencies = (this.nVoxels / this.last) * this.half;
    this.plans = space.map(planLines);
    const longest = Math.max(...this.plans.map((plan) => plan.workLength));
    this.lines = new Lines(longest * MOST_LINES);
  }

  /** Fill spectrum (re, im) with the transform of field[start, start + nVoxels). */
  forward(field, start, re, im) {
    this.rowsForward(field, start, re, im);
    for (let axis = this.space.length - 2; axis >= 0; axis--) this.alongAxis(axis, re, im);
  }

  /** Fill field[start, start + nVoxels) with the inverse transform; the spectrum is overwritten. */
  inverse(re, im, field, start) {
    for (let axis = 0; axis < this.space.length - 1; axis++) this.alongAxis(axis, im, re);
    this.rowsInverse(re, im, field, start);
  }

  /** Transform complex lines along an axis before the last; with (im, re) it is the inverse. */
  alongAxis(axis, re, im) {
    const length = this.space[axis], plan = this.plans[axis], lines = this.lines;
    if (length === 1) return;
    let stride = this.half;
    for (let i = axis + 1; i < this.space.length - 1; i++) stride *= this.space[i];
    for (let outer = 0; outer < this.nFrequencies; outer += length * stride) {
      for (let first = 0; first < stride; first += MOST_LINES) {
        const batch = Math.min(MOST_LINES, stride - first), start = outer + first;
        for (let i = 0, to = 0; i < length; i++) {
          for (let from = start + i * stride, end = from + batch; from < end; from++, to++) {
            lines.re[to] = re[from];
            lines.im[to] = im[from];
          }
        }
        plan.forward(lines, batch);
        for (let i = 0, from = 0; i < length; i++) {
          for (let to = start + i * stride, end = to + batch; to < end; to++, from++) {
            re[to] = lines.re[from];
            im[to] = lines.im[from];
          }
        }
      }
    }
  }

  // Two real rows are one complex row: x + iy. Its transform is X + iY, and as the transforms of
  // real rows are symmetric, X and Y can be told apart.

  rowsForward(field, start, re, im) {
    const { last, half, lines } = this, plan = this.plans[this.plans.length - 1];
    const nRows = this.nVoxels / last;
    for (let first = 0; first < nRows; first += 2 * MOST_LINES) {
      const n = Math.min(2 * MOST_LINES, nRows - first), batch = (n + 1) >> 1;
      for (let b = 0; b < batch; b++) {
        const x = start + (first + 2 * b) * last, hasTwo = 2 * b + 1 < n;
        for (let i = 0, to = b; i < last; i++, to += batch) {
          lines.re[to] = field[x + i];
          lines.im[to] = hasTwo ? field[x + last + i] : 0;
        }
      }
      plan.forward(lines, batch);
      for (let b = 0; b < batch; b++) {
        const x = (first + 2 * b) * half, hasTwo = 2 * b + 1 < n;
        for (let k = 0; k < half; k++) {
          const here = k * batch + b, there = ((last - k) % last) * batch + b;
          const zr = lines.re[here], zi = lines.im[here], wr = lines.re[there], wi = lines.im[there];
          re[x + k] = 0.5 * (zr + wr);
          im[x + k] = 0.5 * (zi - wi);
          if (hasTwo) {
            re[x + half + k] = 0.5 * (zi + wi);
            im[x + half + k] = 0.5 * (wr - zr);
          }
        }
      }
    }
  }

  rowsInverse(re, im, field, start) {
    const { last, half, lines } = this, plan = this.plans[this.plans.length - 1];
    const nRows = this.nVoxels / last;
    for (let first = 0; first < nRows; first += 2 * MOST_LINES) {
      const n = Math.min(2 * MOST_LINES, nRows - first), batch = (n + 1) >> 1;
      for (let b = 0; b < batch; b++) {
        const x = (first + 2 * b) * half, hasTwo = 2 * b + 1 < n;
        for (let k = 0; k < half; k++) {
          const isReal = k === 0 || 2 * k === last; // what rounding made of a zero is left out
          const xr = re[x + k], xi = isReal ? 0 : im[x + k];
          const yr = hasTwo ? re[x + half + k] : 0, yi = hasTwo && !isReal ? im[x + half + k] : 0;
          const here = k * batch + b, there = ((last - k) % last) * batch + b;
          lines.re[here] = xr - yi;
          lines.im[here] = xi + yr;
          lines.re[there] = xr + yi;
          lines.im[there] = yr - xi;
        }
      }
      lines.swapParts();
      plan.forward(lines, batch);
      lines.swapParts();
      for (let b = 0; b < batch; b++) {
        const x = start + (first + 2 * b) * last, hasTwo = 2 * b + 1 < n;
        for (let i = 0, from = b; i < last; i++, from += batch) {
          field[x + i] = lines.re[from];
          if (hasTwo) field[x + last + i] = lines.im[from];
        }
      }
    }
  }
}
