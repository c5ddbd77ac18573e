// The surface of a volume in WebGL: turned by dragging or with the arrow keys.
import { element, shortNumber } from "./elements.js";

const VERTEX_SHADER = `
attribute vec3 position, normal, colour;
uniform mat3 turn;
uniform vec3 centre;
uniform float scale;
varying vec3 seenNormal, seenColour;
void main() {
  vec3 seen = turn * (position - centre) * scale;
  seenNormal = turn * normal;
  seenColour = colour;
  gl_Position = vec4(seen.xy, -0.4 * seen.z, 1.0 - 0.12 * seen.z);
}`;
const FRAGMENT_SHADER = `
precision mediump float;
varying vec3 seenNormal, seenColour;
void main() {
  vec3 n = normalize(seenNormal);
  if (n.z < 0.0) n = -n;
  float light = 0.28 + 0.62 * max(0.0, dot(n, normalize(vec3(-0.35, 0.5, 0.8)))) + 0.14 * n.z;
  gl_FragColor = vec4(seenColour * light, 1.0);
}`;
const SURFACE_SIZE = 480;
const SIDES_OF_BODY = [["L", "R"], ["P", "A"], ["I", "S"]];

export class SurfaceView {
  constructor(facts, planes) {
    this.facts = facts;
    this.axes = bodyAxes(planes);
    this.yaw = 0.6;
    this.pitch = 0.35;
    this.zoom = 1;
    this.gl = null;
    this.glCanvas = element("canvas", { width: SURFACE_SIZE, height: SURFACE_SIZE });
    this.canvas = element("canvas", { width: SURFACE_SIZE, height: SURFACE_SIZE, class: "slice", role: "img", "aria-label": "Surface; arrow keys turn it", tabindex: 0 });
    this.scale = element("span", { class: "scale" });
    this.meshes = [];
    this.listen();
    this.start();
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
    canvas.addEventListener("pointermove", (event) => {
      if (event.buttons) this.turnBy(event.movementX / 120, event.movementY / 120);
    });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom = Math.min(4, Math.max(0.4, this.zoom * Math.exp(-event.deltaY / 600)));
      this.draw();
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const turn = { ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, -0.15], ArrowDown: [0, 0.15] }[event.key];
      if (!turn) return;
      event.preventDefault();
      this.turnBy(...turn);
    });
  }

  turnBy(yaw, pitch) {
    this.yaw += yaw;
    this.pitch = Math.min(1.57, Math.max(-1.57, this.pitch + pitch));
    this.draw();
  }

  start() {
    const gl = this.glCanvas.getContext("webgl", { antialias: true, alpha: false, preserveDrawingBuffer: true });
    if (!gl || !gl.getExtension("OES_element_index_uint")) return;
    const program = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, VERTEX_SHADER], [gl.FRAGMENT_SHADER, FRAGMENT_SHADER]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program));
    gl.useProgram(program);
    gl.enable(gl.DEPTH_TEST);
    gl.clearColor(0, 0, 0, 1);
    this.gl = gl;
    this.program = program;
  }

  /** Show surfaces of the worker, coloured by "class", "growth" or "displacement". */
  show(surfaces, colouring) {
    if (!this.gl) return this.draw();
    const { gl } = this, limit = limitOf(surfaces);
    this.frame ??= frameOf(surfaces);
    for (const mesh of this.meshes) Object.values(mesh.buffers).forEach((buffer) => gl.deleteBuffer(buffer));
    this.meshes = surfaces.map((surface) => {
      const colours = new Float32Array(surface.vertices.length);
      for (let i = 0; i < colours.length / 3; i++) {
        colours.set(surface.values ? colourOf(surface.values[i] / limit, colouring) : this.classColour(surface.channel), 3 * i);
      }
      const bound = { position: surface.vertices, normal: surface.normals, colour: colours };
      const buffers = {};
      for (const [name, values] of Object.entries(bound)) {
        buffers[name] = gl.createBuffer();
        gl.bindBuffer(gl.ARRAY_BUFFER, buffers[name]);
        gl.bufferData(gl.ARRAY_BUFFER, values, gl.DYNAMIC_DRAW);
      }
      buffers.triangles = gl.createBuffer();
      gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, buffers.triangles);
      gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, surface.triangles, gl.DYNAMIC_DRAW);
      return { buffers, count: surface.triangles.length };
    });
    this.scale.textContent = scaleText(surfaces, colouring, limit);
    this.nTriangles = surfaces.reduce((sum, { triangles }) => sum + triangles.length / 3, 0);
    this.draw();
  }

  classColour(channel) {
    return this.facts.holdsClasses ? this.facts.palette.colours[channel] : [0.85, 0.78, 0.7];
  }

  draw() {
    const { gl, program, facts } = this, context = this.canvas.getContext("2d");
    if (!gl) {
      context.fillStyle = "#ffffff";
      context.fillText("This browser has no WebGL, which draws surfaces.", 20, SURFACE_SIZE / 2);
      return;
    }
    gl.viewport(0, 0, SURFACE_SIZE, SURFACE_SIZE);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    const turn = this.turnMatrix();
    gl.uniformMatrix3fv(gl.getUniformLocation(program, "turn"), false, turn);
    gl.uniform3f(gl.getUniformLocation(program, "centre"), ...(this.frame?.centre ?? [0, 0, 0]));
    gl.uniform1f(gl.getUniformLocation(program, "scale"), (1.1 * this.zoom) / (this.frame?.radius ?? 1));
    for (const { buffers, count } of this.meshes) {
      for (const name of ["position", "normal", "colour"]) {
        const place = gl.getAttribLocation(program, name);
        gl.bindBuffer(gl.ARRAY_BUFFER, buffers[name]);
        gl.enableVertexAttribArray(place);
        gl.vertexAttribPointer(place, 3, gl.FLOAT, false, 0, 0);
      }
      gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, buffers.triangles);
      gl.drawElements(gl.TRIANGLES, count, gl.UNSIGNED_INT, 0);
    }
    context.drawImage(this.glCanvas, 0, 0);
    if (facts.affine) this.drawLetters(context, turn);
  }

  /** Return the rotation, by columns: axes of the array (2, 1, 0) in the coordinates of the screen. */
  turnMatrix() {
    const [cy, sy, cp, sp] = [Math.cos(this.yaw), Math.sin(this.yaw), Math.cos(this.pitch), Math.sin(this.pitch)];
    // Right, back to front and up of the body on the screen (right, up, towards the viewer), seen from behind.
    const body = [[cy, sp * sy, cp * sy], [sy, -sp * cy, -cp * cy], [0, cp, -sp]];
    const columns = [null, null, null];
    this.axes.forEach(({ axis, sign }, b) => (columns[2 - axis] = body[b].map((value) => sign * value)));
    this.body = body;
    return columns.flat();
  }

  drawLetters(context) {
    context.font = "600 18px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    this.body.forEach(([x, y, z], b) => {
      [-1, 1].forEach((end, n) => {
        context.fillStyle = `rgb(255 255 255 / ${0.55 + 0.35 * end * z})`;
        context.fillText(SIDES_OF_BODY[b][n], SURFACE_SIZE / 2 + end * x * 0.46 * SURFACE_SIZE, SURFACE_SIZE / 2 - end * y * 0.46 * SURFACE_SIZE);
      });
    });
  }
}

/** Return which axis of the array is which of the body: left to right, back to front, down to up. */
function bodyAxes(planes) {
  const [first, second] = planes.map((plane) => plane.view);
  return [
    { axis: first.horizontal, sign: first.isFlipped[0] ? -1 : 1 },
    { axis: second.horizontal, sign: second.isFlipped[0] ? -1 : 1 },
    { axis: first.vertical, sign: first.isFlipped[1] ? -1 : 1 },
  ];
}

/** Return a ball around surfaces; null if there are none. */
function frameOf(surfaces) {
  const low = [Infinity, Infinity, Infinity], high = [-Infinity, -Infinity, -Infinity];
  for (const { vertices } of surfaces) {
    vertices.forEach((value, i) => {
      low[i % 3] = Math.min(low[i % 3], value);
      high[i % 3] = Math.max(high[i % 3], value);
    });
  }
  if (low[0] > high[0]) return null;
  return { centre: low.map((value, i) => (value + high[i]) / 2), radius: Math.hypot(...high.map((value, i) => value - low[i])) / 2 };
}

function limitOf(surfaces) {
  let limit = 1e-6;
  for (const { values } of surfaces) for (const value of values ?? []) if (Math.abs(value) > limit) limit = Math.abs(value);
  return limit;
}

/** Growth: blue, white, red. Displacement: dark to bright. */
function colourOf(share, colouring) {
  if (Number.isNaN(share)) return [0.8, 0.47, 0.65];
  if (colouring === "growth") {
    const t = Math.min(1, Math.abs(share));
    return share > 0 ? [1 - 0.2 * t, 1 - 0.75 * t, 1 - 0.8 * t] : [1 - 0.8 * t, 1 - 0.55 * t, 1 - 0.15 * t];
  }
  const t = Math.min(1, Math.max(0, share));
  return [0.25 + 0.75 * t, 0.2 + 0.75 * t * t, 0.5 + 0.2 * t - 0.45 * t * t];
}

function scaleText(surfaces, colouring, limit) {
  if (!surfaces.some((surface) => surface.values)) return "";
  if (colouring === "displacement") return `0 to ${shortNumber(limit)} mm`;
  return `blue \u00d7${shortNumber(Math.exp(-limit))}, red \u00d7${shortNumber(Math.exp(limit))} of the mean's volume`;
}
