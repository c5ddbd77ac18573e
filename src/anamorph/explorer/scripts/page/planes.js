// Slices through images on canvases: colours, orientation, warp grids, cursor and sides of the body.

const MISSING_RGB = [204, 121, 167];
const GRID_LINES = 20; // along the longest axis, about
const NAMES_OF_BODY_PLANES = ["Coronal", "Sagittal", "Axial"];

/** One slice of a volume, or a picture, as it lies on a canvas. */
export class Plane {
  constructor(facts, number) {
    this.facts = facts;
    this.view = facts.views[number];
    const { space, voxelSize } = facts, { horizontal, vertical } = this.view;
    this.nAcross = space[horizontal];
    this.nAlong = space[vertical];
    this.third = space.length === 3 ? 3 - horizontal - vertical : null;
    this.width = this.nAcross * voxelSize[horizontal];
    this.height = this.nAlong * voxelSize[vertical];
    this.strides = space.map((_, axis) => space.slice(axis + 1).reduce((a, b) => a * b, 1));
    this.nVoxels = space.reduce((a, b) => a * b, 1);
    this.isMirrored = false; // radiological convention
    this.name = space.length === 2 ? "Picture" : facts.affine ? NAMES_OF_BODY_PLANES[number] : `Axes ${horizontal} and ${vertical}`;
  }

  get firstIsLeft() {
    const hasSides = this.view.sides[0] === "L";
    return !this.view.isFlipped[0] !== (hasSides && this.isMirrored);
  }

  get firstIsTop() {
    return this.facts.showsFirstRowOnTop !== this.view.isFlipped[1];
  }

  /** The letters at the left and the right edge. */
  get sides() {
    const [left, right] = this.view.sides;
    return left === "L" && this.isMirrored ? [right, left] : [left, right];
  }

  /** Size a canvas to show this plane with so many pixels per unit of the voxel size. */
  fit(canvas, scale) {
    canvas.width = Math.round(this.width * scale);
    canvas.height = Math.round(this.height * scale);
  }

  /** Return where voxel coordinates are on a canvas. */
  place(canvas, across, along) {
    const x = ((across + 0.5) / this.nAcross) * canvas.width, y = ((along + 0.5) / this.nAlong) * canvas.height;
    return [this.firstIsLeft ? x : canvas.width - x, this.firstIsTop ? y : canvas.height - y];
  }

  /** Return the voxel coordinates of a place on a canvas. */
  voxelAt(canvas, x, y) {
    const across = (this.firstIsLeft ? x : canvas.width - x) / canvas.width;
    const along = (this.firstIsTop ? y : canvas.height - y) / canvas.height;
    const inside = (share, n) => Math.min(n - 1, Math.max(0, Math.floor(share * n)));
    return [inside(across, this.nAcross), inside(along, this.nAlong)];
  }

  /** Call paint(voxel, pixels, place) for every voxel of the slice, and return it as a canvas. */
  paint(cursor, paint) {
    const canvas = new OffscreenCanvas(this.nAcross, this.nAlong);
    const context = canvas.getContext("2d"), picture = context.createImageData(this.nAcross, this.nAlong);
    const { horizontal, vertical } = this.view;
    const start = this.third === null ? 0 : cursor[this.third] * this.strides[this.third];
    for (let row = 0; row < this.nAlong; row++) {
      const along = this.firstIsTop ? row : this.nAlong - 1 - row;
      for (let column = 0; column < this.nAcross; column++) {
        const across = this.firstIsLeft ? column : this.nAcross - 1 - column;
        const voxel = start + along * this.strides[vertical] + across * this.strides[horizontal];
        paint(voxel, picture.data, 4 * (row * this.nAcross + column));
      }
    }
    context.putImageData(picture, 0, 0);
    return canvas;
  }

  /** Draw painted voxels to fill a part of a canvas. */
  draw(canvas, painted, isSmooth, left = 0, width = canvas.width) {
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = isSmooth;
    context.imageSmoothingQuality = "high";
    context.drawImage(painted, left, 0, width, canvas.height);
  }

  /** Draw where psi crosses the lines of a regular grid of the mean. */
  drawGrid(canvas, displacement, cursor) {
    const context = canvas.getContext("2d"), { horizontal, vertical } = this.view;
    const spacing = Math.max(1, Math.round(Math.max(...this.facts.space) / GRID_LINES));
    const start = this.third === null ? 0 : cursor[this.third] * this.strides[this.third];
    context.beginPath();
    for (const axis of [horizontal, vertical]) {
      const crossed = (across, along) => {
        const voxel = start + along * this.strides[vertical] + across * this.strides[horizontal];
        return (axis === horizontal ? across : along) + (displacement ? displacement[axis * this.nVoxels + voxel] : 0);
      };
      this.traceLevels(canvas, context, crossed, spacing);
    }
    context.lineWidth = Math.max(1, canvas.width / 640);
    context.strokeStyle = "rgb(240 160 60 / 85%)";
    context.stroke();
  }

  traceLevels(canvas, context, valueAt, spacing) {
    for (let j = 0; j + 1 < this.nAlong; j++) {
      for (let i = 0; i + 1 < this.nAcross; i++) {
        const corners = [[i, j], [i + 1, j], [i + 1, j + 1], [i, j + 1]];
        const values = corners.map(([across, along]) => valueAt(across, along));
        const low = Math.min(...values), high = Math.max(...values);
        for (let level = Math.ceil(low / spacing) * spacing; level < high; level += spacing) {
          const points = [];
          for (let edge = 0; edge < 4; edge++) {
            const a = values[edge] - level, b = values[(edge + 1) % 4] - level;
            if (a < 0 === b < 0) continue;
            const t = a / (a - b), [p, q] = [corners[edge], corners[(edge + 1) % 4]];
            points.push(this.place(canvas, p[0] + t * (q[0] - p[0]), p[1] + t * (q[1] - p[1])));
          }
          for (let n = 0; n + 1 < points.length; n += 2) {
            context.moveTo(...points[n]);
            context.lineTo(...points[n + 1]);
          }
        }
      }
    }
  }

  drawCursor(canvas, cursor) {
    const context = canvas.getContext("2d");
    const [x, y] = this.place(canvas, cursor[this.view.horizontal], cursor[this.view.vertical]);
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, canvas.height);
    context.moveTo(0, y);
    context.lineTo(canvas.width, y);
    context.lineWidth = 1;
    context.strokeStyle = "rgb(120 200 255 / 70%)";
    context.stroke();
  }

  drawSides(canvas) {
    if (!this.sides[0]) return;
    const context = canvas.getContext("2d"), size = Math.round(canvas.height / 18);
    context.font = `600 ${size}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    this.sides.forEach((side, right) => {
      context.textAlign = right ? "right" : "left";
      const x = right ? canvas.width - size / 2 : size / 2;
      context.lineWidth = 3;
      context.strokeStyle = "rgb(0 0 0 / 70%)";
      context.strokeText(side, x, canvas.height / 2);
      context.fillStyle = "#ffffff";
      context.fillText(side, x, canvas.height / 2);
    });
  }
}

/** Return how to paint expected images (C, *space): the colours that channels or classes add. */
export function painterOf(image, facts) {
  const { colours, lowest, highest } = facts.palette, n = facts.space.reduce((a, b) => a * b, 1);
  return (voxel, pixels, place) => {
    let red = 0, green = 0, blue = 0;
    for (let c = 0; c < facts.nChannels; c++) {
      const value = image[c * n + voxel];
      if (Number.isNaN(value)) return paintRGB(pixels, place, ...MISSING_RGB);
      const share = 255 * Math.min(1, Math.max(0, (value - lowest[c]) / (highest[c] - lowest[c])));
      red += share * colours[c][0];
      green += share * colours[c][1];
      blue += share * colours[c][2];
    }
    paintRGB(pixels, place, red, green, blue);
  };
}

/** Return how to paint an observed image: as expected ones, or labels by the colour of their class. */
export function painterOfObserved(image, facts) {
  if (!facts.holdsClasses) return painterOf(image, facts);
  return (voxel, pixels, place) => {
    const label = image[voxel];
    const colour = Number.isNaN(label) ? MISSING_RGB : facts.palette.colours[label].map((share) => 255 * share);
    paintRGB(pixels, place, ...colour);
  };
}

/**
 * Return how to paint what a model misses. One channel: orange where the image is brighter than
 * expected, blue where it is darker. Several: differences around grey. Classes: how improbable the
 * observed class is.
 */
export function painterOfResidual(observed, expected, facts) {
  const { lowest, highest } = facts.palette, n = facts.space.reduce((a, b) => a * b, 1);
  if (facts.holdsClasses) {
    return (voxel, pixels, place) => {
      const label = observed[voxel];
      if (Number.isNaN(label)) return paintRGB(pixels, place, ...MISSING_RGB);
      const surprise = 1 - expected[label * n + voxel];
      paintRGB(pixels, place, 255 * surprise, 200 * surprise, 90 * surprise);
    };
  }
  const shareAt = (c, voxel) => (observed[c * n + voxel] - expected[c * n + voxel]) / (highest[c] - lowest[c]);
  if (facts.nChannels === 3) {
    return (voxel, pixels, place) => {
      const shares = [0, 1, 2].map((c) => shareAt(c, voxel));
      if (shares.some(Number.isNaN)) return paintRGB(pixels, place, ...MISSING_RGB);
      paintRGB(pixels, place, ...shares.map((share) => 128 + 255 * share));
    };
  }
  return (voxel, pixels, place) => {
    let share = 0;
    for (let c = 0; c < facts.nChannels; c++) share += shareAt(c, voxel) / facts.nChannels;
    if (Number.isNaN(share)) return paintRGB(pixels, place, ...MISSING_RGB);
    const strength = Math.min(1, Math.abs(share)), end = share > 0 ? [255, 150, 40] : [70, 160, 255];
    paintRGB(pixels, place, ...end.map((value) => 24 + strength * (value - 24)));
  };
}

function paintRGB(pixels, place, red, green, blue) {
  pixels[place] = red;
  pixels[place + 1] = green;
  pixels[place + 2] = blue;
  pixels[place + 3] = 255;
}
