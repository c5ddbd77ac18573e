// Latents that move by themselves: along one mode, along all modes in turn, or between two images.

const SECONDS = 4; // there and back along a mode

/** Return where a swing from 0 to both ends and back is, from 0 to 1. */
export function swing(share, low, high) {
  const wave = Math.sin(2 * Math.PI * share);
  return wave > 0 ? wave * high : -wave * low;
}

export class Animation {
  constructor(latents) {
    this.latents = latents;
    this.frame = null;
    this.whenDone = null;
  }

  get isPlaying() {
    return this.frame !== null;
  }

  /** Play a mode by its number, "tour" for all that are not locked, or a function of 0 to 1. */
  start(what, whenDone = () => {}) {
    this.stop();
    this.whenDone = whenDone;
    const { latents } = this, base = Float64Array.from(latents.values);
    const modes = what === "tour" ? latents.modes.map((_, k) => k).filter((k) => !latents.isLocked[k]) : [what];
    let began = null;
    const advance = (time) => {
      began ??= time;
      const turns = (time - began) / 1000 / SECONDS;
      if (what === "tour" && turns >= modes.length) {
        latents.setAll(base);
        this.stop();
        return;
      }
      if (typeof what === "function") what(0.5 - 0.5 * Math.cos(2 * Math.PI * turns));
      else {
        const values = Float64Array.from(base), k = modes[Math.floor(turns) % modes.length];
        values[k] = swing(turns % 1, ...latents.ends[k]);
        latents.setAll(values, { evenLocked: true });
      }
      this.frame = requestAnimationFrame(advance);
    };
    this.frame = requestAnimationFrame(advance);
  }

  /** Stop, and tell who started it, so that no button stays pressed. */
  stop() {
    if (this.frame !== null) cancelAnimationFrame(this.frame);
    this.frame = null;
    const tell = this.whenDone;
    this.whenDone = null;
    tell?.();
  }
}
