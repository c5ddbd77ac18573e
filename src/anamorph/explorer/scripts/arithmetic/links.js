// From warped appearances a' to expected images, for each likelihood.

const MOST_LOGIT = 40;
const MOST_LOG_RATE = 20;

function clipped(value, most) {
  return value < -most ? -most : value > most ? most : value;
}

const LINKS = {
  gaussian() {},

  bernoulli(values) {
    for (let i = 0; i < values.length; i++) {
      values[i] = 1 / (1 + Math.exp(-clipped(values[i], MOST_LOGIT)));
    }
  },

  poisson(values) {
    for (let i = 0; i < values.length; i++) {
      values[i] = Math.exp(clipped(values[i], MOST_LOG_RATE));
    }
  },

  categorical(values, nChannels) {
    const n = values.length / nChannels;
    for (let x = 0; x < n; x++) {
      let most = -Infinity, total = 0;
      for (let c = 0; c < nChannels; c++) most = Math.max(most, values[c * n + x]);
      for (let c = 0; c < nChannels; c++) total += values[c * n + x] = Math.exp(values[c * n + x] - most);
      for (let c = 0; c < nChannels; c++) values[c * n + x] /= total;
    }
  },
};

/** Turn warped appearances (channels, *space) into expected images, in place. */
export function applyLink(likelihood, values, nChannels) {
  LINKS[likelihood](values, nChannels);
}
