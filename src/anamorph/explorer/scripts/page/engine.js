// Questions to the worker that holds the model, and its answers.

export class Engine {
  /** Start the worker whose script is given as a text. */
  constructor(source) {
    const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    this.worker = new Worker(address);
    this.waiting = new Map();
    this.lastId = 0;
    this.worker.onmessage = ({ data: { id, answer, error } }) => {
      const { resolve, reject } = this.waiting.get(id);
      this.waiting.delete(id);
      if (error) reject(new Error(error));
      else resolve(answer);
    };
    this.worker.onerror = (event) => {
      for (const { reject } of this.waiting.values()) reject(new Error(event.message || "the worker stopped"));
    };
  }

  get isIdle() {
    return this.waiting.size === 0;
  }

  ask(question, content) {
    const id = ++this.lastId;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.worker.postMessage({ id, question, ...content });
    });
  }
}
